"""The examples in `examples/python`, as users start them."""

import os
import pathlib
import re
import sqlite3
import subprocess
import sys

import psycopg

from conftest import SOON


def start(path, *arguments, **variables):
    return subprocess.Popen(
        [sys.executable, str(path), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    )


def lines(programs):
    said = [program.communicate(timeout=2 * SOON) for program in programs]
    assert all(program.returncode == 0 for program in programs), said
    return [line for stdout, _ in said for line in stdout.splitlines()]


def assert_none_lost(said, times):
    totals = [int(re.fullmatch(r"total (\d+) under token \d+", line)[1]) for line in said]
    assert sorted(totals) == list(range(1, times + 1)), said


def test_the_first_lines_of_the_page_work(tmp_path):
    page = (pathlib.Path(__file__).parents[1] / "README.md").read_text()
    lines_ = page.split("```python\n")[1].split("```")[0]
    assert len(lines_.strip().splitlines()) <= 8
    ended = subprocess.run([sys.executable, "-c", lines_], cwd=tmp_path, capture_output=True, text=True, timeout=SOON)
    assert ended.returncode == 0 and ended.stdout.count("working under token") == 10, ended


def test_a_job_of_apscheduler_runs_once_on_two_workers(url, examples):
    workers = [start(examples / "scheduled.py", 5, LEASEHOLD_STORE=url) for _ in range(2)]
    times = [re.match(r"the report of (\d+) by", line)[1] for line in lines(workers)]
    assert 3 <= len(times) <= 7 and len(set(times)) == len(times), times


def test_of_what_three_processes_add_in_sqlite_none_is_lost(tmp_path, examples):
    data = tmp_path / "data.sqlite"
    adding = [start(examples / "fenced_sqlite.py", tmp_path / "leases.sqlite", data, 10) for _ in range(3)]
    assert_none_lost(lines(adding), 30)
    connection = sqlite3.connect(data)
    assert connection.execute("SELECT total FROM ledger").fetchone() == (30,)
    connection.close()


def test_of_what_three_processes_add_in_postgres_none_is_lost(url, postgres_server, examples):
    with psycopg.connect(postgres_server.conninfo) as connection:
        connection.execute("DROP TABLE IF EXISTS ledger, leasehold_fence")
    variables = dict(LEASEHOLD_STORE=url, DATABASE_URL=postgres_server.conninfo)
    adding = [start(examples / "fenced_postgres.py", 10, **variables) for _ in range(3)]
    assert_none_lost(lines(adding), 30)
