//! Leases in any storage with a compare-and-set: one record a name, and a put that succeeds only on the version that
//! was read.
//!
//! A storage brings a [`Register`] of a few calls, and [`Records`] makes a store of it. The protocol is the same for
//! all of them, and so are its proofs; `README.md` next to the sources has the rules and the record for other
//! languages.
//!
//! # What such a store keeps
//! - No two machines' clocks are compared. A client takes a record as run out once it has had this version in hand for
//!   the record's whole ttl by its own clock, counted from the *arrival* of the answer that showed it. A holder counts
//!   from *before* its write was sent, so its time is over first.
//! - A client that did not see the record before goes by the storage's own clock, and waits for its
//!   [skew](Expiry::Counted) in addition: a lease is over at most a ttl and [`Facts::grace`](super::spi::Facts) after
//!   its last write. Two holders would need two servers of one storage whose clocks differ by more than that.
//! - Tokens rise, also when the storage loses a record: they follow its clock in microseconds where it tells the time,
//!   and this machine's where it does not.
//! - A record that has been over for an hour is removed, or emptied where the storage removes nothing on a version. Its
//!   token is in the [`MARK`] by then, from which the token of a name without a record is minted.
//!
//! There is no queue: waiting clients poll, and a freed name goes to whichever asks first. Each renewal is a write of
//! its own. It is a store for leaders, jobs and schedules, not for 10,000 names.
//!
//! # A store of one's own
//! `examples/own_storage.rs` has a table of a database as a `Register`, and runs
//! `store::conformance` on it.

#[cfg(feature = "_records")]
mod hazard;
mod observed;
mod register;
mod requests;
mod rules;
mod sweep;
mod value;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;

#[cfg(feature = "_records")]
pub(in crate::store) use self::hazard::clock_apart;
use self::observed::Observed;
pub use self::register::{Expiry, Failure, Put, Register, Seen, Traits, Version, Versioned};
use self::rules::Next;
pub use self::value::Record;
use super::kit::backend::Backend;
use super::kit::budget::Budget;
use super::{
    Answer, Ask, Claim, Eviction, Facts, Grant, Hazard, Held, Member, Notices, Outcome, Purpose,
    Release, Renewal, Renewed,
};
use crate::clock::{Boottime, Clock};
use crate::holder::Holder;
use crate::name::Name;

/// The key of the mark: the highest token of all records that were removed. It is no name, because it has braces.
pub const MARK: &str = "{mark}";

/// The most by which the clocks of the servers of one storage are taken to differ by default.
#[cfg(any(feature = "bucket", feature = "kubernetes"))]
pub(in crate::store) const SKEW: Duration = Duration::from_secs(10);

/// Number of renewals of a batch that are on their way at a time.
const IN_FLIGHT: usize = 32;

/// A store over a storage with a compare-and-set. The [module](self) says what it keeps.
#[derive(Debug)]
pub struct Records<R> {
    register: R,
    clock: Arc<dyn Clock>,
    /// Shared by the connections of a client.
    observed: Arc<Mutex<Observed>>,
    is_closed: AtomicBool,
}

impl<R: Register> Records<R> {
    /// Makes a store of this storage.
    pub fn new(register: R) -> Self {
        Self::with_clock(register, Arc::new(Boottime))
    }

    /// Makes a store that counts the time of records by a clock of the caller's.
    pub fn with_clock(register: R, clock: Arc<dyn Clock>) -> Self {
        Self {
            register,
            clock,
            observed: Arc::default(),
            is_closed: AtomicBool::new(false),
        }
    }

    fn open(&self) -> Result<(), Failure> {
        match self.is_closed.load(Ordering::Relaxed) {
            true => Err(Failure::closed()),
            false => Ok(()),
        }
    }
}

impl<R: Register> Backend for Records<R> {
    type Failure = Failure;

    fn own_facts(&self) -> Facts {
        let traits = self.register.traits();
        let facts = Facts::new(traits.kind)
            .with_least_ttl(traits.least_ttl)
            .with_grace(traits.expiry.grace())
            .with_look_every(traits.look_every);
        match traits.has_notices {
            true => facts.with_notices(),
            false => facts,
        }
    }

