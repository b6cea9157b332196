"""The exceptions, by what a caller should do."""

__all__ = [
    "Closed",
    "Denied",
    "Invalid",
    "LeaseholdError",
    "Lost",
    "Misconfigured",
    "Stale",
    "TimedOut",
    "Unavailable",
]


class LeaseholdError(Exception):
    """An error of this package."""


class Invalid(LeaseholdError, ValueError):
    """An argument or setting is outside its limits. Change the call."""


class Unavailable(LeaseholdError):
    """The store cannot be reached, or cannot answer now. Try again later."""


class TimedOut(LeaseholdError, TimeoutError):
    """The limit of the call ran out first, mostly because another holder has the name."""


class Denied(LeaseholdError):
    """Authentication failed, or the user lacks a permission. Fix the credentials."""


class Misconfigured(LeaseholdError):
    """The store answers but cannot do its work. Fix the store."""


class Lost(LeaseholdError):
    """The lease is no longer held. Stop the work."""


class Stale(LeaseholdError):
    """Storage has seen a newer token. Stop the work; never retry."""


class Closed(LeaseholdError):
    """The client was closed, or belongs to the parent of this forked process. Open a client."""
