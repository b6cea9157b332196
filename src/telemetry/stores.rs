//! What is counted of stores, by their kind: calls and their failures, connections, servers, notices.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use metrics::{counter, gauge};

use super::quorum::QuorumCounts;
use super::samples::{self, Sample};
use super::words::{AckOutcome, ErrorLabel, LaneUse, NoticeOutcome, Standing, StoreCall};
use super::{quietly, table};
use crate::error::ErrorKind;

const CALLS: usize = StoreCall::ALL.len();
const ERRORS: usize = ErrorLabel::ALL.len();
const USES: usize = LaneUse::ALL.len();

/// The totals of all stores of one kind.
#[derive(Debug)]
pub(crate) struct StoreCounts {
    pub(super) kind: &'static str,
    errors: [[AtomicU64; ERRORS]; CALLS],
    reconnects: [AtomicU64; USES],
    notices: [AtomicU64; NoticeOutcome::ALL.len()],
    pub(super) acks: [AtomicU64; AckOutcome::ALL.len()],
    /// Stores of this kind can wait for replicas.
    pub(super) has_replicas: AtomicBool,
    pub(super) quorum: QuorumCounts,
    /// As last looked at, if ever.
    members: [AtomicUsize; Standing::ALL.len()],
    has_members: AtomicBool,
    connections: Mutex<Vec<Weak<ConnectionGauge>>>,
}

/// As many as there are kinds of stores in use.
static STORES: Mutex<Vec<&'static StoreCounts>> = Mutex::new(Vec::new());

impl StoreCounts {
    fn new(kind: &'static str) -> Self {
        Self {
            kind,
            errors: [const { [const { AtomicU64::new(0) }; ERRORS] }; CALLS],
            reconnects: [const { AtomicU64::new(0) }; USES],
            notices: [const { AtomicU64::new(0) }; NoticeOutcome::ALL.len()],
            acks: [const { AtomicU64::new(0) }; AckOutcome::ALL.len()],
            has_replicas: AtomicBool::new(false),
            quorum: QuorumCounts::default(),
            members: [const { AtomicUsize::new(0) }; Standing::ALL.len()],
            has_members: AtomicBool::new(false),
            connections: Mutex::default(),
        }
    }

