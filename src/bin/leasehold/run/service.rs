//! Notifies a service manager, if there is one (`NOTIFY_SOCKET`, as systemd sets it).
//!
//! It sends `READY=1` when the lease is held, `STATUS=` with name, token and state, `WATCHDOG=1` only while renewals
//! are confirmed in time, and `STOPPING=1` from when the job ends or is ended. So units that depend on the service
//! start under the lease, and a tool that cannot keep its lease is restarted. The watchdog is fed from the grant on,
//! which is also when systemd begins to watch a `Type=notify` service.
//!
//! A manager that does not read must not block the loop that has to end a job in time, so notifications go through a
//! [mailbox](crate::mailbox).

use std::fmt::Display;
use std::time::Duration;

use sd_notify::NotifyState;

use crate::mailbox::Mailbox;

/// Removed from the job's environment: a job that notified the manager itself would report a lease that it knows
/// nothing about.
pub const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// A few seconds of notifications; it fills up only if the manager does not read.
const QUEUE: usize = 16;

/// The least pause between two feedings of the watchdog, whatever the manager asks for.
const LEAST_PAUSE: Duration = Duration::from_millis(1);

/// The longest time that the last notification may take.
const FLUSH: Duration = Duration::from_secs(1);

/// The connection to the service manager, if there is one.
#[derive(Debug)]
pub struct Service {
    mailbox: Option<Mailbox<String>>,
    feed_every: Option<Duration>,
}

impl Service {
    /// Starts the notifications, if there is a service manager.
    pub fn start() -> Self {
        // The error is ignored: a manager that has stopped needs no news.
        let notify = |text: String| drop(sd_notify::notify(&[NotifyState::Custom(&text)]));
        let mailbox = std::env::var_os(VARIABLES[0])
            .and_then(|_| Mailbox::start("service", QUEUE, notify).ok());
        // Half of the time, as the manager itself recommends.
        let feed_every = sd_notify::watchdog_enabled()
            .filter(|_| mailbox.is_some())
            .map(|limit| (limit / 2).max(LEAST_PAUSE));
        Self {
            mailbox,
            feed_every,
        }
    }

    /// Returns how often the watchdog must be fed, if there is one.
    pub const fn feed_every(&self) -> Option<Duration> {
        self.feed_every
    }

    /// Reports that the lease is held.
    pub fn ready(&self) {
        self.tell("READY=1");
    }

    /// Sets the status text that the manager shows.
    pub fn status(&self, text: impl Display) {
        self.tell(format!("STATUS={text}"));
    }

    /// Reports that renewals are confirmed in time.
    pub fn feed(&self) {
        self.tell("WATCHDOG=1");
    }

    /// Reports that the job is ending.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// Waits up to a second until the manager has taken the last notification.
    pub fn end(self) {
        if let Some(mailbox) = self.mailbox {
            mailbox.flush(FLUSH);
        }
    }

    fn tell(&self, text: impl Into<String>) {
        if let Some(mailbox) = &self.mailbox {
            mailbox.send(text.into());
        }
    }
}
