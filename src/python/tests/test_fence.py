"""A late holder is refused by the storage: SQLite, Postgres and Redis."""

import asyncio
import signal
import sqlite3

import psycopg
import pytest
import redis
import redis.asyncio

from conftest import SOON
from leasehold import Client, Denied, Invalid, Lost, Misconfigured, Stale, Unavailable, aio, fence

# A writer that reads, and is paused between its check and its write. With the fence it has raised it before it read.
WRITER = """
import sys, leasehold
from leasehold import fence

leases, target, data, is_fenced = sys.argv[1:5]
client = leasehold.Client(leases, ttl=1)
lease = client.acquire("ledger")
shown = lease.fencing_pass
leasehold.Lease.fencing_pass = property(lambda _: shown)
if target == "sqlite":
    import sqlite3
    connection = sqlite3.connect(data)
    guard, mark = fence.raise_sqlite, "?"
else:
    import psycopg
    connection = psycopg.connect(data)
    guard, mark = fence.raise_postgres, "%s"
cursor = connection.cursor()
if is_fenced == "yes":
    guard(cursor, "ledger", lease)
total = cursor.execute("SELECT total FROM ledger").fetchone()[0]
connection.commit()
print("read", flush=True)
sys.stdin.readline()  # the pause
try:
    if is_fenced == "yes":
        guard(cursor, "ledger", lease)
    cursor.execute(f"UPDATE ledger SET total = {mark}", (total + 1,))
    connection.commit()
    print("written")
except leasehold.Stale as stale:
    connection.commit()  # as one who does not heed it
    print("refused:", stale)
"""


@pytest.fixture
def sqlite_data(tmp_path):
    path = str(tmp_path / "data.sqlite")
    connection = sqlite3.connect(path)
    connection.execute(fence.CREATE_SQLITE)
    connection.execute("CREATE TABLE ledger (total INTEGER)")
    connection.execute("INSERT INTO ledger VALUES (0)")
    connection.commit()
    yield "sqlite", path, connection, fence.raise_sqlite
    connection.close()


@pytest.fixture
def postgres_data(postgres_server):
    with psycopg.connect(postgres_server.conninfo) as connection:
        connection.execute("DROP TABLE IF EXISTS ledger, leasehold_fence")
        connection.execute(fence.CREATE_POSTGRES)
        connection.execute("CREATE TABLE ledger (total INT)")
        connection.execute("INSERT INTO ledger VALUES (0)")
        connection.commit()
        yield "postgres", postgres_server.conninfo, connection, fence.raise_postgres


@pytest.fixture(params=["sqlite", "postgres"])
def data(request):
    return request.getfixturevalue(f"{request.param}_data")


@pytest.mark.parametrize("is_fenced", ["yes", "no"])
def test_a_paused_writer_is_refused_with_the_fence_and_loses_a_write_without(url, python, data, is_fenced):
    target, place, connection, guard = data
    writer = python(WRITER, url, target, place, is_fenced)
    assert writer.stdout.readline() == "read\n"
    writer.send_signal(signal.SIGSTOP)
    client = Client(url)
    with client.acquire("ledger", wait=SOON) as lease:
        cursor = connection.cursor()
        if is_fenced == "yes":
            guard(cursor, "ledger", lease)
        cursor.execute("UPDATE ledger SET total = total + 10")
        connection.commit()
        writer.send_signal(signal.SIGCONT)
        said, errors = writer.communicate("\n", timeout=SOON)
    total = connection.execute("SELECT total FROM ledger").fetchone()[0]
    connection.rollback()
    if is_fenced == "yes":
        assert said.startswith("refused:") and f"stored={lease.token}" in said, said + errors
        assert total == 10
    else:
        # The control: without the fence the ten are lost.
        assert (said, total) == ("written\n", 1), errors


def test_a_holder_whose_lease_is_over_sends_nothing(url, data):
    _, _, connection, guard = data
    lease = Client(url).acquire("ledger")
    lease.release()
    with pytest.raises(Lost):
        guard(connection.cursor(), "ledger", lease)
    assert connection.execute("SELECT count(*) FROM leasehold_fence").fetchone()[0] == 0
    connection.rollback()


def test_the_next_grant_is_above_what_storage_has_seen(url, data):
    _, _, connection, guard = data
    client = Client(url)
    lease = client.acquire("ledger")
    # As if the store of the leases had lost its last tokens.
    ahead = lease.token + 1_000_000_000
    insert = f"INSERT INTO leasehold_fence VALUES ('ledger', {ahead}, '{lease.holder}', 'ledger')"
    connection.execute(insert)
    connection.commit()
    with pytest.raises(Stale):
        guard(connection.cursor(), "ledger", lease)
    connection.rollback()
    lease.release()
    with client.acquire("ledger") as lease:
        assert lease.token > ahead
        guard(connection.cursor(), "ledger", lease)
        connection.commit()


def test_a_row_out_of_order_and_a_bad_resource_are_told(url, data):
    _, _, connection, guard = data
    client = Client(url)
    with client.acquire("ledger") as lease, client.acquire("other") as other:
        guard(connection.cursor(), "ledger", lease)
        connection.commit()
        with pytest.raises(Stale, match="another pass"):
            guard(connection.cursor(), "ledger", other)
        connection.rollback()
        with pytest.raises(Invalid, match="resource"):
            guard(connection.cursor(), "a{b}", lease)
        connection.execute("UPDATE leasehold_fence SET token = 9007199254740991")
        connection.commit()
        with pytest.raises(Misconfigured):
            guard(connection.cursor(), "ledger", lease)
        connection.rollback()


