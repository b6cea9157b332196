"""Real stores: a file for each test, and servers on unix sockets, which end with the session."""

import glob
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest


# What a server or another process gets at most to do what it does at once.
SOON = 20


@pytest.fixture
def url(tmp_path):
    return f"sqlite:{tmp_path}/leases.sqlite"


@pytest.fixture
def python(tmp_path):
    """Starts scripts in processes of their own, which end with the test."""
    started = []

    def start(script, *arguments):
        process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def until(holds, what):
    """Waits until this holds."""
    end = time.monotonic() + SOON
    while not holds():
        assert time.monotonic() < end, f"not within {SOON} s: {what}"
        time.sleep(0.01)


class Server:
    """A server in a folder of its own."""

    def __init__(self, command, folder, user=None):
        self.folder = folder
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder, user=user
        )

    def send(self, signal_number):
        self.process.send_signal(signal_number)

    def end(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def program(name):
    found = shutil.which(name)
    assert found, f"there is no {name}: apt-get install {name}"
    return found


def start_redis():
    folder = tempfile.mkdtemp(prefix="leasehold-redis-")
    socket = f"{folder}/socket"
    command = [program("redis-server"), "--port", "0", "--unixsocket", socket, "--save", "", "--maxmemory-policy"]
    server = Server([*command, "noeviction"], folder)
    server.socket = socket
    server.url = f"redis+unix://{socket}"
    until(lambda: os.path.exists(socket), "the socket of Redis")
    return server


@pytest.fixture(scope="session")
def redis_server():
    server = start_redis()
    yield server
    server.end()


@pytest.fixture
def own_redis_server():
    """A server that the test may stop."""
    server = start_redis()
    yield server
    server.end()


@pytest.fixture(scope="session")
def postgres_server():
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    assert found, "there is no Postgres: apt-get install postgresql"
    folder = tempfile.mkdtemp(prefix="leasehold-postgres-")
    # The server refuses to run as root.
    user = None
    if os.getuid() == 0:
        user = "postgres"
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    data = f"{folder}/data"
    initdb = [f"{found[-1]}/initdb", "--no-sync", "--auth", "trust", "--username", "postgres", data]
    subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd=folder, user=user)
    command = [f"{found[-1]}/postgres", "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off"]
    server = Server(command, folder, user)
    server.conninfo = f"host={folder} dbname=postgres user=postgres"
    import psycopg

    def answers():
        try:
            psycopg.connect(server.conninfo).close()
        except psycopg.OperationalError:
            return False
        return True

    until(answers, "an answer of Postgres")
    yield server
    server.end()


@pytest.fixture
def examples():
    return pathlib.Path(__file__).parents[3] / "examples" / "python"
