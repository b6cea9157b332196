//! Remembers what one client saw and did. This saves requests; where it is wrong, a comparison at the server
//! finds that out.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::watch;

use super::protocol::reading::NameReading;
use super::protocol::stamp::LeaderClock;
use super::protocol::tree::Children;
use super::protocol::wire::Stat;
use crate::clock::Instant;
use crate::holder::{ClientId, Holder};
use crate::name::Name;
use crate::store::{Ask, Claim};
use crate::token::Token;

/// Number of entries of one kind before outdated ones are dropped.
const ENOUGH: usize = 4096;

/// Shared by all sessions of a client.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    pub(super) clock: LeaderClock,
    pub(super) leases: HashMap<Holder, OwnLease>,
    /// The claims that wait: each client's place is that of its last one.
    waiting: HashMap<(Name, ClientId), Holder>,
    /// Names that are free or have reached this client's turn, as far as it knows.
    known: HashMap<Name, NameReading>,
    /// The latest change of each followed name that a session has seen.
    followed: HashMap<Name, watch::Sender<i64>>,
    /// The longest ttl that was granted here.
    longest: Duration,
}

/// A lease of this client.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnLease {
    pub(super) token: Token,
    /// The version of its name when it was granted. `None` if other clients were in the queue then: they will not raise
    /// it any more.
    pub(super) version: Option<i32>,
    pub(super) ttl: Duration,
    /// When the last confirmed renewal was answered.
    pub(super) renewed_at: Instant,
}

impl Remembered {
    /// Records that a lease was granted.
    pub(super) fn granted(&mut self, name: &Name, holder: Holder, lease: OwnLease) {
        if self.leases.len() > ENOUGH && self.leases.len() == self.leases.capacity() {
            // Drops leases that were given up without a release.
            let is_young = |it: &OwnLease| lease.renewed_at.since(it.renewed_at) <= it.ttl * 2;
            self.leases.retain(|_, lease| is_young(lease));
        }
        self.known.remove(name);
        self.longest = self.longest.max(lease.ttl);
        self.leases.insert(holder, lease);
    }

    /// Records that a renewal was confirmed.
    pub(super) fn renewed(&mut self, holder: Holder, ttl: Duration, now: Instant) {
        if let Some(lease) = self.leases.get_mut(&holder) {
            lease.ttl = ttl;
            lease.renewed_at = now;
        }
    }

    /// Records that the release of this lease was answered. The name is free unless another client joined the queue
    /// since the grant, which raises its version.
    pub(super) fn freed(&mut self, name: &Name, path: String, lease: OwnLease) {
        if let Some(version) = lease.version {
            let children = Children {
                token: Some(lease.token),
                ..Children::default()
            };
            let stat = Stat {
                version,
                ..Stat::default()
            };
            self.know(name, NameReading::untaken(path, Some(stat), children));
        }
    }

    /// Records that this name can be granted to this client, as it was read.
    pub(super) fn know(&mut self, name: &Name, reading: NameReading) {
        if self.known.len() > ENOUGH {
            self.known.clear();
        }
        self.known.insert(name.clone(), reading);
    }

    /// Takes out how this name was when it could be granted to this client. With a queue it is for a claim in the queue
    /// only.
    pub(super) fn take_known(&mut self, name: &Name, ask: Ask) -> Option<NameReading> {
        let known = self.known.remove(name)?;
        (ask.queued.is_some() || known.children.queue.is_empty()).then_some(known)
    }

    /// Remembers the latest change of this name that a session has seen, from now on. The receiver is marked as changed
    /// when this client joins the queue: what it has to watch from then on depends on its place.
    pub(super) fn follow(&mut self, name: &Name) -> watch::Receiver<i64> {
        if self.followed.len() > ENOUGH && self.followed.len() == self.followed.capacity() {
            self.followed.retain(|_, seen| seen.receiver_count() > 0);
        }
        self.followed.entry(name.clone()).or_default().subscribe()
    }

    /// Records that a session has seen this change of the name, after others had seen at least another one. If it is an
    /// earlier one, the servers lost their data, and number their writes anew.
    pub(super) fn saw(&self, name: &Name, zxid: i64, at_least: i64) {
        if let Some(seen) = self.followed.get(name) {
            seen.send_if_modified(|seen| {
                // Unless another reading, or a place in the queue, has shown more since.
                let is_renumbered = zxid < at_least && *seen == at_least;
                *seen = if is_renumbered { zxid } else { zxid.max(*seen) };
                false
            });
        }
    }

