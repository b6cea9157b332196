//! The thread that calls the user's subscriber and recorder in place of threads that must not block.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::Duration;

use super::counts::{Count, Counts};
use super::stores::StoreCounts;
use super::{Event, build, fences, quietly, samples, survey, table};
use crate::clock::{Clock, Instant, Monotonic};
use crate::error::{Error, ErrorKind};
use crate::group::Group;

/// Events that wait for the reporter. A hundred batches a second fill it in ten seconds of a blocked log, which is when
/// dropping is right.
const QUEUE: usize = 1_024;
/// How often totals and gauges are told: the recorder of a scrape every few seconds sees what is true.
const TICK: Duration = Duration::from_secs(1);
/// A round that takes long is followed by a pause that is longer by this: reading a million leases each second is not
/// worth a twentieth of a core.
const REST: u32 = 50;
/// The longest such pause.
const LONGEST_REST: Duration = Duration::from_secs(5);

/// Counts, and hands events to its thread. Never blocks.
#[derive(Debug, Clone)]
pub(crate) struct Reporter {
    queue: SyncSender<Event>,
    counts: &'static Counts,
    group: Group,
}

impl Reporter {
    /// Starts the reporter's thread. It ends when the last handle is gone.
    pub(crate) fn start(group: Group) -> Result<Self, Error> {
        let (queue, events) = sync_channel(QUEUE);
        let reporter = Self {
            queue,
            counts: Counts::of(group),
            group,
        };
        let thread = std::thread::Builder::new().name("leasehold-report".into());
        let started = thread.spawn(move || report(&events, group));
        started.map_err(|source| {
            Error::new(
                ErrorKind::Unavailable,
                "acquire failed: the reporter's thread did not start",
            )
            .with_source(source)
        })?;
        Ok(reporter)
    }

    /// The label under which its events are counted.
    pub(crate) const fn group(&self) -> Group {
        self.group
    }

    /// Hands an event over. A full queue drops it and counts that.
    pub(crate) fn send(&self, event: Event) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(event) {
            self.count(Count::EventDropped, 1);
        }
    }

    /// Counts. What is counted is never dropped.
    pub(crate) fn count(&self, count: Count, times: u64) {
        if times > 0 {
            self.counts.add(count, times);
        }
    }
}

/// The thread's whole life: tells each event when it comes, and totals and gauges once a tick.
fn report(events: &Receiver<Event>, group: Group) {
    let mut next = Monotonic.now();
    loop {
        let event = events.recv_timeout(next.since(Monotonic.now()));
        let is_last = matches!(event, Err(RecvTimeoutError::Disconnected));
        if let Ok(event) = event {
            // A subscriber or recorder that panics is the user's; the next event is still told.
            quietly(|| event.emit(group));
        }
        samples::tell_kept();
        if is_last {
            // What was counted since the last tick would be told by no one.
            return update();
        }
        if Monotonic.now() >= next {
            next = tick(Monotonic.now());
        }
    }
}

/// When the recorder was last told everything, and which one it was.
struct Told {
    at: Instant,
    recorder: usize,
}

/// Locked while it is told, so that no older value follows a newer one.
static TOLD: Mutex<Told> = Mutex::new(Told {
    at: Instant::ZERO,
    recorder: 0,
});

/// Tells everything, unless another client's reporter just did or does so now. Answers when it is to be told again.
fn tick(now: Instant) -> Instant {
    let mut told = match TOLD.try_lock() {
        Ok(told) => told,
        Err(TryLockError::Poisoned(told)) => told.into_inner(),
        Err(TryLockError::WouldBlock) => return now.after(TICK),
    };
    if now.since(told.at) >= TICK / 2 || told.at == Instant::ZERO {
        told.at = now;
        tell(&mut told);
    }
    let took = Monotonic.now().since(now);
    now.after((took * REST).clamp(TICK, LONGEST_REST))
}

/// Sets every counter and gauge of this process in the recorder that is installed now, and describes each metric to it.
pub(crate) fn update() {
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    told.recorder = 0;
    tell(&mut told);
}

fn tell(told: &mut Told) {
    // Another recorder than before knows nothing of what the metrics mean.
    let recorder = metrics::with_recorder(|recorder| std::ptr::from_ref(recorder).addr());
    if std::mem::replace(&mut told.recorder, recorder) != recorder {
        quietly(table::describe);
    }
    quietly(build::tell);
    Counts::tell_process();
    for counts in Counts::of_all_groups() {
        counts.tell();
    }
    survey::tell_all();
    StoreCounts::tell_all();
    fences::tell_all();
}
