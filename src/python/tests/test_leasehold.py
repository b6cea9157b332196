"""On real stores: two processes, a paused one, a fork, Ctrl-C, the end of the interpreter, threads and asyncio."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import pytest

import leasehold
from leasehold import Client, Closed, Invalid, Lost, Stale, TimedOut, aio, fence


@pytest.fixture
def url(tmp_path):
    return f"sqlite:{tmp_path}/leases.sqlite"


def python(script, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


HOLDER = """
import sys, leasehold
client = leasehold.Client(sys.argv[1], ttl=1)
lease = client.acquire("a")
print(lease.token, flush=True)
sys.stdin.readline()
try:
    lease.check()
    print("held")
except leasehold.Lost as lost:
    print("lost:", lost)
"""


def test_a_lease_is_held_renewed_and_released(url):
    with Client(url, ttl=1) as client:
        with client.acquire("a", label="report 7") as lease:
            assert client.try_acquire("a") is None
            time.sleep(1.5)
            lease.check()
            assert 0 < lease.remaining <= 1
            token = lease.token
        with pytest.raises(Lost):
            lease.check()
        assert client.acquire("a").token > token


def test_a_wait_ends_at_its_limit_and_says_who_has_the_name(url):
    client = Client(url)
    lease = client.acquire("a", label="the other")
    with pytest.raises(TimedOut, match="the other"):
        Client(url).acquire("a", wait=0.2)
    assert lease.release()
    assert not lease.release()


def test_bad_input_is_named(url):
    with pytest.raises(Invalid, match="unknown scheme"):
        Client("redsi://host")
    client = Client(url)
    for wishes in [dict(ttl=-1), dict(ttl=0.1), dict(permits=0), dict(shared=True, exclusive=True)]:
        with pytest.raises(Invalid):
            client.acquire("a", **wishes)
    with pytest.raises(Invalid):
        client.acquire("a\nb")
    with pytest.raises(TypeError):
        client.try_acquire("a", wait=1)


def test_two_processes_exclude_each_other_and_the_dead_ones_name_is_free_after_its_ttl(url):
    holder = python(HOLDER, url)
    token = int(holder.stdout.readline())
    client = Client(url)
    assert client.try_acquire("a") is None
    holder.kill()
    holder.wait()
    assert client.acquire("a", wait=10).token > token


def test_a_paused_holder_is_told_and_refused_by_the_fence(url, tmp_path):
    database = sqlite3.connect(tmp_path / "data.sqlite", isolation_level=None)
    database.execute(fence.CREATE_SQLITE)
    holder = python(HOLDER, url)
    holder.stdout.readline()
    holder.send_signal(signal.SIGSTOP)
    client = Client(url)
    with client.acquire("a", wait=10) as lease:
        cursor = database.cursor()
        cursor.execute("BEGIN IMMEDIATE")
        fence.raise_sqlite(cursor, "data", lease)
        database.commit()
        holder.send_signal(signal.SIGCONT)
        said, _ = holder.communicate("\n")
        assert said.startswith("lost:"), said
        # What a late holder would send.
        cursor.execute("BEGIN IMMEDIATE")
        stale = type("Late", (), {"fencing_pass": (1, "0" * 32 + "-" + "0" * 16, "a")})
        with pytest.raises(Stale):
            fence.raise_sqlite(cursor, "data", stale)
        database.rollback()


def test_other_threads_run_while_one_waits(url):
    client = Client(url)
    lease = client.acquire("a")
    acquired = threading.Event()
    waiting = threading.Thread(target=lambda: (client.acquire("a", wait=10), acquired.set()))
    waiting.start()
    counted = 0
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        counted += 1
    assert counted > 1000 and not acquired.is_set()
    lease.release()
    assert acquired.wait(10)
    waiting.join()


def test_a_loss_is_an_event(url):
    client = Client(url)
    lease = client.acquire("a", ttl=1, max_hold=0.4)
    assert lease.lost.wait(0) is None
    told = []
    heard = threading.Event()
    lease.lost.add_callback(lambda reason: (told.append(reason), heard.set()))
    assert lease.lost.wait(10) == "max_hold"
    assert heard.wait(10) and told == ["max_hold"]
    with pytest.raises(Lost):
        lease.check()


def test_ctrl_c_ends_a_wait_and_leaves_nothing(url):
    client = Client(url)
    lease = client.acquire("a")
    script = "import sys, leasehold; print('waits', flush=True); leasehold.Client(sys.argv[1]).acquire('a')"
    waiting = python(script, url)
    waiting.stdout.readline()
    time.sleep(0.5)
    waiting.send_signal(signal.SIGINT)
    waiting.communicate(timeout=10)
    assert waiting.returncode == -signal.SIGINT
    lease.release()
    assert client.acquire("a", wait=5)


def test_the_end_of_the_interpreter_releases(url):
    script = "import sys, leasehold; lease = leasehold.Client(sys.argv[1]).acquire('a', ttl=300)"
    assert python(script, url).wait(timeout=20) == 0
    assert Client(url).try_acquire("a") is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_refused_and_opens_its_own(url):
    client = Client(url)
    lease = client.acquire("a")
    child = os.fork()
    if child == 0:
        try:
            client.acquire("b", wait=1)
        except Closed:
            own = Client(url)
            os._exit(0 if own.try_acquire("a") is None and own.try_acquire("b") else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    lease.check()


def test_asyncio_goes_on_while_a_task_waits_and_a_cancelled_one_leaves_nothing(url):
    async def main():
        async with aio.Client(url) as client:
            async with client.acquire("a", ttl=1, max_hold=1.2) as lease:
                assert await client.try_acquire("a") is None
                waiting = asyncio.ensure_future(client.acquire("a")._acquire())
                ticks = 0
                for _ in range(20):
                    await asyncio.sleep(0.01)
                    ticks += 1
                assert ticks == 20 and not waiting.done()
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                assert await asyncio.wait_for(lease.lost, 10) == "max_hold"
            again = await client.acquire("a", wait=10)
            assert again.token > lease.token
            assert await again.release()

    asyncio.run(main())


def test_headers_have_the_pass(url):
    client = Client(url)
    with client.acquire("orders/eu") as lease:
        token, holder, name = lease.fencing_pass
        assert lease.headers == {"Fencing-Token": f"{token};holder={holder};name={name}"}
