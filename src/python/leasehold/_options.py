"""What all calls that acquire a name have in common: their keyword arguments, and how a time is read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import List, Literal, Optional, TypedDict, Union

from .errors import Invalid


class Options(TypedDict, total=False):
    """The keyword arguments of ``acquire``, ``try_acquire``, ``once`` and ``lead``. Times are in seconds."""

    #: For how long the store keeps the lease without a renewal: 1 to 86,400, and from 0.1 with a ``margin``.
    #: Default: that of the client, which is 30.
    ttl: Optional[float]
    #: How much earlier than the store this client counts the lease as over. Default: a fiftieth of the ttl and 0.02.
    margin: Optional[float]
    #: A text that others see beside the holder.
    label: Optional[str]
    #: After this time the lease is lost.
    max_hold: Optional[float]
    #: The name stays taken for at least this long, also after the release. For ``once``: how long it is remembered
    #: that the job is done, a week if it is not given.
    hold_at_least: Optional[float]
    #: The lease is lost unless ``progress()`` is called at least this often.
    progress_within: Optional[float]
    #: The token is greater than this one, for example the highest that storage has seen.
    min_token: Optional[int]
    #: What a call that waits does while the store cannot be reached. Default: ``"fail"``.
    on_outage: Optional[Literal["fail", "wait"]]
    #: Takes one of so many permits of the name, 1 to 256, instead of the name itself.
    permits: Optional[int]
    #: Takes a share of the name, as readers do: up to 64 at once, and none while one has it ``exclusive``.
    shared: bool
    #: The same, with a token that a fence can compare. Raise the fence once, before the first read.
    shared_fenced: bool
    #: Takes the name alone, where others share it.
    exclusive: bool


def fire_time(at: Union[datetime, float]) -> float:
    """Returns the time of a schedule in seconds since 1970."""
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise Invalid(f"at of {at} refused: expected a time zone, as in datetime.now(timezone.utc)")
        return at.timestamp()
    if isinstance(at, (int, float)):
        return at
    raise Invalid(f"at of {at!r} refused: expected a datetime with a time zone, or seconds since 1970")


def all_names(names: Iterable[str]) -> List[str]:
    """Returns the names of a set."""
    if isinstance(names, str):
        raise Invalid(f"names of {names!r} refused: expected several names, such as [{names!r}]")
    names = list(names)
    if not names:
        raise Invalid("names of [] refused: expected at least one name")
    return names
