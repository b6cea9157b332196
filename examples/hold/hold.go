// Guarded steps from Go: go run hold.go NAME STEPS
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

type event struct {
	Event    string
	Token    int64
	TTL      int64 `json:"ttl_ms"`
	Deadline int64 `json:"deadline_ms"`
}

type hold struct {
	process *exec.Cmd
	input   io.Closer
	last    atomic.Pointer[event]
	ended   chan struct{}
}

// acquire waits until the lease is held.
func acquire(name string, options ...string) (*hold, error) {
	arguments := append(append([]string{"hold"}, options...), name)
	h := &hold{process: exec.Command("leasehold", arguments...), ended: make(chan struct{})}
	h.last.Store(&event{})
	h.process.Stderr = os.Stderr
	// A group of its own, so that a Ctrl-C is for this program alone.
	h.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	h.input, _ = h.process.StdinPipe()
	output, _ := h.process.StdoutPipe()
	if err := h.process.Start(); err != nil {
		return nil, err
	}
	known := make(chan struct{}, 1)
	go func() {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			next := &event{}
			if json.Unmarshal(lines.Bytes(), next) == nil && next.Event != "waiting" {
				h.last.Store(next)
				select {
				case known <- struct{}{}:
				default:
				}
			}
		}
		h.last.Store(&event{})
		close(h.ended)
	}()
	select {
	case <-known:
	case <-h.ended:
	}
	_, err := h.check()
	return h, err
}

// check fails unless the lease is held now, by the last deadline and the boot clock.
func (h *hold) check() (int64, error) {
	last := h.last.Load()
	if left := last.Deadline - now(); left <= 0 || left > last.TTL {
		return 0, fmt.Errorf("the lease is not held: %+v", *last)
	}
	return last.Token, nil
}

func (h *hold) release() error {
	h.input.Close()
	<-h.ended
	return h.process.Wait()
}

// now is the boot clock in ms, with the most that the file leaves out.
func now() int64 {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		panic(err)
	}
	ms, err := strconv.ParseInt(strings.Replace(strings.Fields(string(text))[0], ".", "", 1)+"9", 10, 64)
	if err != nil {
		panic(err)
	}
	return ms
}

// step must not be done without the lease. Your storage refuses a token lower than it has seen.
func step(number int, token int64) {
	fmt.Println("step", number, "token", token, "at", now())
	time.Sleep(100 * time.Millisecond)
}

func main() {
	steps, _ := strconv.Atoi(os.Args[2])
	lease, err := acquire(os.Args[1])
	for number := 1; number <= steps && err == nil; number++ {
		var token int64
		if token, err = lease.check(); err == nil {
			step(number, token)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "stopped:", err)
		os.Exit(1)
	}
	if err := lease.release(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
