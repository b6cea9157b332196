//! What is counted of stores that wait for the replicas of their servers.

use std::sync::atomic::Ordering;

use super::stores::StoreCounts;
use super::words::AckOutcome;

impl StoreCounts {
    /// Stores of this kind can wait for replicas: from now on it is told how often they did, from 0.
    pub(crate) fn has_replicas(&self) {
        self.has_replicas.store(true, Ordering::Relaxed);
    }

    /// A write waited for replicas.
    pub(crate) fn ack(&self, outcome: AckOutcome) {
        self.acks[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }
}
