//! The calls of the contract, each asked of all members.

use std::fmt;
use std::time::Duration;

use super::KIND;
use super::claims::Rounds;
use super::failure::Failure;
use super::known::KnownQuorum;
use super::members::{Act, MergedNotices, NameRequest, SeenLease, SoughtNames};
use super::protocol::{Answers, MemberAnswer, RenewalOutcome, majority, propose};
use super::round::Round;
use super::store::Quorum;
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
use crate::token::Token;

impl Quorum {
    /// Asks all members, and returns what a majority answered, or more. Each lease that a majority has is at one of
    /// them. Where another lease is in the way, or a member is away, the others are awaited, too.
    async fn by_majority(
        &self,
        known: &KnownQuorum,
        act: Act,
        asked: NameRequest,
        budget: Budget,
    ) -> Result<Answers<Box<SeenLease>>, Failure> {
        let enough = majority(self.members.len());
        let (asked, members) = (vec![asked], self.members.all());
        let mut round = Round::begin(self, known, act, asked, members, budget.left());
        let is_open = |answers: &Answers<_>| {
            let freed = answers.yes().count();
            let had_none = answers.count_of(|answer| matches!(answer, MemberAnswer::NotHeld));
            // A member that had nothing to free may be one that never had the lease: the others are awaited, too.
            freed + had_none < enough || act == Act::Release && 0 < freed && freed < enough
        };
        while is_open(round.votes().answers()) && round.next().await.is_some() {}
        let mut votes = round.close();
        let told = votes.answers().told().count();
        match told >= enough {
            true => Ok(votes.each.swap_remove(0)),
            false => Err(self.too_few(told, &votes.failures)),
        }
    }
}

impl Backend for Quorum {
    type Failure = Failure;

    fn describe(&self) -> Facts {
        let facts = Facts::new(KIND).with_notices();
        let told = self.shared.known().as_ref().map(|known| known.max_ttl);
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
        for renewal in batch {
            self.shared.memory().extend(renewal.holder, forget_at);
        }
        let asked = batch.iter().map(|renewal| {
            NameRequest::new(&renewal.name, renewal.holder, renewal.token, renewal.ttl)
        });
        let (asked, members) = (asked.collect(), self.members.all());
        let mut round = Round::begin(self, &known, Act::Renew, asked, members, budget.left());
        let decided = |round: &Round| -> Vec<RenewalOutcome> {
            let each = batch.iter().zip(&round.votes().each);
            each.map(|(renewal, answers)| answers.renewing(renewal.holder))
                .collect()
        };
        while decided(&round).contains(&RenewalOutcome::Unknown) && round.next().await.is_some() {}
        let outcomes = decided(&round).into_iter().zip(batch);
        let outcomes = outcomes.map(|(decided, renewal)| match decided {
            RenewalOutcome::Renewed => Outcome::Renewed,
            RenewalOutcome::Refused => Outcome::Refused,
            RenewalOutcome::Evicted => Outcome::Evicted,
            RenewalOutcome::Unknown => {
                let failure = self.too_few(round.answered(), &round.votes().failures);
                unknown(&failure, renewal)
            }
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
        let known = self.known(budget.left()).await?;
        let last = self.shared.memory().last(holder).map(|last| last.token);
        // Of a holder that this store does not know, everything that it proposed is behind the clock and what was seen.
        let token = last.or_else(|| propose(wall_clock_us(), self.shared.seen(), None));
        let (token, ttl) = (token.unwrap_or(Token::MAX), keep_for.unwrap_or_default());
        let asked = NameRequest::new(name, holder, token, ttl);
        self.shared.note_seen(token.get());
        let told = self
            .by_majority(&known, Act::Release, asked, budget)
            .await?;
        self.shared.memory().forget(holder);
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
        let notices = MergedNotices::of(&self.members).await;
        let notices = notices.map_err(Failure::of)?;
        Ok(Some(Box::new(notices)))
    }

    async fn try_inspect(&self, name: &Name, budget: Budget) -> Result<Option<Held>, Failure> {
        let known = self.known(budget.left()).await?;
        let seen = self
            .seen(&known, SoughtNames::One(name.clone()), budget)
            .await?;
        Ok(seen.into_iter().next().map(|seen| seen.held))
    }

    async fn try_list(&self, prefix: &str, budget: Budget) -> Result<Vec<Held>, Failure> {
        let known = self.known(budget.left()).await?;
        let names = SoughtNames::WithPrefix(prefix.to_owned());
        let seen = self.seen(&known, names, budget).await?;
        Ok(seen.into_iter().map(|seen| seen.held).collect())
    }

    async fn try_evict(&self, name: &Name, how: Eviction, budget: Budget) -> Result<bool, Failure> {
        let known = self.known(budget.left()).await?;
        let seen = self
            .seen(&known, SoughtNames::One(name.clone()), budget)
            .await?;
        let Some(SeenLease { lease, held }) = seen.into_iter().next() else {
            return Ok(false);
        };
        if held.state == HeldState::Kept && how == Eviction::Marked {
            return Ok(false);
        }
        // A renewal that is on its way may count for as long as that.
        let ttl = known.max_ttl + budget.left();
        let evicted = NameRequest::new(name, lease.holder, lease.token, ttl);
        let told = self
            .by_majority(&known, Act::Evict, evicted.clone(), budget)
            .await?;
        if told.taken().count() >= majority(self.members.len()) {
            return Ok(false);
        }
        if !told.has_majority() {
            let why = "too few members are in, evict again";
            return Err(Failure::new(ErrorKind::Unavailable, why));
        }
        if how == Eviction::Now {
            let ttl = Duration::ZERO;
            let freed = NameRequest { ttl, ..evicted };
            self.by_majority(&known, Act::Release, freed, budget)
                .await?;
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
        if self.members.is_closed() {
            return Err(Failure::new(ErrorKind::Closed, "store is closed"));
        }
        let connected = Self::on(self.members.beside(purpose), self.shared.clone());
        connected.learn(self.shared.connect_timeout).await?;
        Ok(connected)
    }

    async fn end(&self) {
        for member in self.members.iter() {
            member.server.close().await;
        }
    }
}
