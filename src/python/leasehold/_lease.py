"""Held leases: alone, in a set, or the right to run the job of one time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Callable, List, Optional, Type, TypeVar, Union, overload
from urllib.parse import quote

from . import _leasehold

_L = TypeVar("_L", bound="Held")
_Self = TypeVar("_Self")


class Loss:
    """The loss of a lease, as an event for threads. A release is such an end, too, with the reason ``released``."""

    def __init__(self, leases: List[_leasehold.Lease]) -> None:
        self._leases = leases

    def is_set(self) -> bool:
        """Returns whether the lease is no longer held."""
        return self.wait(0) is not None

    def wait(self, timeout: Optional[float] = None) -> Optional[str]:
        """Waits for the loss, for at most ``timeout`` seconds, and returns its reason, or ``None``.

        The reasons are ``refused``, ``evicted``, ``deadline``, ``max_hold``, ``no_progress``, ``shutdown``,
        ``watchdog_died``, and ``released`` after a release.

        Raises ``Invalid`` for a negative time, ``Closed`` in a forked child. Ctrl-C ends the wait.
        """
        return _leasehold.wait_lost(self._leases, timeout)

    def add_callback(self, callback: Callable[[str], object]) -> None:
        """Calls ``callback(reason)`` once, in a thread of its own, when the lease is lost or released."""

        def told(call: _leasehold.Call) -> None:
            try:
                threading.Thread(target=callback, args=[call.result()], name="leasehold-lost", daemon=True).start()
            except RuntimeError:
                pass  # the interpreter ends

        _leasehold.call_when_lost(told, self._leases)

    def __repr__(self) -> str:
        return f"<leasehold.Loss is_set={self.is_set()}>"


class Held:
    """What threads and asyncio have in common of a held lease. Nothing here waits."""

    def __init__(self, lease: _leasehold.Lease) -> None:
        self._lease = lease

    @property
    def name(self) -> str:
        """The name that is leased; of a permit or a share it is ``name#1`` and so on, of a fire ``name@seconds``."""
        return self._lease.name

    @property
    def token(self) -> int:
        """The fencing token. It is greater than that of every earlier grant of the name."""
        return self._lease.token

    @property
    def holder(self) -> str:
        """The identity of the claim that was granted."""
        return self._lease.holder

    @property
    def permit(self) -> Optional[int]:
        """The number of the permit or share, from 1 on. No two holders of a pool have the same one at once."""
        return self._lease.permit

    @property
    def remaining(self) -> float:
        """Seconds until ``check`` begins to fail, unless the lease is renewed; 0 once it is over."""
        return self._lease.remaining

    @property
    def fencing_pass(self) -> "tuple[int, str, str]":
        """Token, holder and name, as storage compares them.

        Raises ``Lost`` if the lease is no longer held, ``Closed`` in a forked child.
        """
        return self._lease.show()

    @property
    def headers(self) -> "dict[str, str]":
        """The HTTP header ``Fencing-Token``, for services that compare it.

        Raises ``Lost`` if the lease is no longer held, ``Closed`` in a forked child.
        """
        token, holder, name = self.fencing_pass
        return {"Fencing-Token": f"{token};holder={holder};name={quote(name, safe='-._~/:')}"}

    def check(self) -> None:
        """Raises ``Lost`` unless the lease is held. It asks no server, and takes less than a microsecond."""
        self._lease.check()

    def progress(self) -> None:
        """Reports that the work goes on, for a lease with ``progress_within``."""
        self._lease.progress()

    def __repr__(self) -> str:
        kind = type(self)
        return f"<{kind.__module__.split('._')[0]}.{kind.__name__} name={self.name!r} token={self.token}>"


class Lease(Held):
    """A lease that is held. As a context manager it is released at the end."""

    def __init__(self, lease: _leasehold.Lease) -> None:
        super().__init__(lease)
        #: The loss, to wait for.
        self.lost = Loss([lease])

    def release(self) -> bool:
        """Releases the lease. Returns whether the store confirmed that it was held until now.

        It takes at most a third of the ttl and 5 s. A lease that is dropped is released in the background.
        """
        return _leasehold.release(None, [self._lease])

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.release()


class Fire(Lease):
    """The right to run the job of one time of a schedule. As a context manager it is done at the end, unless the work
    raises: then another machine that waits gets the right to run it.
    """

    def done(self) -> bool:
        """Notes that the job is done, and ends the lease. Returns whether the store confirmed it.

        A fire whose lease was lost is not noted.
        """
        return self._lease.done(None)

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if kind is None:
            self.done()
        else:
            self.release()


class Leases(Sequence[_L]):
    """What threads and asyncio have in common of a set of leases: it is a sequence of them."""

    def __init__(self, leases: List[_L]) -> None:
        self._leases = leases

    def check(self) -> None:
        """Raises ``Lost``, with the name and the reason of the first that is lost, unless all are held."""
        for lease in self._leases:
            lease.check()

    @property
    def _of_rust(self) -> List[_leasehold.Lease]:
        return [lease._lease for lease in self._leases]

    @overload
    def __getitem__(self, index: int) -> _L: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[_L]: ...
    def __getitem__(self, index: Union[int, slice]) -> Union[_L, Sequence[_L]]:
        return self._leases[index]

    def __iter__(self) -> Iterator[_L]:
        return iter(self._leases)

    def __len__(self) -> int:
        return len(self._leases)

    def __repr__(self) -> str:
        kind = type(self)
        names = [lease.name for lease in self._leases]
        return f"<{kind.__module__.split('._')[0]}.{kind.__name__} names={names}>"


class LeaseSet(Leases[Lease]):
    """Several leases that are held together, in the byte order of their names. As a context manager they are released
    at the end.
    """

    def __init__(self, leases: List[Lease]) -> None:
        super().__init__(leases)
        #: The first loss of one of them, to wait for.
        self.lost = Loss(self._of_rust)

    def release(self) -> bool:
        """Releases all at once. Returns whether the store confirmed that all were held until now."""
        return _leasehold.release(None, self._of_rust)

    def __enter__(self) -> "LeaseSet":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.release()
