//! The thread that calls the user's subscriber and recorder in place of threads that must not block.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use super::Event;
use super::counts::{Count, Counts, quietly};
use crate::error::{Error, ErrorKind};
use crate::group::Group;

/// Events that wait for the reporter. A hundred batches a second fill it in ten seconds of a blocked log, which is when
/// dropping is right.
const QUEUE: usize = 1_024;
/// How long after something was counted the recorder is told, at the latest: soon enough for a reader, and seldom
/// enough that a client that takes and frees leases all the time does not wake the reporter for each.
const TOLD_WITHIN: Duration = Duration::from_millis(200);

/// Counts, and hands events to its thread. Never blocks.
#[derive(Debug, Clone)]
pub(crate) struct Reporter {
    queue: SyncSender<Message>,
    counts: &'static Counts,
    /// Whether the thread knows, or will learn, that something was counted.
    is_called: Arc<AtomicBool>,
    group: Group,
}

#[derive(Debug)]
enum Message {
    Event(Event),
    /// Something was counted.
    Counted,
}

impl Reporter {
    /// Starts the reporter's thread. It ends when the last handle is gone.
    pub(crate) fn start(group: Group) -> Result<Self, Error> {
        let (queue, messages) = sync_channel(QUEUE);
        let reporter = Self {
            queue,
            counts: Counts::of(group),
            is_called: Arc::default(),
            group,
        };
        let (counts, is_called) = (reporter.counts, reporter.is_called.clone());
        let thread = std::thread::Builder::new().name("leasehold-report".into());
        let started = thread.spawn(move || report(&messages, counts, &is_called, group));
        started.map_err(|source| {
            Error::new(
                ErrorKind::Unavailable,
                "acquire failed: the reporter's thread did not start",
            )
            .with_source(source)
        })?;
        Ok(reporter)
    }

    /// Under which its events are counted.
    pub(crate) const fn group(&self) -> Group {
        self.group
    }

    /// Hands an event over. A full queue drops it and counts that.
    pub(crate) fn send(&self, event: Event) {
        if self.queue.try_send(Message::Event(event)).is_err() {
            self.count(Count::EventDropped, 1);
        }
    }

    /// Counts. What is counted is never dropped.
    pub(crate) fn count(&self, count: Count, times: u64) {
        if times > 0 {
            self.counts.add(count, times);
            self.call();
        }
    }

    /// Notes that so many leases more are held, or fewer.
    pub(crate) fn count_held(&self, more: i64) {
        self.counts.add_held(more);
        self.call();
    }

    fn call(&self) {
        if !self.is_called.swap(true, Ordering::AcqRel) {
            // If the queue is full, the thread tells the totals after an event that waits in it.
            let _ = self.queue.try_send(Message::Counted);
        }
    }
}

/// The thread's whole life. It tells the totals after each event, and a little after something else was counted.
fn report(messages: &Receiver<Message>, counts: &Counts, is_called: &AtomicBool, group: Group) {
    let mut has_counted = false;
    loop {
        let message = if has_counted {
            messages.recv_timeout(TOLD_WITHIN)
        } else {
            messages.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match message {
            Ok(Message::Counted) => {
                has_counted = true;
                continue;
            }
            // A subscriber or recorder that panics is the user's; the next event is still reported.
            Ok(Message::Event(event)) => {
                quietly(|| event.emit(group));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return counts.tell(),
        }
        has_counted = false;
        // Before the totals are read: what is counted from now on calls again.
        is_called.swap(false, Ordering::AcqRel);
        counts.tell();
    }
}
