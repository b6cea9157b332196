"""Long tests: pauses, cancellations and forks at random moments. Each prints its seed."""

import asyncio
import multiprocessing
import os
import random
import signal
import sqlite3
import threading
import time

import pytest

from conftest import until
from leasehold import Client, aio, fence

SECONDS = 30

# Adds until its input ends. A fence may refuse it, or its lease be lost: then nothing was added.
ADDER = """
import sqlite3, sys, threading, time, leasehold
from leasehold import fence

client = leasehold.Client(sys.argv[1], ttl=1)
connection = sqlite3.connect(sys.argv[2], isolation_level=None, timeout=30)
ends = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ends.set()), daemon=True).start()
added = refused = 0
while not ends.is_set():
    with client.acquire("ledger") as lease:
        try:
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                fence.raise_sqlite(connection.cursor(), "ledger", lease)
            for _ in range(20):
                lease.check()
                (total,) = connection.execute("SELECT total FROM ledger").fetchone()
                time.sleep(0.01)  # where most pauses begin
                with connection:
                    connection.execute("BEGIN IMMEDIATE")
                    fence.raise_sqlite(connection.cursor(), "ledger", lease)
                    connection.execute("UPDATE ledger SET total = ?", (total + 1,))
                added += 1
        except (leasehold.Lost, leasehold.Stale):
            refused += 1
print(added, refused)
"""


@pytest.fixture
def dice():
    seed = int(os.environ.get("LEASEHOLD_TEST_SEED", time.time_ns() % 1_000_000))
    print("seed", seed)
    return random.Random(seed)


def test_of_what_paused_processes_add_none_is_lost(url, tmp_path, python, dice):
    """The short tests have the control: without the fence a write is lost."""
    data = str(tmp_path / "data.sqlite")
    connection = sqlite3.connect(data, isolation_level=None)
    connection.execute(fence.CREATE_SQLITE)
    connection.execute("CREATE TABLE ledger (total INTEGER)")
    connection.execute("INSERT INTO ledger VALUES (0)")
    adders = [python(ADDER, url, data) for _ in range(2)]
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        paused = dice.choice(adders)
        paused.send_signal(signal.SIGSTOP)
        time.sleep(3)
        paused.send_signal(signal.SIGCONT)
        time.sleep(dice.uniform(0, 0.3))
    told = [adder.communicate("", timeout=60) for adder in adders]
    counts = [tuple(map(int, said.split())) for said, errors in told]
    added, refused = (sum(count) for count in zip(*counts))
    total = connection.execute("SELECT total FROM ledger").fetchone()[0]
    print("added", added, "refused", refused, "total", total)
    assert added > 100 and refused > 0
    assert total == added


def test_tasks_that_are_cancelled_at_random_leave_nothing(url, dice):
    async def main():
        async with aio.Client(url) as client:
            for round_ in range(40):
                names = ["a", "b", "c"]

                async def work():
                    async with client.acquire_all(dice.sample(names, 2)) as leases:
                        await asyncio.sleep(dice.uniform(0, 0.005))
                        leases.check()

                tasks = [asyncio.ensure_future(work()) for _ in range(20)]
                for task in dice.sample(tasks, 10):
                    await asyncio.sleep(dice.uniform(0, 0.01))
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                # A lease of a claim in doubt is released within some seconds, long before its ttl.
                async with client.acquire_all(names, wait=10) as leases:
                    leases.check()

    asyncio.run(main())


def in_child(url, number, results):
    try:
        own = Client(url)
        for _ in range(20):
            with own.acquire("a", wait=60):
                pass
        own.close()
        results.put((number, "done"))
    except Exception as error:
        results.put((number, repr(error)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_children_that_are_forked_work_with_clients_of_their_own(url):
    """As gunicorn and celery do, with a parent that has a lease."""
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    client = Client(url)
    lease = client.acquire("parent")
    time.sleep(1)  # a parent that is at rest: what another thread has locked while this one forks stays locked
    children = [fork.Process(target=in_child, args=(url, number, results)) for number in range(8)]
    for child in children:
        child.start()
    ended = sorted(results.get(timeout=120) for _ in children)
    for child in children:
        child.join()
    assert ended == [(number, "done") for number in range(8)]
    lease.check()


def test_many_threads_take_turns_and_each_token_is_greater(url):
    client, tokens = Client(url), []

    def take():
        for _ in range(50):
            with client.acquire("a") as lease:
                tokens.append(lease.token)

    threads = [threading.Thread(target=take) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tokens) == 800 and tokens == sorted(set(tokens))
    until(lambda: client.try_acquire("a"), "a free name")
