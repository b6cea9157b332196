"""The library's log in `logging`."""

import logging
import threading

import pytest

from conftest import SOON, until
from leasehold import Client


class Kept(logging.Handler):
    """Keeps the records."""

    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)

    def of(self, text):
        return [record for record in self.records if text in record.getMessage()]


@pytest.fixture
def logger():
    logger = logging.getLogger("leasehold")
    logger.propagate = False
    # The level that the logger has when a client is opened counts.
    logger.setLevel(logging.DEBUG)
    yield logger
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


@pytest.fixture
def kept(logger):
    kept = Kept()
    logger.addHandler(kept)
    yield kept
    logger.removeHandler(kept)


def test_events_are_records_with_fields(url, kept):
    client = Client(url, ttl=1)
    lease = client.acquire("a", max_hold=0.3)
    assert lease.lost.wait(SOON) == "max_hold"
    until(lambda: kept.of("lease lost"), "the record of the loss")
    (lost,) = kept.of("lease lost")
    assert lost.name == "leasehold" and lost.levelno == logging.WARNING
    assert lost.leasehold["token"] == lease.token and lost.leasehold["reason"] == "max_hold"
    assert f"token={lease.token}" in lost.getMessage()
    (granted,) = kept.of("lease granted")
    assert granted.levelno == logging.DEBUG


def test_what_the_logger_does_not_want_is_not_queued(url, logger, kept):
    logger.setLevel(logging.ERROR)
    Client(url).acquire("a").release()
    # A level that is lowered counts for the next client, and its events come after those before.
    logger.setLevel(logging.DEBUG)
    Client(url).acquire("b").release()
    until(lambda: kept.of('name="b"'), "a record of b")
    assert kept.of('acquire begins name="b"') and not kept.of('acquire begins name="a"')


def test_a_handler_that_hangs_delays_no_renewal_and_what_was_dropped_is_counted(url, logger, kept):
    hangs, go_on = threading.Event(), threading.Event()

    class Hanging(logging.Handler):
        def emit(self, record):
            hangs.set()
            go_on.wait(SOON)

    handler = Hanging()
    logger.addHandler(handler)
    try:
        client = Client(url, ttl=1)
        lease = client.acquire("a")
        assert hangs.wait(SOON)
        # Each pair leaves some events.
        for _ in range(600):
            client.acquire("b").release()
        assert lease.lost.wait(1.5) is None
        lease.check()
    finally:
        go_on.set()
        logger.removeHandler(handler)
    until(lambda: kept.of("were dropped"), "the record of the dropped")
    dropped = kept.of("were dropped")[0]
    assert dropped.leasehold["dropped"] > 0 and dropped.levelno == logging.WARNING


def test_a_filter_that_raises_costs_one_record(url, logger, kept, capfd):
    class Raising(logging.Filter):
        def filter(self, record):
            raise ZeroDivisionError

    raising = Raising()
    logger.addFilter(raising)
    client = Client(url)
    client.acquire("a").release()
    until(lambda: "ZeroDivisionError" in capfd.readouterr().err, "the trace of the filter")
    logger.removeFilter(raising)
    client.acquire("b").release()
    until(lambda: kept.of('name="b"'), "a record of b")


def test_at_the_end_of_the_interpreter_the_last_events_are_written(url, python):
    script = """
import sys, logging, leasehold
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
client = leasehold.Client(sys.argv[1])
lease = client.acquire("a")
"""
    ended = python(script, url)
    stdout, stderr = ended.communicate(timeout=SOON)
    assert ended.returncode == 0, stderr
    assert 'WARNING:leasehold:lease lost name="a"' in stdout and 'reason="shutdown"' in stdout, stdout


def test_a_forked_child_logs_its_own_events(url, python):
    script = """
import logging, os, sys, leasehold
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format="%(process)d %(message)s")
client = leasehold.Client(sys.argv[1])
client.acquire("a").release()
child = os.fork()
if child == 0:
    leasehold.Client(sys.argv[1]).acquire("b").release()
    sys.exit()
os.waitpid(child, 0)
print("child", child)
"""
    ended = python(script, url)
    stdout, stderr = ended.communicate(timeout=SOON)
    lines = stdout.splitlines()
    child = next(line for line in lines if line.startswith("child ")).split()[1]
    of_child = [line for line in lines if line.startswith(f"{child} lease granted")]
    assert len(of_child) == 1 and 'name="b"' in of_child[0], stdout + stderr
    assert not any('name="a"' in line for line in lines if line.startswith(f"{child} "))
