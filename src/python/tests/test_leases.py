"""Leases in threads and processes."""

import os
import signal
import threading
import time
from datetime import datetime, timedelta, timezone

import pytest

import leasehold
from conftest import SOON
from leasehold import Client, Closed, Invalid, Lost, TimedOut, Unavailable

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
            assert lease.permit is None
            token = lease.token
        assert lease.remaining == 0
        with pytest.raises(Lost):
            lease.check()
        assert client.acquire("a").token > token


def test_a_wait_ends_at_its_limit_and_says_who_has_the_name(url):
    client = Client(url)
    lease = client.acquire("a", label="the other")
    with pytest.raises(TimedOut, match="the other") as raised:
        Client(url).acquire("a", wait=2)
    assert isinstance(raised.value, TimeoutError)
    assert lease.release()
    assert not lease.release()


@pytest.mark.parametrize(
    "options, said",
    [
        (dict(ttl=-1), "ttl of -1 refused: expected seconds"),
        (dict(ttl=float("nan")), "ttl of nan refused"),
        (dict(ttl="soon"), "ttl of 'soon' refused: expected seconds"),
        (dict(ttl=0.1), "expected"),
        (dict(wait=-1), "wait of -1 refused"),
        (dict(permits=0), "1 to 256"),
        (dict(permits=257), "1 to 256"),
        (dict(permits=70_000), "permits of 70000 refused: expected a whole number, 1 to 256"),
        (dict(permits=-1), "permits of -1 refused"),
        (dict(shared=True, exclusive=True), "shared and exclusive at once; expected one of them"),
        (dict(permits=2, shared=True), "permits and shared at once"),
        (dict(shared="yes"), "shared of 'yes' refused: expected True or False"),
        (dict(on_outage="panic"), "on_outage of 'panic' refused: expected 'fail' or 'wait'"),
        (dict(min_token=-5), "min_token of -5 refused: expected a token"),
        (dict(label=7), "label of 7 refused: expected a text"),
        (dict(max_hold=0), "a limit of 0s"),
    ],
)
def test_an_option_out_of_order_is_named_with_its_value(url, options, said):
    with pytest.raises(Invalid, match=said) as raised:
        Client(url).acquire("a", **options)
    assert isinstance(raised.value, ValueError)


def test_bad_input_is_named(url):
    with pytest.raises(Invalid, match="unknown scheme"):
        Client("redsi://host")
    with pytest.raises(Invalid) as raised:
        Client("redis://user:s3cr3t@host:port")
    assert "s3cr3t" not in str(raised.value)
    client = Client(url)
    with pytest.raises(Invalid):
        client.acquire("a\nb")
    for wrong in [dict(wait=1), dict(tll=1)]:
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            client.try_acquire("a", **wrong)
    with pytest.raises(Invalid, match=r"expected several names, such as \['a'\]"):
        client.acquire_all("a")
    with pytest.raises(Invalid, match="at least one"):
        client.acquire_all([])
    for at, said in [
        (datetime(2030, 1, 1), "expected a time zone"),
        ("today", "at of 'today' refused"),
        (0.5, "fraction"),
        (-1, "since 1970"),
        (float("inf"), "at of inf refused"),
    ]:
        with pytest.raises(Invalid, match=said):
            client.once("a", at)
    with pytest.raises(Invalid, match="one holder"):
        client.once("a", 0, permits=2)


def test_nothing_that_is_shown_has_a_secret():
    client = Client("redis://user:s3cr3t@localhost:1", ttl=1)
    assert repr(client) == "<leasehold.Client redis://localhost:1/0>"
    with pytest.raises(Unavailable) as raised:
        client.acquire("a")
    assert "s3cr3t" not in str(raised.value) and "s3cr3t" not in client.location


def test_what_is_held_is_told_by_its_repr(url):
    client = Client(url)
    lease = client.acquire("a")
    assert repr(lease) == f"<leasehold.Lease name='a' token={lease.token}>"
    assert repr(client.acquire_all(["b", "c"])) == "<leasehold.LeaseSet names=['b', 'c']>"
    assert repr(lease.lost) == "<leasehold.Loss is_set=False>"


def test_two_processes_exclude_each_other_and_the_dead_ones_name_is_free_after_its_ttl(url, python):
    holder = python(HOLDER, url)
    token = int(holder.stdout.readline())
    client = Client(url)
    assert client.try_acquire("a") is None
    holder.kill()
    holder.wait()
    assert client.acquire("a", wait=SOON).token > token


