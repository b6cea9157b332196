//! Counts of stores, by their kind: calls and their failures, connections, servers, notices.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::reporter::{self, note_activity};
use super::sink::Sink;
use super::table;
use super::words::{ConnectionPurpose, ServerState, StoreCall};
use crate::error::ErrorKind;

/// The counts of all stores of one kind.
impl Sink {
    /// A call ended. With `is_background` the thread must not block, so the reporter records the sample.
    pub(crate) fn call_ended(
        &'static self,
        call: StoreCall,
        took: Duration,
        error: Option<ErrorKind>,
        is_background: bool,
    ) {
        let call = call.as_str();
        if let Some(kind) = error {
            self.add(&table::STORE_ERRORS, &[call, kind.as_str()], 1);
        }
        let tell = move || self.record(&table::STORE_REQUEST_DURATION, &[call], took);
        if is_background {
            reporter::keep_sample(tell);
        } else {
            tell();
        }
    }

    /// A notice came: `delivered` to a waiter, `unwanted`, or one that says that others were `missed`.
    pub(crate) fn notice(&self, outcome: &'static str) {
        self.add(&table::NOTICES, &[outcome], 1);
    }

    /// The servers of the store were read: the number of them in each state.
    pub(crate) fn members_seen(&self, counts: [usize; ServerState::ALL.len()]) {
        for (count, state) in counts.into_iter().zip(ServerState::ALL) {
            let state = [state.as_str()];
            self.set(&table::STORE_MEMBERS, &state, whole(count));
        }
        note_activity();
    }

    /// A connection that is not made yet. Without a purpose no metric shows it.
    pub(crate) fn connection(
        &'static self,
        purpose: Option<ConnectionPurpose>,
    ) -> Arc<ConnectionGauge> {
        let connection = Arc::new(ConnectionGauge {
            sink: self,
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

    /// Sets the gauges of the connections: one for each purpose that this process has, or had, a connection for. A
    /// connection that is down is 0.
    pub(super) fn survey_connections(&self) {
        let known = self.connections.lock();
        let known: Vec<_> = known.iter().filter_map(Weak::upgrade).collect();
        for purpose in ConnectionPurpose::ALL {
            let of_use = known.iter().filter(|one| one.purpose == Some(purpose));
            let states = of_use.map(|connection| connection.state.load(Ordering::SeqCst));
            let states = states.filter(|state| *state != UNMADE);
            let label = [purpose.as_str()];
            if let Some(is_up) = states
                .map(|state| state == UP)
                .reduce(|all, is_up| all && is_up)
            {
                self.show(&table::STORE_RECONNECTS, &label);
                let is_up = f64::from(u8::from(is_up));
                self.set(&table::STORE_CONNECTED, &label, is_up);
            }
        }
    }
}

#[cfg(feature = "redis")]
impl Sink {
    /// Stores of this kind can wait for replicas: from now on the number of waits is shown, from 0.
    pub(crate) fn has_replicas(&self) {
        (super::AckOutcome::WORDS.into_iter())
            .for_each(|outcome| self.show(&table::REPLICA_ACKS, &[outcome]));
    }

    /// A write waited for replicas.
    pub(crate) fn ack(&self, outcome: super::AckOutcome) {
        self.add(&table::REPLICA_ACKS, &[outcome.as_str()], 1);
    }
}

#[cfg(feature = "quorum")]
impl Sink {
    /// Stores of this kind are quorums.
    pub(crate) fn has_quorums(&self) {
        self.show(&table::QUORUM_TAKEN_BACK, &[]);
        self.show(&table::QUORUM_REPAIRS, &[]);
    }

    /// A claim to a quorum ended after this many rounds. Claims are not made on a thread that must not block.
    pub(crate) fn claimed_in(&self, rounds: usize) {
        super::quietly(|| self.record(&table::QUORUM_ROUNDS, &[], whole(rounds)));
    }

    /// A token brought no grant and is taken back.
    pub(crate) fn taken_back(&self) {
        self.add(&table::QUORUM_TAKEN_BACK, &[], 1);
    }

    /// A lease is put back at a member that lacks it.
    pub(crate) fn repaired(&self) {
        self.add(&table::QUORUM_REPAIRS, &[], 1);
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
    sink: &'static Sink,
    purpose: Option<ConnectionPurpose>,
    state: AtomicU8,
}

impl ConnectionGauge {
    /// The connection was made. Made again after it was lost, it counts as a reconnect.
    pub(crate) fn made(&self) {
        if self.state.swap(UP, Ordering::SeqCst) == BROKEN
            && let Some(purpose) = self.purpose
        {
            self.sink
                .add(&table::STORE_RECONNECTS, &[purpose.as_str()], 1);
        }
        note_activity();
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
        let (set, get) = (Ordering::SeqCst, Ordering::SeqCst);
        // The closure always answers.
        let _ = self.state.fetch_update(set, get, after);
        note_activity();
    }

    /// The connection was closed because it is not needed.
    pub(crate) fn closed(&self) {
        self.state.store(UNMADE, Ordering::SeqCst);
        note_activity();
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
        let store = Sink::of_store("reconnecting");
        let connection = store.connection(Some(ConnectionPurpose::Requests));
        let reconnects = || store.value(&table::STORE_RECONNECTS, &["requests"]);
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
