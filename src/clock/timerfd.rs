//! A sleep on a timer of Linux, which goes by the clock of a lease and needs a file descriptor.

use std::io;
use std::os::fd::OwnedFd;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::Instant;

/// Sleeps until `at`. Fails at once if no timer can be had.
pub(super) async fn sleep_until(id: ClockId, at: Instant) -> io::Result<()> {
    let timer = timer(id, at)?;
    timer.readable().await.map(drop)
}

#[expect(
    deprecated,
    reason = "its successor is unsafe, for owners that could give back another descriptor; an OwnedFd cannot"
)]
fn timer(id: ClockId, at: Instant) -> io::Result<AsyncFd<OwnedFd>> {
    let id = match id {
        ClockId::Boottime => TimerfdClockId::Boottime,
        _ => TimerfdClockId::Monotonic,
    };
    let fd = timerfd_create(id, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    let nanos = at.as_nanos();
    let seconds = i64::try_from(nanos / 1_000_000_000).expect("2^64 ns are few seconds");
    let rest = i64::try_from(nanos % 1_000_000_000).expect("less than a second");
    let once = Itimerspec {
        it_interval: Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
        it_value: Timespec {
            tv_sec: seconds,
            tv_nsec: rest,
        },
    };
    timerfd_settime(&fd, TimerfdTimerFlags::ABSTIME, &once)?;
    AsyncFd::with_interest(fd, Interest::READABLE)
}