    /// Those of the stores of this kind.
    pub(crate) fn of(kind: &'static str) -> &'static Self {
        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = stores.iter().find(|store| store.kind == kind) {
            return known;
        }
        let store: &'static Self = Box::leak(Box::new(Self::new(kind)));
        stores.push(store);
        store
    }

    /// A call ended. Where `is_background`, the thread is one that must not block, so the sample is told by another.
    pub(crate) fn call_ended(
        &self,
        call: StoreCall,
        took: Duration,
        error: Option<ErrorKind>,
        is_background: bool,
    ) {
        if let Some(kind) = error {
            let label = ErrorLabel::from(kind) as usize;
            self.errors[call as usize][label].fetch_add(1, Ordering::Relaxed);
        }
        let sample = Sample {
            store: self.kind,
            call,
            took,
        };
        match is_background {
            true => samples::keep(sample),
            false => sample.tell(),
        }
    }

    /// A notice came.
    pub(crate) fn notice(&self, outcome: NoticeOutcome) {
        self.notices[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The servers of the store were looked at: so many stand so.
    pub(crate) fn members_seen(&self, counts: [usize; Standing::ALL.len()]) {
        for (member, count) in self.members.iter().zip(counts) {
            member.store(count, Ordering::Relaxed);
        }
        self.has_members.store(true, Ordering::Relaxed);
    }

    /// A connection, which is not made so far. Without a purpose no metric tells of it.
    pub(crate) fn connection(&'static self, purpose: Option<LaneUse>) -> Arc<ConnectionGauge> {
        let connection = Arc::new(ConnectionGauge {
            store: self,
            purpose,
            state: AtomicU8::new(UNMADE),
        });
        if purpose.is_some() {
            let mut known = self.connections();
            known.retain(|connection| connection.strong_count() > 0);
            known.push(Arc::downgrade(&connection));
        }
        connection
    }

    fn connections(&self) -> MutexGuard<'_, Vec<Weak<ConnectionGauge>>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the recorder the totals and states of every kind of store.
    pub(super) fn tell_all() {
        let stores = STORES
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for store in stores {
            store.tell();
        }
    }

    fn tell(&self) {
        let kind = self.kind;
        for (errors, call) in self.errors.iter().zip(StoreCall::ALL) {
            for (total, error) in errors.iter().zip(ErrorLabel::ALL) {
                let total = total.load(Ordering::Relaxed);
                quietly(|| {
                    counter!(table::STORE_ERRORS.name, "store" => kind, "op" => call.as_str(), "kind" => error.as_str())
                        .absolute(total);
                });
            }
        }
        for (total, outcome) in self.notices.iter().zip(NoticeOutcome::ALL) {
            let total = total.load(Ordering::Relaxed);
            let name = table::NOTICES.name;
            quietly(|| {
                counter!(name, "store" => kind, "outcome" => outcome.as_str()).absolute(total)
            });
        }
        if self.has_replicas.load(Ordering::Relaxed) {
            for (total, outcome) in self.acks.iter().zip(AckOutcome::ALL) {
                let total = total.load(Ordering::Relaxed);
                let name = table::REPLICA_ACKS.name;
                quietly(|| {
                    counter!(name, "store" => kind, "outcome" => outcome.as_str()).absolute(total);
                });
            }
        }
        self.quorum.tell(kind);
        if self.has_members.load(Ordering::Relaxed) {
            for (count, state) in self.members.iter().zip(Standing::ALL) {
                let count = count.load(Ordering::Relaxed);
                let name = table::STORE_MEMBERS.name;
                quietly(|| {
                    gauge!(name, "store" => kind, "state" => state.as_str()).set(whole(count))
                });
            }
        }
        self.tell_connections();
    }

    /// There is a gauge for each use of which this process has, or had, a connection: one that is down is a 0.
    fn tell_connections(&self) {
        let known: Vec<_> = {
            let known = self.connections();
            known.iter().filter_map(Weak::upgrade).collect()
        };
        for purpose in LaneUse::ALL {
            let of_use = known.iter().filter(|one| one.purpose == Some(purpose));
            let states: Vec<u8> = of_use
                .map(|connection| connection.state.load(Ordering::Relaxed))
                .filter(|state| *state != UNMADE)
                .collect();
            if states.is_empty() {
                continue;
            }
            let is_up = states.iter().all(|state| *state == UP);
            let total = self.reconnects[purpose as usize].load(Ordering::Relaxed);
            let (kind, lane) = (self.kind, purpose.as_str());
            quietly(|| {
                gauge!(table::STORE_CONNECTED.name, "store" => kind, "lane" => lane)
                    .set(f64::from(u8::from(is_up)));
                counter!(table::STORE_RECONNECTS.name, "store" => kind, "lane" => lane)
                    .absolute(total);
            });
        }
    }
}

/// No connection was made so far, or it was closed for good.
const UNMADE: u8 = 0;
/// The last attempt to connect failed, or the connection was given up.
const DOWN: u8 = 1;
const UP: u8 = 2;
/// It was up before, and was given up.
const BROKEN: u8 = 3;

/// A connection to a server, as metrics tell of it. The code that drives the connection notes what becomes of it.
#[derive(Debug)]
pub(crate) struct ConnectionGauge {
    store: &'static StoreCounts,
    purpose: Option<LaneUse>,
    state: AtomicU8,
}

impl ConnectionGauge {
    /// The connection was made. Made again after it was lost, it counts as a reconnect.
    pub(crate) fn made(&self) {
        if self.state.swap(UP, Ordering::Relaxed) == BROKEN
            && let Some(purpose) = self.purpose
        {
            self.store.reconnects[purpose as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An attempt to connect ended.
    pub(crate) fn connecting_ended(&self, is_made: bool) {
        match is_made {
            true => self.made(),
            false => self.lost(),
        }
    }

    /// The connection was lost, or could not be made.
    pub(crate) fn lost(&self) {
        let after = |state| match state {
            UP | BROKEN => Some(BROKEN),
            _ => Some(DOWN),
        };
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        // The closure always answers.
        let _ = self.state.fetch_update(set, get, after);
    }

    /// The connection was closed because it is not needed.
    pub(crate) fn closed(&self) {
        self.state.store(UNMADE, Ordering::Relaxed);
    }
}

#[expect(clippy::cast_precision_loss, reason = "no process counts up to 2^52")]
pub(super) fn whole(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_made_again_counts_as_a_reconnect_and_the_first_does_not() {
        let store = StoreCounts::of("reconnecting");
        let connection = store.connection(Some(LaneUse::Requests));
        let reconnects = || store.reconnects[LaneUse::Requests as usize].load(Ordering::Relaxed);
        connection.lost();
        connection.made();
        assert_eq!(reconnects(), 0, "the first connection, at the second try");
        connection.lost();
        connection.lost();
        connection.made();
        assert_eq!(reconnects(), 1);
        connection.closed();
        connection.made();
        assert_eq!(reconnects(), 1, "closed while it was not needed");
    }
}
