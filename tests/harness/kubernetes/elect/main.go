// A program that leads as client-go's leader election does:
//
//	elect KUBECONFIG NAMESPACE NAME SECONDS
//
// says "leads" and "ends", line by line, and releases when its standard input ends: for the tests of what shares an object
// with it.
//
//	elect KUBECONFIG NAMESPACE NAME SECONDS pairs
//
// leads and releases at once for each line of its standard input, and says how many microseconds that took: for the bench
// that compares.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	if err != nil {
		panic(err)
	}
	seconds, err := strconv.Atoi(os.Args[4])
	if err != nil {
		panic(err)
	}
	// No limit of its own on requests: by default it sends five a second.
	config.QPS = -1
	lease := time.Duration(seconds) * time.Second
	settings := leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: os.Args[2], Name: os.Args[3]},
			Client:     kubernetes.NewForConfigOrDie(config).CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: fmt.Sprintf("elected-%d", os.Getpid())},
		},
		ReleaseOnCancel: true,
		LeaseDuration:   lease,
		RenewDeadline:   lease * 2 / 3,
		// Two seconds of fifteen, as by default.
		RetryPeriod: lease * 2 / 15,
	}
	if len(os.Args) > 5 {
		klog.SetLogger(logr.Discard())
		pairs(settings)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	settings.Callbacks = leaderelection.LeaderCallbacks{
		OnStartedLeading: func(context.Context) { fmt.Println("leads") },
		OnStoppedLeading: func() { fmt.Println("ends") },
	}
	leaderelection.RunOrDie(ctx, settings)
}

func pairs(settings leaderelection.LeaderElectionConfig) {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		ctx, cancel := context.WithCancel(context.Background())
		settings.Callbacks = leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { cancel() },
			OnStoppedLeading: func() {},
		}
		start := time.Now()
		leaderelection.RunOrDie(ctx, settings)
		fmt.Println(time.Since(start).Microseconds())
	}
}
