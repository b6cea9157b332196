#!/usr/bin/env python3
"""Additions to a total in Postgres, of which none is lost though several processes add:

    DATABASE_URL=postgresql://localhost/app LEASEHOLD_STORE=redis://localhost ./fenced_postgres.py 10

The fence is raised in the same transaction as the write: a process that was paused for longer than its lease is
refused.
"""

import os
import sys
from typing import Any

import psycopg

import leasehold
from leasehold import fence


def prepare(connection: "psycopg.Connection[Any]") -> None:
    """Makes the tables, unless another process has."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(7)")
        connection.execute(fence.CREATE_POSTGRES)
        connection.execute("CREATE TABLE IF NOT EXISTS ledger (id INT PRIMARY KEY, total INT NOT NULL)")
        connection.execute("INSERT INTO ledger VALUES (1, 0) ON CONFLICT DO NOTHING")


def add(connection: "psycopg.Connection[Any]", lease: leasehold.Lease) -> int:
    """Adds 1 to the total, and returns it."""
    with connection.transaction(), connection.cursor() as cursor:
        fence.raise_postgres(cursor, "ledger", lease)  # the first statement of the transaction
        cursor.execute("SELECT total FROM ledger")
        (total,) = cursor.fetchone() or (0,)
        cursor.execute("UPDATE ledger SET total = %s", (total + 1,))
    return int(total) + 1


def main(times: int) -> None:
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        prepare(connection)
        with leasehold.Client(os.environ["LEASEHOLD_STORE"]) as client:
            for _ in range(times):
                with client.acquire("ledger") as lease:
                    print("total", add(connection, lease), "under token", lease.token, flush=True)


main(int(sys.argv[1]))
