#!/usr/bin/env python3
"""Guarded steps from Python: ./hold.py NAME STEPS"""
import json
import subprocess
import sys
import threading
import time


class Hold:
    """A lease: `with Hold(name) as lease`, then `lease.check()` before each guarded step."""

    def __init__(self, name, *options):
        self.process = subprocess.Popen(
            ["leasehold", "hold", *options, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that a Ctrl-C is for this program alone
        )
        self.last, self.known = {}, threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.last = json.loads(line)
            if self.last["event"] != "waiting":
                self.known.set()
        self.last = {**self.last, "deadline_ms": 0}
        self.known.set()

    def check(self):
        """Raises unless the lease is held now, by the last deadline and the boot clock."""
        last, now = self.last, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
        if not 0 < last.get("deadline_ms", 0) - now <= last["ttl_ms"]:
            raise RuntimeError(f"the lease is not held: {last}")
        return last["token"]

    def __enter__(self):
        self.known.wait()
        self.check()
        return self

    def __exit__(self, kind, *_):
        self.process.stdin.close()  # releases
        if kind is None:
            self.process.wait()


def step(number, token):
    """What must not be done without the lease. Your storage refuses a token lower than it has seen."""
    print("step", number, "token", token, "at", time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000, flush=True)
    time.sleep(0.1)


with Hold(sys.argv[1]) as lease:
    for number in range(1, int(sys.argv[2]) + 1):
        try:
            token = lease.check()
        except RuntimeError as why:
            sys.exit(f"stopped: {why}")
        step(number, token)
