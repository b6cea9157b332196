"""The client for asyncio: ``async with client.acquire("nightly") as lease: ...``.

Nothing here blocks the event loop, and no thread of an executor waits: the library's own thread does, and tells the
loop. A task that is cancelled while it waits leaves nothing behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator, Iterable
from datetime import datetime
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Generic,
    List,
    Optional,
    Type,
    TypeVar,
    Union,
)

from . import _leasehold
from ._client import Handle
from ._lease import Held, Leases
from ._options import Options, all_names, fire_time
from .errors import Lost

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Acquisition", "Client", "Fire", "Lease", "LeaseSet"]

_T = TypeVar("_T")
_Self = TypeVar("_Self")
_Done = Callable[[_leasehold.Call], None]


def _begin(begin: "Callable[[_Done], _leasehold.Call]", settle: _Done) -> _leasehold.Call:
    """Begins a call of the library, and has the loop settle it at its end."""
    loop = asyncio.get_running_loop()

    def done(call: _leasehold.Call) -> None:
        try:
            loop.call_soon_threadsafe(settle, call)
        except RuntimeError:
            pass  # the loop was closed

    return begin(done)


async def _ended(begin: "Callable[[_Done], _leasehold.Call]") -> Any:
    """Waits for the end of a call. A task that is cancelled ends it, and undoes what it has begun."""
    ended = asyncio.Event()
    call = _begin(begin, lambda _: ended.set())
    try:
        await ended.wait()
        return call.result()
    finally:
        call.cancel()


def _lost(leases: List[_leasehold.Lease]) -> "asyncio.Future[str]":
    lost: "asyncio.Future[str]" = asyncio.get_running_loop().create_future()

    def settle(call: _leasehold.Call) -> None:
        if not lost.done():
            lost.set_result(call.result())

    _begin(lambda done: _leasehold.call_when_lost(done, leases), settle)
    return lost


class Lease(Held):
    """A lease that is held, for asyncio. Leaving ``async with`` releases it."""

    def __init__(self, lease: _leasehold.Lease) -> None:
        super().__init__(lease)
        #: A future with the reason of the loss; ``released`` after a release. Await it by ``asyncio.shield`` or
        #: ``asyncio.wait``: a task that is cancelled while it awaits a future cancels this.
        self.lost: "asyncio.Future[str]" = _lost([lease])

    async def release(self) -> bool:
        """Releases the lease. Returns whether the store confirmed that it was held until now.

        A task that is cancelled meanwhile has released it all the same.
        """
        return bool(await _ended(lambda done: _leasehold.release(done, [self._lease])))

    async def __aenter__(self: _Self) -> _Self:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.release()


class Fire(Lease):
    """The right to run the job of one time of a schedule. Leaving ``async with`` notes that it is done, unless the work
    raises.
    """

    async def done(self) -> bool:
        """Notes that the job is done, and ends the lease. Returns whether the store confirmed it."""
        return bool(await _ended(lambda done: self._lease.done(done)))

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if kind is None:
            await self.done()
        else:
            await self.release()


class LeaseSet(Leases[Lease]):
    """Several leases that are held together, in the byte order of their names."""

    def __init__(self, leases: List[Lease]) -> None:
        super().__init__(leases)
        #: A future with the reason of the first loss of one of them.
        self.lost: "asyncio.Future[str]" = _lost(self._of_rust)

    async def release(self) -> bool:
        """Releases all at once. Returns whether the store confirmed that all were held until now."""
        return bool(await _ended(lambda done: _leasehold.release(done, self._of_rust)))

    async def __aenter__(self) -> "LeaseSet":
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.release()


_A = TypeVar("_A", bound=Union[Lease, LeaseSet])


class Acquisition(Generic[_A]):
    """What is awaited, or entered by ``async with``, to have a lease."""

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, _A]]) -> None:
        self._begin = begin
        self._held: Optional[_A] = None

    def __await__(self) -> Generator[Any, Any, _A]:
        return self._begin().__await__()

    async def __aenter__(self) -> _A:
        self._held = await self._begin()
        return self._held

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self._held is not None:
            await self._held.release()


class Client(Handle):
    """The client for asyncio. It takes what ``leasehold.Client`` takes, and raises what that raises."""

    def acquire(self, name: str, *, wait: Optional[float] = None, **options: "Unpack[Options]") -> "Acquisition[Lease]":
        """Acquires a name, as ``leasehold.Client.acquire`` does: await it, or enter it by ``async with``."""

        async def begin() -> Lease:
            return Lease(await _ended(lambda done: self._client.acquire(done, name, wait, {**options})))

        return Acquisition(begin)

    async def try_acquire(self, name: str, **options: "Unpack[Options]") -> Optional[Lease]:
        """Acquires a name if it is free, and returns ``None`` if another holder has it."""
        lease = await _ended(lambda done: self._client.try_acquire(done, name, {**options}))
        return None if lease is None else Lease(lease)

    def acquire_all(self, names: Iterable[str], *, wait: Optional[float] = None) -> "Acquisition[LeaseSet]":
        """Acquires all of these names or none, as ``leasehold.Client.acquire_all`` does."""
        wanted = all_names(names)

        async def begin() -> LeaseSet:
            leases = await _ended(lambda done: self._client.acquire_all(done, wanted, wait))
            return LeaseSet([Lease(lease) for lease in leases])

        return Acquisition(begin)

    async def once(self, name: str, at: Union[datetime, float], **options: "Unpack[Options]") -> Optional[Fire]:
        """Waits for the right to run the job of one time of its schedule, as ``leasehold.Client.once`` does."""
        since = fire_time(at)
        fire = await _ended(lambda done: self._client.once(done, name, since, {**options}))
        return None if fire is None else Fire(fire)

    async def lead(self, name: str, work: Callable[[Lease], Awaitable[_T]], **options: "Unpack[Options]") -> _T:
        """Runs ``work(lease)`` whenever this client is the leader, until it returns, and returns what it returns.

        When the lease is lost, ``work`` is cancelled, and this client is a candidate again. Otherwise as
        ``leasehold.Client.lead``.
        """
        options.setdefault("on_outage", "wait")
        while True:
            async with self.acquire(name, **options) as lease:
                working = asyncio.ensure_future(work(lease))
                ends: "set[asyncio.Future[Any]]" = {working, lease.lost}
                try:
                    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if working.cancel():
                        await asyncio.wait({working})
                if not (working.cancelled() and lease.lost.done()):
                    try:
                        return working.result()
                    except Lost:
                        if not lease.lost.done():
                            raise

    async def close(self) -> None:
        """Releases the leases of this client, and closes its connections. Takes at most 5 s."""
        await _ended(self._client.close)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.close()
