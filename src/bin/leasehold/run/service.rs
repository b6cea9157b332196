//! Notifies a service manager, if there is one (`NOTIFY_SOCKET`, as systemd sets it).
//!
//! It sends `READY=1` when the lease is held, `STATUS=` with name, token and state, `WATCHDOG=1` only while renewals
//! are confirmed in time, and `STOPPING=1` from when the job ends or is ended. So units that depend on the service
//! start under the lease, and a tool that cannot keep its lease is restarted. The watchdog is fed from the grant on,
//! which is also when systemd begins to watch a `Type=notify` service.
//!
//! A manager that does not read must not block the loop that has to end a job in time, so a task sends the
//! notifications, on threads for what blocks.

use std::fmt::Display;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

/// Removed from the job's environment: a job that notified the manager itself would report a lease that it knows
/// nothing about.
pub const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// A few seconds of notifications; it fills up only if the manager does not read.
const QUEUE: usize = 16;

/// Minimum pause between two feedings of the watchdog, whatever the manager requests.
const LEAST_PAUSE: Duration = Duration::from_millis(1);

/// Time limit for the last notification.
const FLUSH: Duration = Duration::from_secs(1);

/// The connection to the service manager, if there is one.
#[derive(Debug)]
pub struct Service {
    notices: Option<(Sender<String>, JoinHandle<()>)>,
    /// How often the watchdog must be fed, if there is one.
    pub feed_every: Option<Duration>,
}

impl Service {
    /// Starts the notifications, if there is a service manager.
    pub fn start() -> Self {
        let notices = std::env::var_os(VARIABLES[0]).map(|_| {
            let (notices, queue) = channel(QUEUE);
            (notices, tokio::spawn(notify_on(queue)))
        });
        // Half of the time, as the manager itself recommends.
        let feed_every = sd_notify::watchdog_enabled()
            .filter(|_| notices.is_some())
            .map(|limit| (limit / 2).max(LEAST_PAUSE));
        Self {
            notices,
            feed_every,
        }
    }

    /// Sends a notification soon; drops it if there is no room.
    pub fn tell(&self, text: impl Into<String>) {
        if let Some((notices, _)) = &self.notices {
            let _ = notices.try_send(text.into());
        }
    }

    /// Sets the status text that the manager shows.
    pub fn status(&self, text: impl Display) {
        self.tell(format!("STATUS={text}"));
    }

    /// Waits up to a second until the manager has taken the last notification.
    pub async fn end(self) {
        if let Some((notices, task)) = self.notices {
            drop(notices);
            let _ = timeout(FLUSH, task).await;
        }
    }
}

async fn notify_on(mut queue: Receiver<String>) {
    while let Some(text) = queue.recv().await {
        // The error is ignored: a manager that has stopped needs no news.
        let _ = spawn_blocking(move || sd_notify::notify(&[NotifyState::Custom(&text)])).await;
    }
}
