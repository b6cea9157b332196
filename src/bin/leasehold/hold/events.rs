//! The lines that `hold` prints for the program that started it, without ever waiting for their reader.
//!
//! Only the newest unprinted line of each kind is kept. So the backlog stays short however long the reader pauses, a
//! deadline is always the latest one, and neither `at_risk` nor `lost` is ever left out.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::clock::{Boottime, Clock, Instant, Term};
use leasehold::{Lease, LossReason};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::Serialize;

use crate::exit::Failure;
use crate::run::plan::Wanted;
use crate::span::milliseconds;
use crate::status_file;

/// Maximum time that `hold` waits at its end until its last line, perhaps the loss, is read. A program that computes,
/// or a busy machine, can take longer than the second that messages for people get.
const FLUSH: Duration = Duration::from_secs(5);

/// A line of `hold`, on standard output.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Event {
    /// Version of this format.
    version: u32,
    event: Kind,
    /// The name that was asked for, and once it is held that of its permit with `--permits` and `--shared`.
    name: String,
    /// The ttl of the lease: a `deadline_ms` further away than this was not read on the same clock.
    ttl_ms: u64,
    /// The fencing token; absent until the lease is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    /// The identity of the claim; absent until the lease is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    /// The number of the permit; absent without `--permits` and `--shared`, and until the lease is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    permit: Option<u16>,
    /// The last moment of the lease as far as it is confirmed, on the boot clock (`CLOCK_BOOTTIME`, the first number in
    /// `/proc/uptime`); absent unless the lease is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<u64>,
    /// The reason of a loss as a word, such as `refused`, `evicted`, `deadline`, `max_hold` or `no_progress`; absent
    /// otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Who has the name, or what failed, as people read it; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// another holder has the name, and it is waited for
    Waiting,
    /// the lease is held until `deadline_ms`; again at each renewal
    Held,
    /// a renewal is late, and the lease is held until `deadline_ms`
    AtRisk,
    /// the lease was lost
    Lost,
    /// the name was released
    Released,
    /// the store did not answer the release, so the name may stay taken until its ttl is over
    ReleaseUnanswered,
    /// why the lease was not acquired
    Failed,
}

/// The lines for the thread that prints, and what they have in common.
pub struct Events {
    last: Event,
    unprinted: Arc<Unprinted>,
}

/// The lines that were not printed yet, the one that is being printed included.
#[derive(Default)]
struct Unprinted {
    lines: Mutex<Lines>,
    changed: Condvar,
}

#[derive(Default)]
struct Lines {
    waiting: Vec<Event>,
    is_printing: bool,
}

impl Unprinted {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints each line as soon as the one before it was read.
    fn print(&self, mut print: impl FnMut(&[u8])) -> ! {
        let mut lines = self.lines();
        loop {
            let wait = self
                .changed
                .wait_while(lines, |lines| lines.waiting.is_empty());
            lines = wait.unwrap_or_else(PoisonError::into_inner);
            let event = lines.waiting.remove(0);
            lines.is_printing = true;
            drop(lines);
            // A struct of texts and numbers is always JSON.
            let line = serde_json::to_string(&event).unwrap_or_default() + "\n";
            print(line.as_bytes());
            lines = self.lines();
            lines.is_printing = false;
            self.changed.notify_all();
        }
    }
}

impl Events {
    /// Starts the thread that prints.
    pub fn start(wanted: &Wanted) -> Result<Self, Failure> {
        let last = Event {
            version: 1,
            event: Kind::Waiting,
            name: wanted.name.to_string(),
            ttl_ms: milliseconds(wanted.timing.ttl()),
            token: None,
            holder: None,
            permit: None,
            deadline_ms: None,
            reason: None,
            why: None,
        };
        // A program that does not listen still holds its lease.
        Self::new(last, |line| {
            let _ = print(line);
        })
        .map_err(|error| Failure::internal("cannot start the thread that prints", &error))
    }

    fn new(last: Event, print: impl FnMut(&[u8]) + Send + 'static) -> std::io::Result<Self> {
        let unprinted = Arc::new(Unprinted::default());
        let queue = Arc::clone(&unprinted);
        let thread = std::thread::Builder::new().name("say".into());
        thread.spawn(move || queue.print(print))?;
        Ok(Self { last, unprinted })
    }

    pub fn waiting(&mut self, why: String) {
        self.last.why = Some(why);
        self.tell(Kind::Waiting);
    }