    fn own_location(&self) -> &dyn fmt::Display {
        self.register.location()
    }

    fn own_clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    async fn try_acquire(
        &self,
        claim: &Claim,
        ask: Ask,
        budget: Budget,
    ) -> Result<Answer, Failure> {
        let name = claim.name.as_str();
        let mut mark = None;
        let mut hand = self.free_in_hand(name);
        if hand.is_none() {
            hand = self.read(name, budget).await?;
        }
        loop {
            let decided = rules::claim(hand.as_ref(), claim, ask, mark, self.token_time_us())?;
            let revision = match decided {
                Next::Answer(held) => return Ok(Answer::Held(held)),
                Next::ReadMark => {
                    // After the read that showed no record: who removed one had raised the mark before.
                    mark = Some(self.mark_of_a_new_name(claim.holder, budget).await?);
                    continue;
                }
                Next::Write(revision) => *revision,
            };
            let token = revision.record.token;
            if self.write(name, revision, budget).await?
                && let Some(token) = token
            {
                return Ok(Answer::Granted(Grant::new(token)));
            }
            (hand, mark) = (self.read(name, budget).await?, None);
        }
    }

    async fn try_renew(&self, batch: &[Renewal], budget: Budget) -> Renewed {
        let renew = async |renewal: &Renewal| {
            let decide = |hand: Option<&_>| rules::renewal(hand, renewal);
            match self.settle(renewal.name.as_str(), budget, decide).await {
                Ok(denied) => denied.unwrap_or(Outcome::Renewed),
                Err(failure) => Outcome::Unknown(self.error(failure, "renew", &renewal.name)),
            }
        };
        let renewals: Vec<_> = batch.iter().map(renew).collect();
        let outcomes = stream::iter(renewals).buffered(IN_FLIGHT);
        Renewed::new(outcomes.collect().await)
    }

    async fn try_release(
        &self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
        budget: Budget,
    ) -> Result<Release, Failure> {
        let decide = |hand: Option<&_>| rules::release(hand, holder, keep_for);
        let refused = self.settle(name.as_str(), budget, decide).await?;
        Ok(refused.unwrap_or(Release::Released))
    }

    async fn try_notices(&self) -> Result<Option<Box<dyn Notices>>, Failure> {
        self.open()?;
        self.register.notices().await
    }

    async fn try_inspect(&self, name: &Name, budget: Budget) -> Result<Option<Held>, Failure> {
        let hand = self.read(name.as_str(), budget).await?;
        Ok(hand.and_then(|hand| hand.held(name)))
    }

    async fn try_list(&self, prefix: &str, budget: Budget) -> Result<Vec<Held>, Failure> {
        let listed = self.list(prefix, None, budget).await?;
        let mut all = Vec::new();
        for (key, hand) in &listed {
            // A key that is no name is the mark, or one of another program.
            if let Ok(name) = Name::new(key.as_str()) {
                all.extend(hand.held(&name));
            }
        }
        all.sort_by(|one, other| one.name.cmp(&other.name));
        self.sweep(listed, budget).await;
        Ok(all)
    }

    async fn try_evict(&self, name: &Name, how: Eviction, budget: Budget) -> Result<bool, Failure> {
        let decide = |hand: Option<&_>| rules::eviction(hand, how);
        let was_held = self.settle(name.as_str(), budget, decide).await?;
        Ok(was_held.unwrap_or(true))
    }

    async fn try_hazards(&self, budget: Budget) -> Result<Vec<Hazard>, Failure> {
        self.ask(budget, self.register.hazards()).await
    }

    async fn try_members(&self, budget: Budget) -> Result<Vec<Member>, Failure> {
        self.ask(budget, self.register.members()).await
    }

    async fn try_own_connection(&self, purpose: Purpose) -> Result<Self, Failure> {
        self.open()?;
        Ok(Self {
            register: self.register.on_own_connection(purpose).await?,
            clock: self.clock.clone(),
            observed: self.observed.clone(),
            is_closed: AtomicBool::new(false),
        })
    }

    async fn own_close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.register.close().await;
    }
}