def test_other_threads_run_while_one_waits(url):
    client = Client(url)
    lease = client.acquire("a")
    acquired = threading.Event()
    waiting = threading.Thread(target=lambda: (client.acquire("a", wait=SOON), acquired.set()))
    waiting.start()
    counted = 0
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        counted += 1
    assert counted > 1000 and not acquired.is_set()
    lease.release()
    assert acquired.wait(SOON)
    waiting.join()


def test_a_loss_is_an_event(url):
    client = Client(url)
    lease = client.acquire("a", ttl=1, max_hold=0.4)
    assert lease.lost.wait(0) is None and not lease.lost.is_set()
    told = []
    heard = threading.Event()
    lease.lost.add_callback(lambda reason: (told.append(reason), heard.set()))
    assert lease.lost.wait(SOON) == "max_hold"
    assert heard.wait(SOON) and told == ["max_hold"]
    with pytest.raises(Lost):
        lease.check()
    with pytest.raises(Invalid, match="timeout of -1 refused"):
        lease.lost.wait(-1)


def test_without_progress_the_lease_is_lost(url):
    client = Client(url, ttl=1)
    lease = client.acquire("a", progress_within=0.5)
    for _ in range(4):
        time.sleep(0.2)
        lease.progress()
    lease.check()
    assert lease.lost.wait(SOON) == "no_progress"


def test_a_stopped_store_is_a_loss_at_the_deadline(own_redis_server):
    client = Client(own_redis_server.url, ttl=1)
    lease = client.acquire("a")
    own_redis_server.send(signal.SIGSTOP)
    began = time.monotonic()
    assert lease.lost.wait(SOON) == "deadline"
    assert time.monotonic() - began < 1.1
    with pytest.raises((Unavailable, TimedOut)):
        client.acquire("b", wait=0.3)


def test_a_wait_goes_on_while_the_store_is_down(own_redis_server):
    client = Client(own_redis_server.url, ttl=1)
    own_redis_server.send(signal.SIGSTOP)
    leases = []
    waiting = threading.Thread(target=lambda: leases.append(client.acquire("a", wait=SOON, on_outage="wait")))
    waiting.start()
    time.sleep(1)
    assert waiting.is_alive()
    own_redis_server.send(signal.SIGCONT)
    waiting.join()
    leases[0].check()


def test_ctrl_c_ends_a_wait_and_leaves_nothing(url, python):
    client = Client(url)
    lease = client.acquire("a")
    script = """
import signal, sys, leasehold
# A shell starts what is to run in the background with the signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
print("waits", flush=True)
leasehold.Client(sys.argv[1]).acquire("a")
"""
    waiting = python(script, url)
    waiting.stdout.readline()
    time.sleep(0.5)
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(SOON) == -signal.SIGINT
    lease.release()
    assert client.acquire("a", wait=5)


def test_the_end_of_the_interpreter_releases(url, python):
    script = """
import sys, threading, leasehold
client = leasehold.Client(sys.argv[1], ttl=300)
lease = client.acquire("a")
lease.lost.add_callback(print)
# A thread that still waits does not keep it from ending.
threading.Thread(target=client.acquire, args=["a"], daemon=True).start()
"""
    ended = python(script, url)
    _, stderr = ended.communicate(timeout=SOON)
    assert ended.returncode == 0 and "Fatal" not in stderr and "panic" not in stderr, stderr
    assert Client(url).try_acquire("a") is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_refused_and_opens_its_own(url):
    client = Client(url)
    lease = client.acquire("a")
    child = os.fork()
    if child == 0:
        refused = 0
        for call in [
            lambda: client.acquire("b", wait=1),
            lambda: lease.headers,
            lambda: lease.lost.wait(SOON),
            lambda: lease.lost.add_callback(print),
        ]:
            try:
                call()
            except Closed:
                refused += 1
        own = Client(url)
        os._exit(
            0 if refused == 4 and not lease.release() and own.try_acquire("a") is None and own.try_acquire("b") else 1
        )
    assert os.waitpid(child, 0)[1] == 0
    lease.check()


def test_of_two_permits_a_third_holder_gets_none(url):
    client = Client(url)
    first = client.acquire("gpu", permits=2)
    second = client.acquire("gpu", permits=2)
    assert {first.permit, second.permit} == {1, 2}
    assert client.try_acquire("gpu", permits=2) is None
    first.release()
    assert client.acquire("gpu", permits=2, wait=5).permit == first.permit