    pub fn held(&mut self, lease: &Lease, term: &Term) {
        self.last.name = lease.name().to_string();
        self.last.token = Some(lease.token().get());
        self.last.holder = Some(lease.holder().to_string());
        self.last.permit = lease.permit();
        let deadline = on_the_boot_clock(term.deadline(), &**lease.clock());
        self.last.deadline_ms = Some(status_file::milliseconds(deadline));
        self.tell(Kind::Held);
    }

    pub fn lost(&mut self, reason: LossReason) {
        self.last.reason = Some(reason.to_string());
        self.tell(Kind::Lost);
    }

    pub fn failed(&mut self, failure: &Failure) {
        self.last.why = Some(failure.message.clone());
        self.tell(Kind::Failed);
    }

    /// Prints that this happened, soon.
    pub fn tell(&mut self, event: Kind) {
        self.last.event = event;
        if !matches!(event, Kind::Held | Kind::AtRisk) {
            self.last.deadline_ms = None;
        }
        let mut lines = self.unprinted.lines();
        lines.waiting.retain(|earlier| earlier.event != event);
        lines.waiting.push(self.last.clone());
        drop(lines);
        self.unprinted.changed.notify_all();
        self.last.why = None;
    }

    /// Waits up to five seconds until all lines are read, also by a program that has not read for long.
    pub fn flush(&self) {
        self.flush_for(FLUSH);
    }

    fn flush_for(&self, limit: Duration) {
        let is_unread = |lines: &mut Lines| lines.is_printing || !lines.waiting.is_empty();
        let changed = &self.unprinted.changed;
        // Whether in time or not, nothing more can be done.
        let _ = changed.wait_timeout_while(self.unprinted.lines(), limit, is_unread);
    }
}

/// Writes a line. The program may have made the pipe non-blocking.
fn print(mut line: &[u8]) -> rustix::io::Result<()> {
    let stdout = std::io::stdout();
    while !line.is_empty() {
        match rustix::io::write(&stdout, line) {
            Ok(count) => line = &line[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(&stdout, PollFlags::OUT)], None);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the same moment on the boot clock, or an earlier one: while the machine sleeps, other clocks stand still.
fn on_the_boot_clock(at: Instant, clock: &dyn Clock) -> Instant {
    let now = Boottime.now();
    now.after(at.since(clock.now()))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    /// Makes events that are printed only when the test lets them.
    fn held_up() -> (Events, SyncSender<()>, Receiver<String>) {
        let (go_on, may_go_on) = sync_channel(0);
        let (printed, seen) = sync_channel(64);
        let last = Event {
            version: 1,
            event: Kind::Waiting,
            name: "x".into(),
            ttl_ms: 30_000,
            token: None,
            holder: None,
            permit: None,
            deadline_ms: None,
            reason: None,
            why: None,
        };
        let events = Events::new(last, move |line| {
            let line = String::from_utf8_lossy(line).into_owned();
            printed.send(line).expect("the test listens");
            let _ = may_go_on.recv();
        });
        (events.expect("a thread"), go_on, seen)
    }

    #[test]
    fn what_nobody_reads_is_kept_once_of_each_kind_and_no_loss_is_left_out() {
        let (mut events, go_on, seen) = held_up();
        events.tell(Kind::Waiting);
        assert!(
            seen.recv_timeout(SOON)
                .expect("printed")
                .contains("waiting")
        );
        // The reader hangs from here on.
        for renewal in 1..1_000 {
            events.last.deadline_ms = Some(renewal);
            events.tell(Kind::Held);
            events.tell(Kind::AtRisk);
        }
        events.lost(LossReason::Deadline);
        assert_eq!(events.unprinted.lines().waiting.len(), 3);
        // However long it has not read, it is waited for.
        let reading = std::thread::spawn(move || {
            std::thread::park_timeout(Duration::from_millis(50));
            drop(go_on);
        });
        events.flush_for(SOON);
        assert_eq!(events.unprinted.lines().waiting.len(), 0);
        reading.join().expect("it ends");
        let mut lines = Vec::new();
        while let Ok(line) = seen.recv_timeout(Duration::from_millis(200)) {
            lines.push(line);
        }
        let [held, at_risk, lost] = &lines[..] else {
            panic!("{lines:?}");
        };
        assert!(held.contains(r#""event":"held""#) && held.contains(r#""deadline_ms":999"#));
        assert!(at_risk.contains(r#""event":"at_risk""#), "{at_risk}");
        let is_last = lost.contains(r#""event":"lost""#) && !lost.contains("deadline_ms");
        assert!(is_last && lost.contains(r#""reason":"deadline""#), "{lost}");
    }
}
