//! The library's log, for Python's `logging`: a queue that any thread fills without the GIL, and that one thread of
//! Python's reads.
//!
//! A full queue drops what comes, and counts it: while a handler of `logging` hangs, leases are renewed all the same.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};

use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};

/// Events that wait for Python. As many as the library's own queue has.
const EVENTS: usize = 1_024;

static EVENTS_TO_READ: Mutex<Waiting> = Mutex::new(Waiting {
    events: VecDeque::new(),
    dropped: 0,
    is_ended: false,
});
static CAME: Condvar = Condvar::new();

/// The least level that is wanted, as `logging` numbers it.
static LEAST: AtomicU8 = AtomicU8::new(NONE);
const NONE: u8 = u8::MAX;

struct Waiting {
    events: VecDeque<Event>,
    dropped: u64,
    is_ended: bool,
}

/// The level as `logging` numbers it, the text, and the fields.
pub type Event = (u8, String, BTreeMap<&'static str, Value>);

#[derive(IntoPyObject)]
pub enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(String),
}

thread_local! {
    /// The lock of a thread that forks.
    static FORKING: RefCell<Option<MutexGuard<'static, Waiting>>> = const { RefCell::new(None) };
}

fn waiting() -> MutexGuard<'static, Waiting> {
    EVENTS_TO_READ
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Has events of this level and above queued from now on.
#[pyfunction]
pub fn set_log_level(least: u64) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // There is no other one: the module has its own copy of `tracing`.
        let _ = tracing::subscriber::set_global_default(Queue);
    });
    let least = u8::try_from(least).unwrap_or(NONE);
    if LEAST.swap(least, Ordering::Relaxed) != least {
        tracing::callsite::rebuild_interest_cache();
    }
}

/// Waits for events, without the GIL, and returns them with the number of those that were dropped. Returns `None` once
/// the process ends and all were read.
#[pyfunction]
pub fn take_events(py: Python<'_>) -> Option<(Vec<Event>, u64)> {
    py.detach(|| {
        let mut waiting = waiting();
        while waiting.events.is_empty() && !waiting.is_ended {
            waiting = CAME.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let events: Vec<_> = waiting.events.drain(..).collect();
        let dropped = std::mem::take(&mut waiting.dropped);
        (!events.is_empty()).then_some((events, dropped))
    })
}

/// Ends the reading thread once it has read the backlog.
#[pyfunction]
pub fn end_log() {
    waiting().is_ended = true;
    CAME.notify_all();
}

/// Keeps the queue whole while this thread forks.
#[pyfunction]
pub fn lock_log(py: Python<'_>) {
    py.detach(|| FORKING.set(Some(waiting())));
}

/// Ends [`lock_log`]. In the child, the events are the parent's.
#[pyfunction]
pub fn unlock_log(is_child: bool) {
    if let Some(mut waiting) = FORKING.take()
        && is_child
    {
        waiting.events.clear();
        waiting.dropped = 0;
    }
}

struct Queue;

impl Subscriber for Queue {
    fn enabled(&self, event: &Metadata<'_>) -> bool {
        let is_ours = event.target().starts_with("leasehold");
        event.is_event() && is_ours && number(*event.level()) >= LEAST.load(Ordering::Relaxed)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let least = LEAST.load(Ordering::Relaxed);
        let wanted = [
            Level::TRACE,
            Level::DEBUG,
            Level::INFO,
            Level::WARN,
            Level::ERROR,
        ];
        let first = wanted.into_iter().find(|level| number(*level) >= least);
        Some(first.map_or(LevelFilter::OFF, LevelFilter::from_level))
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut read = Reading::default();
        event.record(&mut read);
        let event = (
            number(*event.metadata().level()),
            read.text + &read.told,
            read.fields,
        );
        let mut waiting = waiting();
        if waiting.events.len() == EVENTS {
            waiting.dropped += 1;
        } else {
            waiting.events.push_back(event);
            CAME.notify_one();
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Returns the number of a level in `logging`.
fn number(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

/// An event, as it is read: its message, and each field as a value and as text.
#[derive(Default)]
struct Reading {
    text: String,
    told: String,
    fields: BTreeMap<&'static str, Value>,
}

impl Reading {
    fn add(&mut self, field: &Field, value: Value, text: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.text = format!("{text:?}");
            return;
        }
        // A text takes every write.
        let _ = write!(self.told, " {}={text:?}", field.name());
        self.fields.insert(field.name(), value);
    }
}

impl Visit for Reading {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, Value::Unsigned(value), &value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, Value::Signed(value), &value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, Value::Float(value), &value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, Value::Bool(value), &value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, Value::Text(value.into()), &value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, Value::Text(format!("{value:?}")), value);
    }
}