def test_readers_share_a_name_and_a_writer_has_it_alone(url):
    client = Client(url)
    first, second = client.acquire("config", shared=True), client.acquire("config", shared_fenced=True)
    assert client.try_acquire("config", exclusive=True) is None
    assert second.fencing_pass[2] == "config"
    first.release()
    second.release()
    with client.acquire("config", exclusive=True, wait=5) as writer:
        assert writer.name == "config"
        assert client.try_acquire("config", shared=True) is None


def test_all_names_are_held_or_none(url):
    client, other = Client(url), Client(url)
    with client.acquire_all({"b", "a", "c"}) as leases:
        assert [lease.name for lease in leases] == ["a", "b", "c"] and len(leases) == 3
        leases.check()
        assert other.try_acquire("b") is None
        assert leases.lost.wait(0) is None
        with pytest.raises(TimedOut):
            other.acquire_all(["0", "c"], wait=0.3)
        assert client.acquire("0", wait=5)
    assert leases.lost.wait(SOON) == "released"
    with pytest.raises(Lost):
        leases.check()
    taken = client.acquire_all(["a", "b"])
    assert taken[1].release()
    assert taken.lost.wait(SOON) == "released"
    assert not taken.release()


def test_a_job_runs_once_for_each_time_of_its_schedule(url):
    two_o_clock = datetime(2030, 1, 1, 2, tzinfo=timezone.utc)
    first, second = Client(url), Client(url)
    runs = []
    fire = first.once("report", two_o_clock)
    waiting = threading.Thread(target=lambda: runs.append(second.once("report", two_o_clock.timestamp())))
    waiting.start()
    with fire:
        assert fire.name == f"report@{int(two_o_clock.timestamp())}"
        time.sleep(0.2)
        assert waiting.is_alive()
    waiting.join()
    assert runs == [None]
    assert first.once("report", two_o_clock) is None
    assert first.once("report", two_o_clock + timedelta(hours=1)) is not None


def test_a_job_that_fails_is_run_by_the_next(url):
    first, second = Client(url), Client(url)
    with pytest.raises(ZeroDivisionError):
        with first.once("report", 60):
            1 / 0
    fire = second.once("report", 60)
    assert fire is not None and fire.done()
    assert first.once("report", 60) is None


def test_it_is_remembered_for_a_time_of_ones_own_that_a_job_is_done(url):
    client = Client(url)
    with client.once("report", 60, hold_at_least=0.5):
        pass
    assert client.once("report", 60) is None
    time.sleep(0.6)
    assert client.once("report", 60) is not None


def test_who_leads_works_and_leads_again_after_a_loss(url):
    client, other = Client(url, ttl=1), Client(url, ttl=1)
    terms = []

    def work(lease):
        terms.append(lease.token)
        assert other.try_acquire("leader") is None
        while len(terms) < 3:
            time.sleep(0.02)
            lease.check()
        return "done"

    assert client.lead("leader", work, max_hold=0.3) == "done"
    assert len(terms) == 3 and terms == sorted(set(terms))
    assert other.try_acquire("leader") is not None


def test_what_a_leaders_work_raises_ends_it(url):
    client = Client(url)

    def work(lease):
        raise Lost("of something else")

    with pytest.raises(Lost, match="of something else"):
        client.lead("leader", work)
    client.close()
    with pytest.raises(Closed):
        client.lead("leader", work)


def test_closing_a_client_releases_what_others_still_hold(url):
    client = Client(url)
    lease = client.acquire("a")
    began = time.monotonic()
    client.close()
    assert time.monotonic() - began < 2
    assert lease.lost.wait(0) == "shutdown" and not lease.release()
    assert Client(url).try_acquire("a") is not None


def test_a_token_is_above_a_given_one(url):
    client = Client(url)
    token = client.acquire("a").token + 1_000_000
    assert client.acquire("b", min_token=token).token > token


def test_headers_have_the_pass(url):
    client = Client(url)
    with client.acquire("orders/eu é") as lease:
        token, holder, name = lease.fencing_pass
        assert (token, holder, name) == (lease.token, lease.holder, "orders/eu é")
        expected = f"{token};holder={holder};name=orders/eu%20%C3%A9"
        assert lease.headers == {"Fencing-Token": expected}


def test_the_package_says_what_it_has():
    assert all(hasattr(leasehold, name) for name in leasehold.__all__)
