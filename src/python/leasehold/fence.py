"""The storage's half: a step that refuses a stale holder, in the same transaction as the write.

Raise the fence as the *first* statement of a transaction: from then on every older holder is refused, and what is read
next stays true until it is written.

    with client.acquire("ledger") as lease, connection:
        connection.execute("BEGIN IMMEDIATE")
        fence.raise_sqlite(connection.cursor(), "ledger", lease)
        connection.execute("UPDATE ...")

All writers must use the fence, in any language: the table ``leasehold_fence`` and the key in Redis are those of the
library. A *resource* is what is guarded, such as a table or an account: 1 to 256 bytes without control characters and
braces. Each has one lease name.

Every call raises ``Stale`` if storage has seen a newer holder, ``Lost`` if the lease is over, ``Invalid`` for a
resource or a transaction out of order, ``Misconfigured`` if the row is damaged, and what the driver raises. Each
refusal also raises the least token of the client's next grant of that name above that of the storage.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Dict, List, Tuple, Type

from . import _leasehold
from ._lease import Held
from .errors import Denied, Invalid, LeaseholdError, Misconfigured, Unavailable

__all__ = [
    "CREATE_POSTGRES",
    "CREATE_SQLITE",
    "raise_postgres",
    "raise_postgres_async",
    "raise_redis",
    "raise_redis_async",
    "raise_sqlite",
    "write_redis",
    "write_redis_async",
]

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

_RAISE_SQLITE = """
    INSERT INTO leasehold_fence AS fence (resource, token, holder, name)
    VALUES (?, ?, ?, ?)
    ON CONFLICT (resource) DO UPDATE
    SET token = excluded.token, holder = excluded.holder
    WHERE fence.name = excluded.name
    AND (fence.token < excluded.token
        OR (fence.token = excluded.token AND fence.holder = excluded.holder))"""

_ROW_SQLITE = "SELECT token, holder, name FROM leasehold_fence WHERE resource = ?"

#: Fails unless it is the first statement of its transaction. Nobody waits longer for an older writer that is paused.
_PROLOGUE_POSTGRES = "SET TRANSACTION NOT DEFERRABLE; SET LOCAL lock_timeout = 2000"

#: A refused raise fails, so that its transaction can only roll back. The setting that it reads does not exist.
_RAISE_POSTGRES = """
    INSERT INTO leasehold_fence AS fence (resource, token, holder, name)
    VALUES (%s, %s, %s, %s)
    ON CONFLICT (resource) DO UPDATE
    SET holder = excluded.holder, token = CASE
        WHEN fence.name = excluded.name
        AND (fence.token < excluded.token OR (fence.token = excluded.token AND fence.holder = excluded.holder))
        THEN excluded.token
        ELSE pg_catalog.length(pg_catalog.current_setting(pg_catalog.concat('leasehold.refused_by ',
            pg_catalog.json_build_object('token', fence.token, 'holder', fence.holder, 'name', fence.name))))
    END"""
_REFUSED_BY = "leasehold.refused_by "


def raise_sqlite(cursor: Any, resource: str, lease: Held) -> None:
    """Raises the fence of ``resource`` in the open transaction of a ``sqlite3`` cursor, best an ``IMMEDIATE`` one.

    The data and the fence are in one file, apart from that of the leases. ``with connection:`` rolls back what is
    refused.
    """
    _leasehold.fence_key(resource)
    shown = lease.fencing_pass
    cursor.execute(_RAISE_SQLITE, (resource, *shown))
    if cursor.rowcount != 1:
        row = cursor.execute(_ROW_SQLITE, (resource,)).fetchone()
        raise _leasehold.refused(lease._lease, resource, shown, row)
    if not cursor.connection.in_transaction:
        raise _no_transaction(resource)


def raise_postgres(cursor: Any, resource: str, lease: Held) -> None:
    """Raises the fence of ``resource``, as the first statement of a transaction of a ``psycopg`` cursor.

    A connection in autocommit needs ``with connection.transaction():``. It waits for at most 2 s for an older writer
    whose transaction is open: then the driver raises its ``LockNotAvailable``; try again. The lock timeout stays for
    the rest of the transaction.
    """
    _leasehold.fence_key(resource)
    shown = lease.fencing_pass
    try:
        cursor.execute(_PROLOGUE_POSTGRES)
        cursor.execute(_RAISE_POSTGRES, (resource, *shown))
    except Exception as error:
        _raise_refusal(error, lease, resource, shown)
        raise
    _check_transaction(cursor, resource)


async def raise_postgres_async(cursor: Any, resource: str, lease: Held) -> None:
    """Raises the fence as ``raise_postgres`` does, with a cursor of ``psycopg.AsyncConnection``."""
    _leasehold.fence_key(resource)
    shown = lease.fencing_pass
    try:
        await cursor.execute(_PROLOGUE_POSTGRES)
        await cursor.execute(_RAISE_POSTGRES, (resource, *shown))
    except Exception as error:
        _raise_refusal(error, lease, resource, shown)
        raise
    _check_transaction(cursor, resource)


def write_redis(redis: Any, resource: str, lease: Held, *commands: Sequence[Any]) -> List[Any]:
    """Carries out these commands in one step if the fence of ``resource`` admits the lease, and raises the fence to it.
    Returns their replies.

        fence.write_redis(redis, "ledger", lease, ("SET", "total:{ledger}", 7), ("INCR", "writes:{ledger}"))

    ``redis`` is a client of redis-py, or of valkey-py. In a cluster the keys must be in the slot of the fence: write
    the resource in braces into each of them. Nothing is rolled back: if the server refuses the second command, the
    first one stays, and ``Invalid`` names the second.
    """
    keys, arguments, shown = _script_call(resource, lease, commands)
    replies = redis.register_script(_leasehold.fence_script())(keys=keys, args=arguments)
    return _replies(replies, lease, resource, shown)


async def write_redis_async(redis: Any, resource: str, lease: Held, *commands: Sequence[Any]) -> List[Any]:
    """Carries out commands as ``write_redis`` does, with a client of ``redis.asyncio``."""
    keys, arguments, shown = _script_call(resource, lease, commands)
    replies = await redis.register_script(_leasehold.fence_script())(keys=keys, args=arguments)
    return _replies(replies, lease, resource, shown)


def raise_redis(redis: Any, resource: str, lease: Held) -> None:
    """Raises the fence of ``resource``: from then on no older holder can write. Call it before the first read."""
    write_redis(redis, resource, lease)


async def raise_redis_async(redis: Any, resource: str, lease: Held) -> None:
    """Raises the fence as ``raise_redis`` does, with a client of ``redis.asyncio``."""
    await write_redis_async(redis, resource, lease)


_Pass = Tuple[int, str, str]

#: The codes of Redis whose meaning does not depend on the command.
_KINDS: Dict[str, Type[LeaseholdError]] = {
    "OOM": Unavailable,
    "MISCONF": Unavailable,
    "READONLY": Unavailable,
    "NOREPLICAS": Unavailable,
    "NOPERM": Denied,
    "NOAUTH": Denied,
}

#: The greatest number of words in one command: Lua passes them on its stack.
_MAX_WORDS = 4_000


def _no_transaction(resource: str) -> Invalid:
    return Invalid(
        f"raise refused: no transaction is open, so the fence guards no write resource={resource!r}; expected BEGIN first"
    )


def _raise_refusal(error: Exception, lease: Held, resource: str, shown: _Pass) -> None:
    """Raises what a refusal by Postgres means, if this is one."""
    _, found, row = str(error).partition(_REFUSED_BY)
    if found:
        stored, _ = json.JSONDecoder().raw_decode(row)
        pass_ = (stored["token"], stored["holder"], stored["name"])
        raise _leasehold.refused(lease._lease, resource, shown, pass_) from error


def _check_transaction(cursor: Any, resource: str) -> None:
    # 2 is libpq's PQTRANS_INTRANS. A driver that does not tell is believed.
    info = getattr(cursor.connection, "info", None)
    if getattr(info, "transaction_status", 2) != 2:
        raise _no_transaction(resource)


def _script_call(resource: str, lease: Held, commands: Sequence[Sequence[Any]]) -> Tuple[List[str], List[Any], _Pass]:
    keys = [_leasehold.fence_key(resource)]
    shown = lease.fencing_pass
    arguments: List[Any] = [*shown]
    for command in commands:
        if isinstance(command, (str, bytes)) or not 1 <= len(command) <= _MAX_WORDS:
            raise Invalid(
                f"write refused: a command is a sequence of 1 to {_MAX_WORDS} words, such as ('SET', 'key', 7)"
                f" resource={resource!r}"
            )
        arguments += [len(command), *command]
    return keys, arguments, shown


def _replies(replies: List[Any], lease: Held, resource: str, shown: _Pass) -> List[Any]:
    """Reads the reply of the script, whose head lists the kinds."""
    kind, facts = _text(replies[0]), replies[1:]
    if kind == "done":
        return facts
    if kind == "refused":
        token, holder, name = map(_text, facts)
        raise _leasehold.refused(lease._lease, resource, shown, (int(token), holder, name))
    if kind == "failed":
        raise _command_failed(resource, facts[0], _text(facts[1]))
    raise Misconfigured(f"write failed: the fence is damaged resource={resource!r}: {kind}: {_text(facts[0])}")


def _command_failed(resource: str, index: int, message: str) -> LeaseholdError:
    # Redis 6.2 first names the line of the script, then its code after a dash.
    words = message.split()
    code = next((word[1:] for word in words if word.startswith("-")), words[0] if words else "")
    what = "the server refused a command, those before it were carried out"
    kind = _KINDS.get(code, Invalid)
    if "executing the script can't" in message:
        kind = Denied
    return kind(f"write failed: {what} resource={resource!r} command={index}: {message}")


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
