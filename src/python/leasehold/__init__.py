"""Distributed leases: renewed for you, told in time, and fenced at the storage.

A lease gives a process exclusive use of a name for a limited time. It is renewed in the background, at a third of its
ttl, by a thread that needs no GIL. ``lease.check()`` begins to fail *before* the lease can expire, whatever the network
or this process does, and ``lease.token`` rises with each grant, so that storage can refuse a holder that woke up late.

A lease alone is not mutual exclusion: a process can be paused between its last check and its write. Only storage that
compares tokens is safe; ``leasehold.fence`` has that half.

Times are in seconds. Errors are subclasses of ``LeaseholdError``, by what a caller should do.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Callable, Optional

from . import _leasehold
from ._leasehold import (
    Closed,
    Denied,
    Invalid,
    LeaseholdError,
    Lost,
    Misconfigured,
    Stale,
    TimedOut,
    Unavailable,
)

__all__ = [
    "Client",
    "Closed",
    "Denied",
    "Invalid",
    "Lease",
    "LeaseholdError",
    "Loss",
    "Lost",
    "Misconfigured",
    "Stale",
    "TimedOut",
    "Unavailable",
]

_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


@atexit.register
def _release_all() -> None:
    """Releases what is held when the interpreter ends."""
    for client in list(_clients):
        client.close()


class Loss:
    """The loss of a lease, as an event for threads."""

    def __init__(self, lease: "_leasehold.Lease") -> None:
        self._lease = lease

    def is_set(self) -> bool:
        """Returns whether the lease is no longer held."""
        return self.wait(0) is not None

    def wait(self, timeout: Optional[float] = None) -> Optional[str]:
        """Waits for the loss, for at most ``timeout`` seconds, and returns its reason, or ``None``.

        The reasons are ``refused``, ``evicted``, ``deadline``, ``max_hold``, ``no_progress``, ``shutdown``,
        ``watchdog_died``, and ``released`` after a release.
        """
        return self._lease.wait_lost(timeout)

    def add_callback(self, callback: Callable[[str], object]) -> None:
        """Calls ``callback(reason)`` once, in a thread of its own, when the lease is lost or released."""
        self._lease.on_lost(callback)


class Lease:
    """A lease that is held. As a context manager it is released at the end."""

    def __init__(self, lease: "_leasehold.Lease") -> None:
        self._lease = lease
        #: The loss, to wait for.
        self.lost = Loss(lease)

    @property
    def name(self) -> str:
        """The name that is leased."""
        return self._lease.name

    @property
    def token(self) -> int:
        """The fencing token. It is greater than that of every earlier grant of the name."""
        return self._lease.token

    @property
    def remaining(self) -> float:
        """Seconds until ``check`` begins to fail, unless the lease is renewed."""
        return self._lease.remaining

    @property
    def headers(self) -> "dict[str, str]":
        """The HTTP header ``Fencing-Token``, for services that compare it.

        Raises ``Lost`` if the lease is no longer held.
        """
        token, holder, name = self.fencing_pass
        from urllib.parse import quote

        return {"Fencing-Token": f"{token};holder={holder};name={quote(name, safe='-._~/:')}"}

    @property
    def fencing_pass(self) -> "tuple[int, str, str]":
        """Token, holder and name, as storage compares them.

        Raises ``Lost`` if the lease is no longer held.
        """
        return self._lease.pass_()

    def check(self) -> None:
        """Raises ``Lost`` unless the lease is held. Takes less than a microsecond and asks no server."""
        self._lease.check()

    def progress(self) -> None:
        """Reports that the work goes on, for a lease with ``progress_within``."""
        self._lease.progress()

    def release(self) -> bool:
        """Releases the lease. Returns whether the store confirmed that it was held until now."""
        return self._lease.release()

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<leasehold.Lease name={self.name!r} token={self.token}>"


class Client:
    """A client of the store at ``url``, such as ``sqlite:leases.sqlite``, ``redis://host`` or ``postgres://host/db``.

    It may be shared by threads. After a fork the child's calls fail with ``Closed``: it opens a client of its own. At the
    end of the interpreter the leases of all clients are released.

    Raises ``Invalid`` for a URL out of order.
    """

    def __init__(self, url: str, *, ttl: Optional[float] = None, label: Optional[str] = None) -> None:
        self._client = _leasehold.Client(url, ttl, label)
        self._pid = os.getpid()
        _clients.add(self)

    @property
    def location(self) -> str:
        """Where the leases are kept, without secrets."""
        return self._client.location

    def acquire(
        self,
        name: str,
        *,
        wait: Optional[float] = None,
        ttl: Optional[float] = None,
        label: Optional[str] = None,
        max_hold: Optional[float] = None,
        hold_at_least: Optional[float] = None,
        progress_within: Optional[float] = None,
        permits: Optional[int] = None,
        shared: bool = False,
        exclusive: bool = False,
    ) -> Lease:
        """Acquires a name, and waits while another holder has it, for at most ``wait`` seconds.

        ``ttl`` is the time for which the store keeps the lease without a renewal (30 s unless it is given), ``label`` a
        text that others see, ``max_hold`` the longest and ``hold_at_least`` the shortest time of the hold; with
        ``progress_within`` the lease is lost unless ``progress()`` is called that often. ``permits`` takes one of so many
        leases of the name; ``shared`` and ``exclusive`` take it as readers and writers do.

        Raises ``TimedOut`` if another holder still has it, ``Unavailable`` if the store cannot be reached. Ctrl-C ends the
        wait, and nothing is left behind.
        """
        wish = dict(
            ttl=ttl,
            label=label,
            max_hold=max_hold,
            hold_at_least=hold_at_least,
            progress_within=progress_within,
            permits=permits,
            shared=shared,
            exclusive=exclusive,
        )
        return Lease(self._client.acquire(name, wait, wish))

    def try_acquire(self, name: str, **wishes: object) -> Optional[Lease]:
        """Acquires a name if it is free, and returns ``None`` if another holder has it. Takes what ``acquire`` takes, but
        for ``wait``.
        """
        wish = dict.fromkeys(
            ["ttl", "label", "max_hold", "hold_at_least", "progress_within", "permits"]
        )
        wish.update(shared=False, exclusive=False)
        unknown = wishes.keys() - wish.keys()
        if unknown:
            raise TypeError(f"try_acquire() got unexpected arguments {sorted(unknown)}")
        wish.update(wishes)
        lease = self._client.try_acquire(name, wish)
        return None if lease is None else Lease(lease)

    def close(self) -> None:
        """Releases the leases of this client, and closes its connections."""
        if os.getpid() == self._pid:
            self._client.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
