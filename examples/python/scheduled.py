#!/usr/bin/env python3
"""A job of APScheduler that runs once for each time of its schedule, on whichever of many workers is first:

    LEASEHOLD_STORE=redis://localhost ./scheduled.py

A run that raises, or whose worker dies, is run by another worker.
"""

import os
import sys
import time
from typing import Callable

from apscheduler.schedulers.blocking import BlockingScheduler  # type: ignore[import-untyped]

import leasehold

#: Seconds between two runs.
EVERY = 1

client = leasehold.Client(os.environ["LEASEHOLD_STORE"])


def once(name: str, every: int, job: Callable[[int, leasehold.Fire], None]) -> Callable[[], None]:
    """Returns the job for a scheduler that starts it at each multiple of ``every`` seconds, on every worker."""

    def run() -> None:
        # All workers name the same time. APScheduler does not tell a job its own, so it is the nearest one.
        at = round(time.time() / every) * every
        fire = client.once(name, at, hold_at_least=3600)
        if fire is not None:
            with fire:
                job(at, fire)

    return run


def report(at: int, fire: leasehold.Fire) -> None:
    print("the report of", at, "by", os.getpid(), "under token", fire.token, flush=True)


def main() -> None:
    scheduler = BlockingScheduler()
    scheduler.add_job(once("report", EVERY, report), "cron", second=f"*/{EVERY}", max_instances=2)
    if len(sys.argv) > 1:  # for so many seconds
        scheduler.add_job(lambda: scheduler.shutdown(wait=False), "interval", seconds=int(sys.argv[1]))
    scheduler.start()


main()
