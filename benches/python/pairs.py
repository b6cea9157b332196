#!/usr/bin/env python3
"""Acquire and release from Python, beside the locks of redis-py and python-redis-lock: on one server, in turns.

    pip install ./src/python redis python-redis-lock && benches/python/pairs.py

It prints a line for each case, as the other benches do.
"""

import shutil
import statistics
import subprocess
import tempfile
import time

import redis
import redis_lock

import leasehold

#: Blocks of each side, in turns, and pairs in each.
BLOCKS, PAIRS = 5, 400


def microseconds(pair, times=PAIRS):
    """Returns the median of so many pairs."""
    taken = []
    for _ in range(times):
        began = time.perf_counter_ns()
        pair()
        taken.append(time.perf_counter_ns() - began)
    return statistics.median(taken) / 1000


def beside(case, ours, other):
    blocks = [(microseconds(ours), microseconds(other)) for _ in range(BLOCKS)]
    ratios = [mine / theirs for mine, theirs in blocks]
    mine, theirs = (statistics.median(side) for side in zip(*blocks))
    print(
        f"case={case} ours={mine:.0f} other={theirs:.0f} unit=us ratio={statistics.median(ratios):.2f}"
        f" least={min(ratios):.2f} most={max(ratios):.2f} runs={BLOCKS}",
        flush=True,
    )


def check_ns(lease, times=200_000):
    began = time.perf_counter_ns()
    for _ in range(times):
        lease.check()
    return (time.perf_counter_ns() - began) / times


def measure(socket):
    client = leasehold.Client(f"redis+unix://{socket}")
    server = redis.Redis(unix_socket_path=socket)

    def ours():
        client.acquire("ours").release()

    def of_redis_py():
        lock = server.lock("redis-py", timeout=30)
        lock.acquire()
        lock.release()

    def of_python_redis_lock():
        lock = redis_lock.Lock(server, "python-redis-lock", expire=30)
        lock.acquire()
        lock.release()

    def of_python_redis_lock_renewed():
        lock = redis_lock.Lock(server, "python-redis-lock", expire=30, auto_renewal=True)
        lock.acquire()
        lock.release()

    for pair in [ours, of_redis_py, of_python_redis_lock, of_python_redis_lock_renewed]:
        microseconds(pair)  # warms up
    beside("python_pair_p50_vs_redis_py", ours, of_redis_py)
    beside("python_pair_p50_vs_python_redis_lock", ours, of_python_redis_lock)
    beside("python_pair_p50_vs_python_redis_lock_renewed", ours, of_python_redis_lock_renewed)
    with client.acquire("ours") as lease:
        checks = sorted(check_ns(lease) for _ in range(BLOCKS))
    print(
        f"case=python_check_ns ours={statistics.median(checks):.0f} least={checks[0]:.0f} most={checks[-1]:.0f} runs={BLOCKS}"
    )


def main():
    folder = tempfile.mkdtemp()
    socket = f"{folder}/socket"
    command = ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--maxmemory-policy", "noeviction"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=folder)
    try:
        while True:
            try:
                redis.Redis(unix_socket_path=socket).ping()
                break
            except redis.exceptions.ConnectionError:
                time.sleep(0.01)
        measure(socket)
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder)


main()
