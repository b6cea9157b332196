"""The library's log in ``logging``: the logger ``leasehold``.

Any thread of the library leaves its events in a queue of 1,024, without the GIL; a thread of Python's gives them to the
logger. A handler that hangs delays no renewal: what finds the queue full is dropped, and the next record says how many.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import traceback
from typing import Optional

from . import _leasehold

logger = logging.getLogger("leasehold")

_reader: Optional[threading.Thread] = None
_starting = threading.Lock()


def follow() -> None:
    """Has the log followed from now on, at the level that the logger has now."""
    global _reader
    _leasehold.set_log_level(logger.getEffectiveLevel())
    with _starting:
        if _reader is None:
            _reader = threading.Thread(target=_read, name="leasehold-log", daemon=True)
            _reader.start()


def _read() -> None:
    while True:
        taken = _leasehold.take_events()
        if taken is None:
            return
        events, dropped = taken
        for level, text, fields in events:
            _log(level, text, fields)
        if dropped:
            _log(logging.WARNING, f"{dropped} events of the log were dropped", {"dropped": dropped})


def _log(level: int, text: str, fields: "dict[str, object]") -> None:
    try:
        logger.log(level, "%s", text, extra={"leasehold": fields})
    except Exception:  # of the user's filter; the next record is another one
        traceback.print_exc()


def _end() -> None:
    _leasehold.end_log()
    if _reader is not None:
        _reader.join(1)


def _forked() -> None:
    """In a child the thread does not run."""
    global _reader, _starting
    _leasehold.unlock_log(True)
    _reader, _starting = None, threading.Lock()


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_leasehold.lock_log,
        after_in_parent=lambda: _leasehold.unlock_log(False),
        after_in_child=_forked,
    )
