//! The store on a quorum of servers, and the calls of the contract, each asked of all members.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::KIND;
use super::claims::Rounds;
use super::failure::Failure;
use super::known::KnownQuorum;
use super::members::{Act, Failures, Members, MergedNotices, NameRequest};
use super::protocol::{GrantMemory, propose};
use super::round::Round;
use crate::clock::{Boottime, Clock as _, wall_clock_us};
use crate::error::ErrorKind;
use crate::holder::{ClientId, Holder};
use crate::name::Name;
use crate::store::backend::Backend;
use crate::store::budget::Budget;
use crate::store::{
    Answer, Ask, Claim, Eviction, Facts, Hazard, Held, HeldState, Member, Notices, Outcome,
    Purpose, Release, Renewal, Renewed, Store as _,
};
use crate::telemetry::Sink;
use crate::token::Token;

/// Says how many names one call reads; reading a whole lease costs a member more than a renewal.
const BATCH: usize = 128;

/// A store on a quorum of independent Redis or Valkey servers.
///
/// It is made without I/O: the first request connects.
pub struct Quorum {
    pub(super) members: Members,
    pub(super) shared: Arc<Shared>,
}

/// State that the connections of one store share.
pub(super) struct Shared {
    pub(super) granted: Mutex<GrantMemory>,
    /// The highest mark that members told, and token that was proposed.
    seen: AtomicU64,
    pub(super) known: Mutex<Option<Arc<KnownQuorum>>>,
    /// As the settings have it.
    pub(super) max_ttl: Option<Duration>,
    pub(super) connect_timeout: Duration,
    /// Where the members are, without secrets.
    place: String,
    pub(super) counts: &'static Sink,
}

impl Quorum {
    pub(super) fn of(
        members: Members,
        max_ttl: Option<Duration>,
        connect_timeout: Duration,
    ) -> Self {
        let counts = Sink::of_store(KIND);
        counts.has_quorums();
        let shared = Shared {
            granted: Mutex::default(),
            seen: AtomicU64::new(0),
            known: Mutex::default(),
            max_ttl,
            connect_timeout,
            place: format!("quorum of {}", members.places()),
            counts,
        };
        Self {
            members,
            shared: Arc::new(shared),
        }
    }

    /// Returns the same store on the same connections, for a task.
    pub(super) fn share(&self) -> Self {
        self.on(self.members.clone())
    }

    fn on(&self, members: Members) -> Self {
        Self {
            members,
            shared: self.shared.clone(),
        }
    }

    pub(super) fn too_few(&self, answered: usize, failures: &Failures) -> Failure {
        Failure::too_few(&self.members, answered, failures)
    }
}

impl Shared {
    pub(super) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    pub(super) fn note_seen(&self, token: u64) {
        self.seen.fetch_max(token, Ordering::Relaxed);
    }
}

impl Backend for Quorum {
    type Failure = Failure;

    fn describe(&self) -> Facts {
        let facts = Facts::new(KIND).with_notices();
        let told = self.shared.known.lock().as_ref().map(|known| known.max_ttl);
        match self.shared.max_ttl.or(told) {
            Some(max_ttl) => facts.with_max_ttl(max_ttl),
            None => facts,
        }
    }

    fn place(&self) -> &dyn fmt::Display {
        &self.shared.place
    }

    async fn try_acquire(
        &self,
        claim: &Claim,
        ask: Ask,
        budget: Budget,
    ) -> Result<Answer, Failure> {
        Rounds::run(self, claim, ask, budget).await
    }

    /// Members that do not answer in time are asked and repaired all the same.
    async fn renew_all(&self, batch: &[Renewal], budget: Budget) -> Renewed {
        let unknown = |failure: &Failure, renewal: &Renewal| {
            Outcome::Unknown(self.error(failure.clone(), "renew", &renewal.name))
        };
        let known = match self.known(budget.left()).await {
            Ok(known) => known,
            Err(failure) => {
                let outcomes = batch.iter().map(|renewal| unknown(&failure, renewal));
                return Renewed::new(outcomes.collect());
            }
        };
        let forget_at = Boottime.now().after(known.max_ttl * 2);
        let asked = batch.iter().map(|of| {
            self.shared.granted.lock().extend(of.holder, forget_at);
            NameRequest::new(&of.name, of.holder, of.token, of.ttl)
        });
        let (asked, members) = (asked.collect(), self.members.all());
        let mut round = self.begin(&known, Act::Renew, asked, members, budget.left());
        let decided = |round: &Round| -> Vec<Option<Outcome>> {
            let each = batch.iter().zip(&round.votes.each);
            each.map(|(renewal, answers)| answers.renewing(renewal.holder))
                .collect()
        };
        while decided(&round).iter().any(Option::is_none) && round.next().await.is_some() {}
        let outcomes = decided(&round).into_iter().zip(batch);
        let outcomes = outcomes.map(|(decided, renewal)| {
            let too_few = || self.too_few(round.poll.answered, &round.votes.failures);
            decided.unwrap_or_else(|| unknown(&too_few(), renewal))
        });
        let renewed = Renewed::new(outcomes.collect());
        round.go_on();
        renewed
    }

