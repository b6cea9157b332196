//! Wakes the guardian and the warden, which have one thread and no runtime: by a timer on the lease's own clock, an
//! ended child, or their channel to the tool.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use leasehold::clock::{Boottime, Clock, Instant, Monotonic};
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// The timer, and the descriptor that becomes readable when a child ends.
#[derive(Debug)]
pub struct Alarm {
    clock: Box<dyn Clock>,
    timer: OwnedFd,
    children: SignalFd,
}

/// Returns the clock of this name.
pub fn clock(name: &str) -> Box<dyn Clock> {
    match name {
        "CLOCK_MONOTONIC" => Box::new(Monotonic),
        _ => Box::new(Boottime),
    }
}

impl Alarm {
    /// Blocks all signals: a signal for the job reaches it through the tool, and this process outlives both. Call it
    /// after the child was started, which inherits the signals that were blocked for the tool.
    pub fn new(clock: Box<dyn Clock>) -> io::Result<Self> {
        let mask = SigSet::all();
        mask.thread_set_mask()?;
        let id = match clock.name() {
            "CLOCK_MONOTONIC" => TimerfdClockId::Monotonic,
            _ => TimerfdClockId::Boottime,
        };
        Ok(Self {
            clock,
            timer: timerfd_create(id, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?,
            children: SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?,
        })
    }

    /// Returns the time on the lease's clock.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Sleeps until a message comes, a child ends, or `until` has come.
    pub fn wait(&self, until: Instant, channel: Option<BorrowedFd<'_>>) {
        let once = Itimerspec {
            it_interval: Timespec::default(),
            // Zero would disarm it.
            it_value: timespec(Duration::from_nanos(until.as_nanos().max(1))),
        };
        let armed = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once);
        let mut fds = vec![
            PollFd::new(&self.timer, PollFlags::IN),
            PollFd::new(&self.children, PollFlags::IN),
        ];
        fds.extend(channel.map(|channel| PollFd::from_borrowed_fd(channel, PollFlags::IN)));
        // Without a timer it polls every 10 ms: coarse, but the job still ends in time.
        let coarse = timespec(Duration::from_millis(10));
        let _ = poll(&mut fds, armed.is_err().then_some(&coarse));
        while let Ok(Some(_)) = self.children.read_signal() {}
    }
}

fn timespec(time: Duration) -> Timespec {
    time.try_into().expect("the time of a clock fits")
}
