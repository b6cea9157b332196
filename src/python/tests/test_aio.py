"""Leases in asyncio: the loop goes on, and a cancelled task leaves nothing behind."""

import asyncio
import threading

import pytest

from conftest import SOON
from leasehold import Closed, Invalid, Lost, TimedOut, aio


def run(main):
    return asyncio.run(asyncio.wait_for(main, 2 * SOON))


def test_the_loop_goes_on_while_a_task_waits(url):
    async def main():
        async with aio.Client(url) as client, client.acquire("a") as lease:
            assert await client.try_acquire("a") is None
            waiting = asyncio.ensure_future(client.acquire("a", wait=SOON).__aenter__())
            ticks = 0
            for _ in range(20):
                await asyncio.sleep(0.01)
                ticks += 1
            assert ticks == 20 and not waiting.done()
            await lease.release()
            again = await waiting
            assert again.token > lease.token
            assert await again.release()

    run(main())


def test_a_task_that_is_cancelled_leaves_nothing(url):
    async def main():
        async with aio.Client(url) as client:
            lease = await client.acquire("a")
            waiting = [asyncio.ensure_future(client.acquire("a").__aenter__()) for _ in range(3)]
            await asyncio.sleep(0.2)
            # One at the very moment at which the name is freed.
            waiting[1].cancel()
            await lease.release()
            waiting[0].cancel()
            waiting[2].cancel()
            ended = await asyncio.gather(*waiting, return_exceptions=True)
            held = [lease for lease in ended if isinstance(lease, aio.Lease)]
            for lease in held:
                await lease.release()
            assert await client.acquire("a", wait=5)

    run(main())


def test_more_tasks_wait_than_an_executor_has_threads(url):
    async def main():
        async with aio.Client(url) as client:
            threads = threading.active_count()

            async def one():
                async with client.acquire("a", wait=SOON):
                    return threading.active_count() - threads

            counts = await asyncio.gather(*(one() for _ in range(100)))
            assert max(counts) <= 2

    run(main())


def test_a_loss_is_a_future(url):
    async def main():
        async with aio.Client(url, ttl=1) as client:
            async with client.acquire("a", max_hold=0.3) as lease:
                assert not lease.lost.done()
                assert await asyncio.wait_for(asyncio.shield(lease.lost), SOON) == "max_hold"
                with pytest.raises(Lost):
                    lease.check()
            async with client.acquire("a") as lease:
                pass
            assert await lease.lost == "released"

    run(main())


def test_errors_are_those_of_the_client_for_threads(url):
    async def main():
        client = aio.Client(url)
        async with client.acquire("a"):
            with pytest.raises(TimedOut):
                await client.acquire("a", wait=0.1)
        with pytest.raises(Invalid, match="ttl of -1 refused"):
            await client.acquire("a", ttl=-1)
        with pytest.raises(Invalid):
            await client.once("a", 0.5)
        await client.close()
        with pytest.raises(Closed):
            await client.try_acquire("a")

    run(main())


def test_sets_are_held_together(url):
    async def main():
        async with aio.Client(url) as client:
            async with client.acquire_all(["b", "a"]) as leases:
                assert [lease.name for lease in leases] == ["a", "b"]
                assert await client.try_acquire("a") is None
                leases.check()
            assert await leases.lost == "released"
            assert await client.try_acquire("a") is not None

    run(main())


def test_a_job_runs_once(url):
    async def main():
        async with aio.Client(url) as first, aio.Client(url) as second:
            fire = await first.once("report", 60)
            waiting = asyncio.ensure_future(second.once("report", 60))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            async with fire:
                pass
            assert await waiting is None
            with pytest.raises(ZeroDivisionError):
                async with await first.once("report", 120):
                    1 / 0
            fire = await second.once("report", 120)
            assert await fire.done()

    run(main())


def test_a_leaders_work_is_cancelled_at_the_loss_and_begins_again(url):
    async def main():
        async with aio.Client(url, ttl=1) as client:
            terms, cancelled = [], []

            async def work(lease):
                terms.append(lease.token)
                if len(terms) == 3:
                    return "done"
                try:
                    await asyncio.sleep(SOON)
                except asyncio.CancelledError:
                    cancelled.append(lease.token)
                    raise

            assert await client.lead("leader", work, max_hold=0.3) == "done"
            assert len(terms) == 3 and cancelled == terms[:2]

    run(main())


def test_a_leader_that_is_cancelled_ends_its_work_first(url):
    async def main():
        async with aio.Client(url) as client:
            works, ended = asyncio.Event(), []

            async def work(lease):
                works.set()
                try:
                    await asyncio.sleep(SOON)
                finally:
                    await asyncio.sleep(0.1)
                    lease.check()
                    ended.append(lease.token)

            leading = asyncio.ensure_future(client.lead("leader", work))
            await works.wait()
            leading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leading
            assert len(ended) == 1
            assert await client.acquire("leader", wait=5)

    run(main())


def test_a_loop_that_was_closed_is_not_told(url):
    client = aio.Client(url)
    leases = []

    async def acquire():
        leases.append(await client.acquire("a"))

    run(acquire())
    # Its future is of the first loop. The thread that tells of ends goes on.
    leases.clear()

    async def again():
        assert await client.acquire("a", wait=5)
        await client.close()

    run(again())
