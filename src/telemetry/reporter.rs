//! The thread that calls the user's subscriber and recorder instead of threads that must not block: one for all
//! clients of the process. It shows each event when it comes, and everything else once a tick, until nothing is held,
//! awaited or counted: then it rests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use metrics::gauge;

use super::sink::Sink;
use super::survey::{self, Surveyed};
use super::{quietly, table};
use crate::clock::{Clock, Instant, Monotonic};
use crate::error::{Error, ErrorKind};
use crate::kinds::KINDS;

/// Events that wait for the reporter. A hundred batches a second fill it in ten seconds of a blocked log, which is when
/// dropping is right.
const EVENTS: usize = 1_024;
/// Samples that wait. A second of a busy watchdog has as many: a hundred batches and some thousand releases of dropped
/// guards.
const SAMPLES: usize = 4_096;
/// The pause between two settings of the totals and gauges: the recorder of a scrape every few seconds sees what is
/// true.
const TICK: Duration = Duration::from_secs(1);
/// A round that takes long is followed by a pause that is longer by this: reading a million leases each second is not
/// worth a twentieth of a core.
const REST: u32 = 50;
/// The longest such pause.
const LONGEST_REST: Duration = Duration::from_secs(5);

/// A line of the log or a sample of a histogram: a call of the user's subscriber or recorder.
type Telling = Box<dyn FnOnce() + Send>;

/// The work for the thread. Locked for a push or a swap, never while code of the user's runs.
struct Inbox {
    events: Vec<Telling>,
    samples: Vec<Telling>,
    /// The clients of the process. The thread ends with the last of them.
    sources: Vec<Weak<dyn Surveyed>>,
    /// The process that runs the thread, because a forked child has none. 0: it does not run.
    runs_in: u32,
    /// Whether the thread waits without a limit.
    rests: bool,
}

static INBOX: Mutex<Inbox> = Mutex::new(Inbox {
    events: Vec::new(),
    samples: Vec::new(),
    sources: Vec::new(),
    runs_in: 0,
    rests: false,
});
/// Whether anything was counted since the last tick began.
///
/// Every access is `SeqCst`, and so is that of the totals: who counts adds and then reads this flag, and a tick clears
/// it and then reads the totals, so that one of the two sees the other.
static ACTIVE: AtomicBool = AtomicBool::new(true);
/// Wakes the thread for an event, for the end of a client, and out of its rest. Samples wait for the next tick.
///
/// The standard library's mutex, because parking_lot keeps sleeping threads in a table of the process: a forked child,
/// where these threads do not exist, would abort at its own first sleep.
static CAME: Condvar = Condvar::new();
/// The address of the recorder that was last used. Locked while the recorder is called, so that no older value follows
/// a newer one.
static RECORDER: Mutex<usize> = Mutex::new(0);

/// Locks the inbox. Nothing that runs under the lock leaves it half changed.
fn inbox() -> MutexGuard<'static, Inbox> {
    INBOX.lock().unwrap_or_else(PoisonError::into_inner)
}

fn recorder() -> MutexGuard<'static, usize> {
    RECORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A client has ended.
pub(crate) fn client_ended() {
    // Locked, so that this does not fall between the thread's check of the clients and its sleep.
    let _inbox = inbox();
    CAME.notify_one();
}

/// Something was counted, or a connection changed: the thread reports it by the next tick.
pub(super) fn note_activity() {
    if !ACTIVE.load(Ordering::SeqCst) {
        ACTIVE.store(true, Ordering::SeqCst);
        // Locked, so that this does not fall between the thread's last check of the flag and its sleep.
        if inbox().rests {
            CAME.notify_one();
        }
    }
}

/// Leaves an event to the thread, at once.
pub(super) fn hand_over(event: impl FnOnce() + Send + 'static) {
    if push(|inbox| &mut inbox.events, EVENTS, Box::new(event)) {
        CAME.notify_one();
    }
}

/// Leaves a sample to the thread, by the next tick.
pub(super) fn keep_sample(sample: impl FnOnce() + Send + 'static) {
    push(|inbox| &mut inbox.samples, SAMPLES, Box::new(sample));
    note_activity();
}