    /// Records that the place of this claim's client is that of this claim.
    pub(super) fn waits(&mut self, claim: &Claim) {
        let place = (claim.name.clone(), claim.holder.client());
        self.waiting.insert(place, claim.holder);
    }

    /// Returns whether the place of this claim's client is that of this claim.
    pub(super) fn is_waiting(&self, name: &Name, holder: Holder) -> bool {
        self.waiting.get(&(name.clone(), holder.client())) == Some(&holder)
    }

    /// Records that this claim does not wait any more.
    pub(super) fn waits_no_more(&mut self, name: &Name, holder: Holder) {
        if self.is_waiting(name, holder) {
            self.waiting.remove(&(name.clone(), holder.client()));
        }
    }

    /// Records that this client has joined the queue of the name.
    pub(super) fn joined(&self, name: &Name, zxid: i64) {
        if let Some(seen) = self.followed.get(name) {
            seen.send_modify(|seen| *seen = zxid.max(*seen));
        }
    }

    /// Returns the latest change of this name that a session has seen; 0 if the name is not followed.
    pub(super) fn seen(&self, name: &Name) -> i64 {
        self.followed.get(name).map_or(0, |seen| *seen.borrow())
    }

    /// Returns whether the stamps of all leases that are held come from one leader.
    pub(super) fn is_settled(&self, now: Instant) -> bool {
        self.clock.is_settled_for(self.longest, now)
    }
}

impl OwnLease {
    /// Returns whether the lease has run out by this client's clock: the server began its term before it answered.
    pub(super) fn has_run_out(&self, now: Instant) -> bool {
        now.since(self.renewed_at) > self.ttl + Duration::from_millis(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::ClientId;
    use crate::store::Queued;

    const SPAN: Duration = Duration::from_secs(2);
    const HOLDER: Holder = Holder::new(ClientId::from_u128(1), 1);

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn name() -> Name {
        Name::new("a").expect("a name")
    }

    fn lease(version: Option<i32>) -> OwnLease {
        OwnLease {
            token: Token::new(7).expect("a token"),
            version,
            ttl: SPAN,
            renewed_at: at(0),
        }
    }

    #[test]
    fn a_name_is_free_only_after_an_answered_release_and_once() {
        let mut remembered = Remembered::default();
        let taken = |remembered: &mut Remembered| {
            let known = remembered.take_known(&name(), Ask::default());
            known.and_then(|it| it.version())
        };
        remembered.granted(&name(), HOLDER, lease(Some(3)));
        assert_eq!(taken(&mut remembered), None);
        let released = remembered.leases.remove(&HOLDER).expect("it is ours");
        remembered.freed(&name(), "/a".into(), released);
        assert_eq!(taken(&mut remembered), Some(3));
        assert_eq!(taken(&mut remembered), None);
    }

    #[test]
    fn a_name_for_which_others_wait_is_not_free_after_its_release() {
        let mut remembered = Remembered::default();
        remembered.freed(&name(), "/a".into(), lease(None));
        assert!(remembered.take_known(&name(), Ask::default()).is_none());
    }

    #[test]
    fn a_turn_is_for_a_claim_in_the_queue() {
        let mut remembered = Remembered::default();
        let place = format!("q-{}-0000000001", HOLDER.client());
        let turn = Children::read(&[place, "t-0000000000000005".into()]);
        for (queued, is_known) in [(None, false), (Some(Queued::new(Duration::MAX)), true)] {
            let reading = NameReading::untaken("/a".into(), Some(Stat::default()), turn.clone());
            remembered.know(&name(), reading);
            let known = remembered.take_known(&name(), Ask::default().with_queued(queued));
            assert_eq!(known.is_some(), is_known);
        }
    }

    #[test]
    fn a_lease_has_run_out_one_ttl_after_its_last_renewal() {
        let mut remembered = Remembered::default();
        remembered.granted(&name(), HOLDER, lease(Some(3)));
        remembered.renewed(HOLDER, SPAN, at(1_000));
        let lease = remembered.leases[&HOLDER];
        assert!(!lease.has_run_out(at(3_000)));
        assert!(lease.has_run_out(at(3_002)));
    }
}
