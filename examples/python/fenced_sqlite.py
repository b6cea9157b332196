#!/usr/bin/env python3
"""Additions to a total in SQLite, of which none is lost though several processes add:

    ./fenced_sqlite.py leases.sqlite data.sqlite 10

The fence is raised in the same transaction as the write: a process that was paused for longer than its lease is
refused.
"""

import sqlite3
import sys

import leasehold
from leasehold import fence


def add(connection: sqlite3.Connection, lease: leasehold.Lease) -> int:
    """Adds 1 to the total, and returns it."""
    with connection:  # rolls back what is refused
        connection.execute("BEGIN IMMEDIATE")
        fence.raise_sqlite(connection.cursor(), "ledger", lease)  # before the first read
        (total,) = connection.execute("SELECT total FROM ledger").fetchone()
        connection.execute("UPDATE ledger SET total = ?", (total + 1,))
    return int(total) + 1


def main(leases: str, data: str, times: int) -> None:
    connection = sqlite3.connect(data, isolation_level=None)
    connection.execute(fence.CREATE_SQLITE)
    connection.execute("CREATE TABLE IF NOT EXISTS ledger (id INTEGER PRIMARY KEY, total INTEGER NOT NULL)")
    connection.execute("INSERT OR IGNORE INTO ledger VALUES (1, 0)")
    with leasehold.Client(f"sqlite:{leases}") as client:
        for _ in range(times):
            with client.acquire("ledger") as lease:
                print("total", add(connection, lease), "under token", lease.token, flush=True)


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
