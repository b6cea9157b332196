//! Samples of histograms that are taken on threads that must not block: kept here until the reporter tells them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::histogram;

use super::counts::{Count, count_for_process};
use super::words::StoreCall;
use super::{quietly, table};

/// What a second of a busy watchdog makes: a hundred batches and some thousand releases of dropped guards.
const KEPT: usize = 4_096;

/// One call to a store.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) store: &'static str,
    pub(super) call: StoreCall,
    pub(super) took: Duration,
}

static SAMPLES: Mutex<Vec<Sample>> = Mutex::new(Vec::new());

/// Keeps a sample. One that is too many is dropped and counted. The lock is held for a push or a swap, never while code
/// of the user's runs.
pub(super) fn keep(sample: Sample) {
    let mut samples = SAMPLES.lock().unwrap_or_else(PoisonError::into_inner);
    let has_room = samples.len() < KEPT;
    if has_room {
        samples.push(sample);
    }
    drop(samples);
    if !has_room {
        count_for_process(Count::EventDropped);
    }
}

/// Tells the recorder what was kept.
pub(super) fn tell_kept() {
    let kept = std::mem::take(&mut *SAMPLES.lock().unwrap_or_else(PoisonError::into_inner));
    for sample in kept {
        quietly(|| sample.tell());
    }
}

impl Sample {
    /// Tells the recorder, on this thread.
    pub(super) fn tell(self) {
        let (store, call) = (self.store, self.call.as_str());
        let name = table::STORE_REQUEST_DURATION.name;
        histogram!(name, "store" => store, "op" => call).record(self.took);
    }
}
