//! What is counted of stores on a quorum of servers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use metrics::{counter, histogram};

use super::stores::{StoreCounts, whole};
use super::{quietly, table};

/// The totals of all quorums of this process.
#[derive(Debug, Default)]
pub(super) struct QuorumCounts {
    /// There is a quorum: from then on its totals are told, from 0.
    is_used: AtomicBool,
    taken_back: AtomicU64,
    repairs: AtomicU64,
}

impl QuorumCounts {
    pub(super) fn tell(&self, kind: &'static str) {
        if !self.is_used.load(Ordering::Relaxed) {
            return;
        }
        for (total, metric) in [
            (&self.taken_back, &table::QUORUM_TAKEN_BACK),
            (&self.repairs, &table::QUORUM_REPAIRS),
        ] {
            let total = total.load(Ordering::Relaxed);
            quietly(|| counter!(metric.name, "store" => kind).absolute(total));
        }
    }
}

impl StoreCounts {
    /// Stores of this kind are quorums.
    pub(crate) fn has_quorums(&self) {
        self.quorum.is_used.store(true, Ordering::Relaxed);
    }

    /// A claim ended after so many rounds. Told at once: claims are not made on a thread that must not block.
    pub(crate) fn claimed_in(&self, rounds: usize) {
        let name = table::QUORUM_ROUNDS.name;
        quietly(|| histogram!(name, "store" => self.kind).record(whole(rounds)));
    }

    /// A token brought no grant and is taken back.
    pub(crate) fn taken_back(&self) {
        self.quorum.taken_back.fetch_add(1, Ordering::Relaxed);
    }

    /// A lease is put back at a member that lacks it.
    pub(crate) fn repaired(&self) {
        self.quorum.repairs.fetch_add(1, Ordering::Relaxed);
    }
}
