//! The content of the pages: the server reads it, and the job or the scan writes it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use leasehold::clock::{Clock, Monotonic, wall_clock};
use serde_json::Value;

use super::page::{self, Snapshot};
use super::recorder::Recorder;

/// The content of all pages.
pub struct Pages {
    recorder: Recorder,
    is_ready: AtomicBool,
    status: Mutex<Value>,
    /// The contents of the page for people. A job has none.
    pub snapshot: Mutex<Option<Snapshot>>,
}

impl Pages {
    /// Pages that are not ready yet, with the metrics of this recorder.
    pub const fn new(recorder: Recorder) -> Self {
        Self {
            recorder,
            is_ready: AtomicBool::new(false),
            status: Mutex::new(Value::Null),
            snapshot: Mutex::new(None),
        }
    }

    /// Sets what `/readyz` and `/status` show.
    pub fn set(&self, is_ready: bool, status: Value) {
        self.is_ready.store(is_ready, Ordering::Relaxed);
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    /// Sets what the page for people shows.
    pub fn show(&self, snapshot: Snapshot) {
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot);
    }

    /// Returns the page for people, if there is one.
    pub fn page(&self, query: &str) -> Option<String> {
        let snapshot = self
            .snapshot
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        Some(page::html(&snapshot?, query, Monotonic.now(), wall_clock()))
    }

    pub fn metrics(&self) -> String {
        self.recorder.text()
    }

    pub fn tidy(&self) {
        self.recorder.tidy();
    }

    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed)
    }

    pub fn status(&self) -> String {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.to_string()
    }
}
