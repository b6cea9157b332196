"""Distributed leases: renewed for you, told in time, and fenced at the storage.

A lease gives a process exclusive use of a name for a limited time. It is renewed in the background, at a third of its
ttl, by a thread that needs no GIL. ``lease.check()`` begins to fail *before* the lease can expire, whatever the network
or this process does, and ``lease.token`` rises with each grant, so that storage can refuse a holder that woke up late.

A lease alone is not mutual exclusion: a process can be paused between its last check and its write. Only storage that
compares tokens is safe; ``leasehold.fence`` has that half. ``leasehold.aio`` has the client for asyncio.

Times are in seconds. Errors are subclasses of ``LeaseholdError``, by what a caller should do.
"""

from ._client import Client
from ._lease import Fire, Lease, LeaseSet, Loss
from ._options import Options
from .errors import (
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
    "Fire",
    "Invalid",
    "Lease",
    "LeaseSet",
    "LeaseholdError",
    "Loss",
    "Lost",
    "Misconfigured",
    "Options",
    "Stale",
    "TimedOut",
    "Unavailable",
]
