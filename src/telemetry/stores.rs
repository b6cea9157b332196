//! Counts of stores, by their kind: calls and their failures, connections, servers, notices.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use metrics::{gauge, histogram};
use parking_lot::Mutex;

use super::counts::Counts;
use super::reporter;
use super::words::{ErrorLabel, LaneUse, NoticeOutcome, Standing, StoreCall};
use super::{quietly, table};
use crate::error::ErrorKind;

/// The state of all stores of one kind.
#[derive(Debug)]
pub(crate) struct StoreCounts {
    kind: &'static str,
    counts: &'static Counts,
    /// The members as they were last looked at, if ever.
    members: Mutex<Option<[usize; Standing::ALL.len()]>>,
    connections: Mutex<Vec<Weak<ConnectionGauge>>>,
}

/// The states of all kinds of stores in use.
static STORES: Mutex<Vec<&'static StoreCounts>> = Mutex::new(Vec::new());

impl StoreCounts {
    /// Those of the stores of this kind.
    pub(crate) fn of(kind: &'static str) -> &'static Self {
        let mut stores = STORES.lock();
        if let Some(known) = stores.iter().find(|store| store.kind == kind) {
            return known;
        }
        let store: &'static Self = Box::leak(Box::new(Self {
            kind,
            counts: Counts::of(Some(("store", kind))),
            members: Mutex::default(),
            connections: Mutex::default(),
        }));
        stores.push(store);
        store
    }

    /// A call ended. Where `is_background`, the thread is one that must not block, so the sample is left to the
    /// reporter.
    pub(crate) fn call_ended(
        &self,
        call: StoreCall,
        took: Duration,
        error: Option<ErrorKind>,
        is_background: bool,
    ) {
        let (store, call) = (self.kind, call.as_str());
        if let Some(kind) = error.map(ErrorLabel::from) {
            let words = [call, kind.as_str()];
            self.counts.add(&table::STORE_ERRORS, &words, 1);
        }
        let name = table::STORE_REQUEST_DURATION.name;
        let tell = move || histogram!(name, "store" => store, "op" => call).record(took);
        if is_background {
            reporter::keep_sample(tell);
        } else {
            tell();
        }
    }

    /// A notice came.
    pub(crate) fn notice(&self, outcome: NoticeOutcome) {
        self.counts.add(&table::NOTICES, &[outcome.as_str()], 1);
    }

    /// The servers of the store were looked at: the number of them in each standing.
    pub(crate) fn members_seen(&self, counts: [usize; Standing::ALL.len()]) {
        *self.members.lock() = Some(counts);
    }

    /// A connection that is not made yet. Without a purpose no metric shows it.
    pub(crate) fn connection(&'static self, purpose: Option<LaneUse>) -> Arc<ConnectionGauge> {
        let connection = Arc::new(ConnectionGauge {
            counts: self.counts,
            purpose,
            state: AtomicU8::new(UNMADE),
        });
        if purpose.is_some() {
            let mut known = self.connections.lock();
            known.retain(|connection| connection.strong_count() > 0);
            known.push(Arc::downgrade(&connection));
        }
        connection
    }

    /// Sets the gauges of every kind of store.
    pub(super) fn tell_all() {
        let stores = STORES.lock().clone();
        for store in stores {
            store.tell_members();
            store.tell_connections();
        }
    }

    fn tell_members(&self) {
        let members = *self.members.lock();
        for (count, state) in members.iter().flatten().zip(Standing::ALL) {
            let (name, state) = (table::STORE_MEMBERS.name, state.as_str());
            quietly(|| gauge!(name, "store" => self.kind, "state" => state).set(whole(*count)));
        }
    }

    /// There is a gauge for each use of which this process has, or had, a connection: one that is down is a 0.
    fn tell_connections(&self) {
        let known: Vec<_> = {
            let known = self.connections.lock();
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
            let (name, lane) = (table::STORE_CONNECTED.name, purpose.as_str());
            self.counts.show(&table::STORE_RECONNECTS, &[lane]);
            let is_up = f64::from(u8::from(is_up));
            quietly(|| gauge!(name, "store" => self.kind, "lane" => lane).set(is_up));
        }
    }
}

#[cfg(feature = "redis")]
impl StoreCounts {
    /// Stores of this kind can wait for replicas: from now on it is shown how often they did, from 0.
    pub(crate) fn has_replicas(&self) {
        (super::AckOutcome::WORDS.into_iter())
            .for_each(|outcome| self.counts.show(&table::REPLICA_ACKS, &[outcome]));
    }

    /// A write waited for replicas.
    pub(crate) fn ack(&self, outcome: super::AckOutcome) {
        self.counts
            .add(&table::REPLICA_ACKS, &[outcome.as_str()], 1);
    }
}

#[cfg(feature = "quorum")]
impl StoreCounts {
    /// Stores of this kind are quorums.
    pub(crate) fn has_quorums(&self) {
        self.counts.show(&table::QUORUM_TAKEN_BACK, &[]);
        self.counts.show(&table::QUORUM_REPAIRS, &[]);
    }

    /// A claim to a quorum ended after this many rounds. Claims are not made on a thread that must not block.
    pub(crate) fn claimed_in(&self, rounds: usize) {
        let name = table::QUORUM_ROUNDS.name;
        quietly(|| histogram!(name, "store" => self.kind).record(whole(rounds)));
    }

    /// A token brought no grant and is taken back.
    pub(crate) fn taken_back(&self) {
        self.counts.add(&table::QUORUM_TAKEN_BACK, &[], 1);
    }

    /// A lease is put back at a member that lacks it.
    pub(crate) fn repaired(&self) {
        self.counts.add(&table::QUORUM_REPAIRS, &[], 1);
    }
}

/// No connection was made yet, or it was closed for good.
const UNMADE: u8 = 0;
/// The last attempt to connect failed, or the connection was given up.
const DOWN: u8 = 1;
const UP: u8 = 2;
/// It was up before, and was given up.
const BROKEN: u8 = 3;

/// A connection to a server, as metrics show it. The code that drives the connection notes what becomes of it.
#[derive(Debug)]
pub(crate) struct ConnectionGauge {
    counts: &'static Counts,
    purpose: Option<LaneUse>,
    state: AtomicU8,
}

impl ConnectionGauge {
    /// The connection was made. Made again after it was lost, it counts as a reconnect.
    pub(crate) fn made(&self) {
        if self.state.swap(UP, Ordering::Relaxed) == BROKEN
            && let Some(purpose) = self.purpose
        {
            self.counts
                .add(&table::STORE_RECONNECTS, &[purpose.as_str()], 1);
        }
    }

    /// An attempt to connect ended.
    pub(crate) fn connecting_ended(&self, is_made: bool) {
        if is_made {
            self.made();
        } else {
            self.lost();
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
        let reconnects = || store.counts.value(&table::STORE_RECONNECTS, &["requests"]);
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
