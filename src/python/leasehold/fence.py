"""The storage's half: a statement that refuses a stale holder, in the same transaction as the write.

Raise the fence as the *first* statement of a transaction: from then on every older holder is refused.

    with client.acquire("ledger") as lease:
        cursor.execute("BEGIN IMMEDIATE")
        fence.raise_sqlite(cursor, "ledger", lease)
        cursor.execute("UPDATE ...")
        connection.commit()

All writers must use the fence, in any language: the table ``leasehold_fence`` is that of the library.
"""

from __future__ import annotations

from typing import Any

from . import Lease, Stale

__all__ = ["CREATE_POSTGRES", "CREATE_SQLITE", "raise_postgres", "raise_sqlite"]

#: Makes the table in SQLite.
CREATE_SQLITE = """
    CREATE TABLE IF NOT EXISTS leasehold_fence (
        resource TEXT NOT NULL PRIMARY KEY,
        token INTEGER NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991),
        holder TEXT NOT NULL,
        name TEXT NOT NULL
    ) STRICT, WITHOUT ROWID"""

#: Makes the table in Postgres.
CREATE_POSTGRES = """
    CREATE TABLE IF NOT EXISTS leasehold_fence (
        resource TEXT PRIMARY KEY,
        token BIGINT NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991),
        holder TEXT NOT NULL,
        name TEXT NOT NULL
    )"""

_RAISE = """
    INSERT INTO leasehold_fence AS fence (resource, token, holder, name)
    VALUES ({mark}, {mark}, {mark}, {mark})
    ON CONFLICT (resource) DO UPDATE
    SET token = excluded.token, holder = excluded.holder
    WHERE fence.name = excluded.name
    AND (fence.token < excluded.token
        OR (fence.token = excluded.token AND fence.holder = excluded.holder))"""


def _raise(cursor: Any, mark: str, resource: str, lease: Lease) -> None:
    token, holder, name = lease.fencing_pass
    cursor.execute(_RAISE.format(mark=mark), (resource, token, holder, name))
    if cursor.rowcount != 1:
        raise Stale(
            f"write refused: a newer holder has raised the fence resource={resource} token={token} name={name}"
        )


def raise_sqlite(cursor: Any, resource: str, lease: Lease) -> None:
    """Raises the fence of ``resource`` in the open transaction of a ``sqlite3`` cursor, which should be ``IMMEDIATE``.

    Raises ``Stale`` if a newer holder was there, ``Lost`` if the lease is over. Roll the transaction back then.
    """
    _raise(cursor, "?", resource, lease)


def raise_postgres(cursor: Any, resource: str, lease: Lease) -> None:
    """Raises the fence of ``resource`` in the open transaction of a DB-API cursor with the style ``%s`` (psycopg).

    Raises ``Stale`` if a newer holder was there, ``Lost`` if the lease is over. Roll the transaction back then.
    """
    _raise(cursor, "%s", resource, lease)