/// Queues it if there is room; otherwise drops and counts it.
fn push(queue: fn(&mut Inbox) -> &mut Vec<Telling>, most: usize, telling: Telling) -> bool {
    let mut inbox = inbox();
    let queue = queue(&mut inbox);
    let has_room = queue.len() < most;
    if has_room {
        queue.push(telling);
    }
    drop(inbox);
    if !has_room {
        Sink::of_process().add(&table::EVENTS_DROPPED, &[], 1);
    }
    has_room
}

/// Reads the state of this client too, for as long as it lives, and starts the thread if it does not run.
///
/// # Errors
/// `Unavailable` where the thread cannot be started.
pub(crate) fn watch(client: Weak<dyn Surveyed>) -> Result<(), Error> {
    let mut inbox = inbox();
    if inbox.runs_in != std::process::id() {
        let thread = std::thread::Builder::new().name("leasehold-report".into());
        thread.spawn(report).map_err(|source| {
            let what = "acquire failed: the reporter's thread did not start";
            Error::new(ErrorKind::Unavailable, what).with_source(source)
        })?;
        inbox.runs_in = std::process::id();
        // The rest of them is the parent's.
        inbox.sources.clear();
    }
    inbox.sources.push(client);
    Ok(())
}

/// The clients of the process.
pub(super) fn sources() -> Vec<Arc<dyn Surveyed>> {
    inbox().sources.iter().filter_map(Weak::upgrade).collect()
}

/// The thread's whole life.
fn report() {
    let mut next = Some(Monotonic.now());
    loop {
        let (tellings, is_last) = next_tellings(next);
        // A subscriber or recorder that panics is the user's; the next event is still shown.
        tellings.into_iter().for_each(quietly);
        if is_last {
            // Otherwise what was counted since the last tick would be lost.
            return update();
        }
        let now = Monotonic.now();
        if next.is_none_or(|next| now >= next) {
            let was_active = ACTIVE.swap(false, Ordering::SeqCst);
            let is_quiet = tell(&mut recorder());
            let took = Monotonic.now().since(now);
            let rest = (took * REST).clamp(TICK, LONGEST_REST);
            next = (was_active || !is_quiet).then(|| now.after(rest));
        }
    }
}

/// Waits for events until `until`, or without it until something is counted. Returns the events, and whether no client
/// is left.
fn next_tellings(until: Option<Instant>) -> (Vec<Telling>, bool) {
    let mut inbox = inbox();
    let has_clients = |inbox: &mut Inbox| {
        inbox.sources.retain(|client| client.strong_count() > 0);
        !inbox.sources.is_empty()
    };
    if inbox.events.is_empty() && has_clients(&mut inbox) {
        if let Some(until) = until {
            let woken = CAME.wait_timeout(inbox, until.since(Monotonic.now()));
            (inbox, _) = woken.unwrap_or_else(PoisonError::into_inner);
        } else if !ACTIVE.load(Ordering::SeqCst) {
            inbox.rests = true;
            inbox = CAME.wait(inbox).unwrap_or_else(PoisonError::into_inner);
            inbox.rests = false;
        }
    }
    let is_last = !has_clients(&mut inbox);
    if is_last {
        inbox.runs_in = 0;
    }
    let mut tellings = std::mem::take(&mut inbox.events);
    tellings.append(&mut inbox.samples);
    (tellings, is_last)
}

/// Sets every counter and gauge of this process in the recorder that is installed now, and describes each metric to it.
pub(crate) fn update() {
    let mut known = recorder();
    *known = 0;
    tell(&mut known);
}

/// Returns whether no lease is held and nobody waits for one.
fn tell(known: &mut usize) -> bool {
    // Another recorder than before knows nothing of what the metrics mean.
    let recorder = metrics::with_recorder(|recorder| std::ptr::from_ref(recorder).addr());
    if std::mem::replace(known, recorder) != recorder {
        quietly(table::describe);
    }
    quietly(tell_build);
    let is_quiet = survey::survey_all();
    for sink in Sink::all() {
        sink.survey_connections();
        sink.tell();
    }
    is_quiet
}

/// Reports which stores were compiled in, besides the one in memory.
pub(super) fn tell_build() {
    let kinds = KINDS.iter().filter(|kind| kind.is_compiled);
    let mut features: Vec<_> = kinds.map(|kind| kind.word).collect();
    features.retain(|word| *word != "memory");
    features.sort_unstable();
    let (version, features) = (env!("CARGO_PKG_VERSION"), features.join(","));
    gauge!(table::BUILD_INFO.name, "version" => version, "features" => features).set(1.0);
}
