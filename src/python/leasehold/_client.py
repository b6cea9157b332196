"""The client for threads."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Iterable
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Callable, Optional, Type, TypeVar, Union

from . import _leasehold, _log
from ._lease import Fire, Lease, LeaseSet
from ._options import Options, all_names, fire_time
from .errors import Lost

if TYPE_CHECKING:
    from typing_extensions import Unpack

_T = TypeVar("_T")

_open: "weakref.WeakSet[Handle]" = weakref.WeakSet()


class Handle:
    """What threads and asyncio have in common of a client."""

    def __init__(
        self,
        url: str,
        *,
        ttl: Optional[float] = None,
        margin: Optional[float] = None,
        label: Optional[str] = None,
    ) -> None:
        _log.follow()
        self._client = _leasehold.Client(url, ttl, margin, label)
        self._pid = os.getpid()
        _open.add(self)

    @property
    def location(self) -> str:
        """Where the leases are kept, without secrets."""
        return self._client.location

    def _close(self) -> None:
        # In a forked child nothing of it runs.
        if os.getpid() == self._pid:
            self._client.close(None)

    def __repr__(self) -> str:
        kind = type(self)
        return f"<{kind.__module__.split('._')[0]}.{kind.__name__} {self.location}>"


@atexit.register
def _release_all() -> None:
    """Releases what is held when the interpreter ends."""
    for client in list(_open):
        client._close()


class Client(Handle):
    """A client of the store at ``url``, such as ``sqlite:leases.sqlite``, ``redis://host`` or ``postgres://host/db``.

    ``ttl``, ``margin`` and ``label`` are those of its leases, unless a call has its own; ``Options`` has their units.

    It may be shared by threads. After a fork the child's calls raise ``Closed``: it opens a client of its own. At the
    end of the interpreter the leases of all clients are released. Its events are in the log of the logger
    ``leasehold``, from the level on that the logger has when a client is opened.

    Raises ``Invalid`` for a URL or a value out of order, ``Unavailable`` and ``Misconfigured`` for a file that cannot
    be opened. A server is first asked by the first call.
    """

    def acquire(self, name: str, *, wait: Optional[float] = None, **options: "Unpack[Options]") -> Lease:
        """Acquires a name, and waits while another holder has it, for at most ``wait`` seconds.

        The other keyword arguments are those of ``Options``. Ctrl-C ends the wait, and nothing is left behind.

        Raises ``TimedOut`` if another holder still has the name, ``Unavailable`` if the store cannot be reached,
        ``Invalid`` for a value out of order, ``Denied`` and ``Misconfigured`` from the store, ``Closed`` after
        ``close`` and in a forked child.
        """
        return Lease(self._client.acquire(None, name, wait, {**options}))

    def try_acquire(self, name: str, **options: "Unpack[Options]") -> Optional[Lease]:
        """Acquires a name if it is free, and returns ``None`` if another holder has it.

        Raises what ``acquire`` raises.
        """
        lease = self._client.try_acquire(None, name, {**options})
        return None if lease is None else Lease(lease)

    def acquire_all(self, names: Iterable[str], *, wait: Optional[float] = None) -> LeaseSet:
        """Acquires all of these names or none, within ``wait`` seconds, in byte order: callers that do so cannot
        deadlock. A name that is given twice is acquired once.

        Raises what ``acquire`` raises, and ``Lost`` if one was lost while it waited for the others.
        """
        leases = self._client.acquire_all(None, all_names(names), wait)
        return LeaseSet([Lease(lease) for lease in leases])

    def once(self, name: str, at: Union[datetime, float], **options: "Unpack[Options]") -> Optional[Fire]:
        """Waits for the right to run the job of this name for the time ``at`` of its schedule. Returns ``None`` once
        another client has done it.

            fire = client.once("report", datetime(2030, 1, 1, 2, tzinfo=timezone.utc))
            if fire is not None:
                with fire:
                    send_the_report()

        Give all machines the same time: that of the schedule, and not of their clocks. It is a ``datetime`` with a time
        zone, or seconds since 1970, and has no fraction of a second. A run that raises, or whose machine dies, is not
        done, and a client that waits gets the right to run it. That it is done is remembered for ``hold_at_least``
        seconds, a week unless it is given.

        Raises what ``acquire`` raises.
        """
        fire = self._client.once(None, name, fire_time(at), {**options})
        return None if fire is None else Fire(fire)

    def lead(self, name: str, work: Callable[[Lease], _T], **options: "Unpack[Options]") -> _T:
        """Calls ``work(lease)`` whenever this client is the leader, until it returns, and returns what it returns.

        When the lease is lost, ``work`` has to end: by ``lease.check()``, which raises ``Lost``, before each of its
        steps. Then this client is a candidate again. An outage of the store is waited out, unless ``on_outage`` is
        ``"fail"``. What ``work`` raises otherwise ends it.

        A leader that was paused may still believe that it leads: its writes go through ``leasehold.fence``.

        Raises what ``work`` and ``acquire`` raise.
        """
        options.setdefault("on_outage", "wait")
        while True:
            with self.acquire(name, **options) as lease:
                try:
                    return work(lease)
                except Lost:
                    if not lease.lost.is_set():
                        raise

    def close(self) -> None:
        """Releases the leases of this client, and closes its connections. Takes at most 5 s."""
        self._close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()