    /// A member that is silent gets the release once it answers.
    async fn try_release(
        &self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
        budget: Budget,
    ) -> Result<Release, Failure> {
        let granted = self.shared.granted.lock().of(holder).map(|of| of.token);
        // What a holder proposed without a grant is behind what was seen or, by another store, behind the clock.
        let token = granted.or_else(|| propose(wall_clock_us(), self.shared.seen(), None));
        let (token, ttl) = (token.unwrap_or(Token::MAX), keep_for.unwrap_or_default());
        let asked = NameRequest::new(name, holder, token, ttl);
        self.shared.note_seen(token.get());
        let told = self.of_majority(Act::Release, asked, budget).await?;
        self.shared.granted.lock().forget(holder);
        // A lease on fewer members had ended: another holder may have been granted the name since.
        Ok(match told.has_majority() {
            true => Release::Released,
            false => Release::NotHeld,
        })
    }

    /// There is no queue to leave.
    async fn try_leave(&self, _: &Name, _: ClientId, _: Budget) -> Result<(), Failure> {
        Ok(())
    }

    async fn subscribe(&self) -> Result<Option<Box<dyn Notices>>, Failure> {
        Ok(Some(Box::new(MergedNotices::of(&self.members).await?)))
    }

    async fn try_inspect(&self, name: &Name, budget: Budget) -> Result<Option<Held>, Failure> {
        let seen = self.seen(name, budget).await?;
        Ok(seen.map(|seen| seen.held))
    }

    async fn try_list(&self, prefix: &str, budget: Budget) -> Result<Vec<Held>, Failure> {
        let names = self.names(prefix, budget).await?;
        let mut list = Vec::new();
        for batch in names.chunks(BATCH) {
            let asked = batch.iter().map(NameRequest::inspecting).collect();
            let votes = self.by_majority(Act::Inspect, asked, budget).await?;
            // A key that is another program's is not a lease.
            for told in &votes.each {
                list.extend(self.agreed(told)?.map(|seen| seen.held));
            }
        }
        Ok(list)
    }

    async fn try_evict(&self, name: &Name, how: Eviction, budget: Budget) -> Result<bool, Failure> {
        let known = self.known(budget.left()).await?;
        let Some(seen) = self.seen(name, budget).await? else {
            return Ok(false);
        };
        if seen.held.state == HeldState::Kept && how == Eviction::Marked {
            return Ok(false);
        }
        let asked = |ttl| NameRequest::new(name, seen.lease.holder, seen.lease.token, ttl);
        // A renewal that is on its way may count for as long as that.
        let evicting = asked(known.max_ttl + budget.left());
        let told = self.of_majority(Act::Evict, evicting, budget).await?;
        if told.taken().count() >= self.members.majority() {
            return Ok(false);
        }
        if !told.has_majority() {
            let why = "too few members are in, evict again";
            return Err(Failure::new(ErrorKind::Unavailable, why));
        }
        if how == Eviction::Now {
            let freeing = asked(Duration::ZERO);
            self.of_majority(Act::Release, freeing, budget).await?;
        }
        Ok(true)
    }

    async fn look_for_hazards(&self, limit: Duration) -> Result<Vec<Hazard>, Failure> {
        self.find_hazards(limit).await
    }

    async fn look_at_members(&self, limit: Duration) -> Result<Vec<Member>, Failure> {
        self.see_members(limit).await
    }

    /// A majority of the connections has to be made. They bring what the members tell of their quorum, so that the
    /// first claim of a client is one round.
    async fn connected(&self, purpose: Purpose) -> Result<Self, Failure> {
        if self.members.iter().any(|member| member.server.is_closed()) {
            return Err(Failure::new(ErrorKind::Closed, "store is closed"));
        }
        let connected = self.on(self.members.beside(purpose));
        connected.learn(self.shared.connect_timeout).await?;
        Ok(connected)
    }

    async fn end(&self) {
        for member in self.members.iter() {
            member.server.close().await;
        }
    }
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quorum")
            .field("location", &self.shared.place)
            .field("max_ttl", &self.shared.max_ttl)
            .finish_non_exhaustive()
    }
}