def test_a_raise_outside_of_a_transaction_is_refused(url, sqlite_data, postgres_data):
    lease = Client(url).acquire("ledger")
    _, path, _, _ = sqlite_data
    connection = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(Invalid, match="expected BEGIN"):
        fence.raise_sqlite(connection.cursor(), "ledger", lease)
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        fence.raise_sqlite(connection.cursor(), "ledger", lease)
    _, conninfo, _, _ = postgres_data
    with psycopg.connect(conninfo, autocommit=True) as connection:
        with pytest.raises(Invalid, match="expected BEGIN"):
            fence.raise_postgres(connection.cursor(), "ledger", lease)
        with connection.transaction():
            fence.raise_postgres(connection.cursor(), "ledger", lease)


def test_in_postgres_the_raise_comes_first_and_waits_for_no_paused_writer(url, postgres_data):
    _, conninfo, connection, guard = postgres_data
    with Client(url).acquire("ledger") as lease:
        connection.execute("SELECT 1")
        with pytest.raises(psycopg.errors.ActiveSqlTransaction):
            guard(connection.cursor(), "ledger", lease)
        connection.rollback()
        guard(connection.cursor(), "ledger", lease)
        with psycopg.connect(conninfo) as other, pytest.raises(psycopg.errors.LockNotAvailable):
            guard(other.cursor(), "ledger", lease)
        connection.commit()


def test_in_asyncio_the_fence_of_postgres_refuses_as_well(url, postgres_data):
    _, conninfo, _, _ = postgres_data

    async def main():
        async with aio.Client(url) as client, await psycopg.AsyncConnection.connect(conninfo) as connection:
            async with client.acquire("ledger") as lease, connection.cursor() as cursor:
                await fence.raise_postgres_async(cursor, "ledger", lease)
                await connection.commit()
                await cursor.execute("UPDATE leasehold_fence SET token = token + 1")
                await connection.commit()
                with pytest.raises(Stale):
                    await fence.raise_postgres_async(cursor, "ledger", lease)
                await connection.rollback()

    asyncio.run(main())


@pytest.fixture(params=[False, True], ids=["bytes", "texts"])
def server(request, redis_server):
    client = redis.Redis(unix_socket_path=redis_server.socket, decode_responses=request.param)
    client.flushall()
    yield client
    client.close()


def test_redis_writes_in_one_step_and_refuses_a_late_holder(url, server):
    client = Client(url)
    first = client.acquire("ledger")
    fence.raise_redis(server, "ledger", first)
    replies = fence.write_redis(server, "ledger", first, ("SET", "total:{ledger}", 7), ("INCR", "writes:{ledger}"))
    assert replies[1] == 1 and int(server.get("total:{ledger}")) == 7
    late = type("Late", (), {"fencing_pass": first.fencing_pass, "_lease": first._lease})
    first.release()
    with client.acquire("ledger") as second:
        fence.raise_redis(server, "ledger", second)
        with pytest.raises(Stale, match=f"stored={second.token}"):
            fence.write_redis(server, "ledger", late, ("SET", "total:{ledger}", 8))
        assert int(server.get("total:{ledger}")) == 7
        # The script is sent again to a server that has lost it.
        server.script_flush()
        fence.write_redis(server, "ledger", second, ("SET", "total:{ledger}", 9))
        assert int(server.get("total:{ledger}")) == 9


def test_what_redis_refuses_is_told_with_the_number_of_the_command(url, server):
    with Client(url).acquire("ledger") as lease:
        commands = [("SET", "a:{ledger}", "text"), ("INCR", "a:{ledger}"), ("SET", "b:{ledger}", 1)]
        with pytest.raises(Invalid, match="command=2"):
            fence.write_redis(server, "ledger", lease, *commands)
        assert server.exists("a:{ledger}") and not server.exists("b:{ledger}")
        for wrong in ["SET a 1", ()]:
            with pytest.raises(Invalid, match="a sequence of 1 to 4000 words"):
                fence.write_redis(server, "ledger", lease, wrong)
        server.set("leasehold:fence:{other}", "text")
        with pytest.raises(Misconfigured, match="damaged"):
            fence.raise_redis(server, "other", lease)
        server.config_set("maxmemory", "1")
        try:
            with pytest.raises((Unavailable, redis.exceptions.ResponseError), match="memory"):
                fence.write_redis(server, "ledger", lease, ("SET", "c:{ledger}", 1))
        finally:
            server.config_set("maxmemory", "0")
        server.acl_setuser(
            "few", enabled=True, nopass=True, keys="*", commands=["+evalsha", "+eval", "+script", "+hmget"]
        )
        server.execute_command("AUTH", "few", "x")
        with pytest.raises((Denied, redis.exceptions.NoPermissionError)):
            fence.raise_redis(server, "ledger", lease)


def test_in_asyncio_the_fence_of_redis_refuses_as_well(url, redis_server):
    async def main():
        server = redis.asyncio.Redis(unix_socket_path=redis_server.socket)
        await server.flushall()
        async with aio.Client(url) as client, client.acquire("ledger") as lease:
            await fence.raise_redis_async(server, "ledger", lease)
            assert await fence.write_redis_async(server, "ledger", lease, ("INCR", "n:{ledger}")) == [1]
            await server.hset("leasehold:fence:{ledger}", "token", lease.token + 1)
            with pytest.raises(Stale):
                await fence.raise_redis_async(server, "ledger", lease)
        await server.aclose()

    asyncio.run(main())
