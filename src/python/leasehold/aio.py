"""The client for asyncio: ``async with client.acquire("nightly") as lease: ...``.

Calls that wait run in a thread; the event loop goes on. A task that is cancelled while it waits leaves nothing behind.
"""

from __future__ import annotations

import asyncio
from typing import Any, Generator, Optional

from . import Client as _Client
from . import Lease as _Lease

__all__ = ["Client", "Lease"]


class Lease:
    """A lease that is held, for asyncio. What it does not wait for is as in ``leasehold.Lease``."""

    def __init__(self, lease: _Lease) -> None:
        self._lease = lease
        loop = asyncio.get_running_loop()
        #: A future with the reason of the loss.
        self.lost: "asyncio.Future[str]" = loop.create_future()

        def told(reason: str) -> None:
            if not self.lost.done():
                self.lost.set_result(reason)

        def in_thread(reason: str) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(told, reason)

        lease.lost.add_callback(in_thread)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lease, name)

    async def release(self) -> bool:
        """Releases the lease. Returns whether the store confirmed that it was held until now."""
        return await asyncio.shield(asyncio.to_thread(self._lease.release))


class Acquisition:
    """What is awaited, or entered, to have a lease."""

    def __init__(self, begin: Any) -> None:
        self._begin = begin
        self._lease: Optional[Lease] = None

    async def _acquire(self) -> Optional[Lease]:
        call = asyncio.ensure_future(asyncio.to_thread(self._begin))
        try:
            lease = await asyncio.shield(call)
        except asyncio.CancelledError:
            call.add_done_callback(_let_go)
            raise
        return None if lease is None else Lease(lease)

    def __await__(self) -> Generator[Any, None, Optional[Lease]]:
        return self._acquire().__await__()

    async def __aenter__(self) -> Optional[Lease]:
        self._lease = await self._acquire()
        return self._lease

    async def __aexit__(self, *_: object) -> None:
        if self._lease is not None:
            await self._lease.release()


def _let_go(call: "asyncio.Future[Optional[_Lease]]") -> None:
    """Releases what was acquired for a task that is gone."""
    if not call.cancelled() and call.exception() is None:
        lease = call.result()
        if lease is not None:
            asyncio.get_running_loop().run_in_executor(None, lease.release)


class Client:
    """The client for asyncio. It takes what ``leasehold.Client`` takes."""

    def __init__(self, url: str, *, ttl: Optional[float] = None, label: Optional[str] = None) -> None:
        self._client = _Client(url, ttl=ttl, label=label)

    def acquire(self, name: str, **wishes: Any) -> Acquisition:
        """Acquires a name, as ``leasehold.Client.acquire`` does: await it, or enter it by ``async with``."""
        return Acquisition(lambda: self._client.acquire(name, **wishes))

    def try_acquire(self, name: str, **wishes: Any) -> Acquisition:
        """Acquires a name if it is free; the result is ``None`` if another holder has it."""
        return Acquisition(lambda: self._client.try_acquire(name, **wishes))

    async def close(self) -> None:
        """Releases the leases of this client, and closes its connections."""
        await asyncio.to_thread(self._client.close)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
