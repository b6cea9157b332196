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
use super::members::{Act, Members, MergedNotices, NameRequest, QuorumMember};
use super::protocol::{GrantMemory, MembersClock};
use super::round::Round;
use crate::clock::{Boottime, Clock as _, wall_clock_us};
use crate::error::{Error, ErrorKind};
use crate::holder::{ClientId, Holder};
use crate::name::Name;
use crate::store::backend::Backend;
use crate::store::budget::Budget;
use crate::store::{
    Answer, Ask, Claim, Eviction, Facts, Hazard, Held, HeldState, Member, Notices, Outcome,
    Purpose, Release, Renewal, Renewed, Store as _, redis,
};
use crate::telemetry::Sink;
use crate::token::Token;

/// A store on a quorum of independent Redis or Valkey servers. Its clones are the same store on the same connections.
///
/// It is made without I/O: the first request connects.
#[derive(Debug, Clone)]
pub struct Quorum {
    pub(super) members: Members,
    pub(super) shared: Arc<Shared>,
}

/// State that the connections of one store share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) granted: Mutex<GrantMemory>,
    /// The highest mark that members told, and token that was proposed.
    seen: AtomicU64,
    pub(super) known: Mutex<Option<Arc<KnownQuorum>>>,
    clock: Mutex<Option<MembersClock>>,
    pub(super) counts: &'static Sink,
}

impl Quorum {
    /// Makes the store at this URL, `redis+quorum://HOST,HOST,HOST[?max_ttl=60s]`, with the default settings.
    ///
    /// # Errors
    /// `Invalid` for a URL that cannot be used. The message contains no secrets.
    pub fn open(url: &str) -> Result<Self, Error> {
        let urls = redis::each_server(url, KIND).map_err(|why| {
            Error::invalid(format!(
                "store URL refused: {why}; expected redis+quorum://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT],HOST[:PORT][/DB]\
                 [?max_ttl=60s], rediss+quorum:// with TLS, with special characters as %XX"
            ))
        })?;
        Self::of(
            urls.into_iter()
                .map(|url| redis::Builder::new(Ok(url), None)),
        )
    }

    /// Makes the store on these servers, each described by [`Redis::builder`](redis::Redis::builder) as one alone.
    /// The only I/O is that certificate files are read.
    ///
    /// The longest ttl, which is the same for all, is that of a lease: a claim with a longer one is `Invalid`, and a
    /// member that was restarted takes no part for as long. [`init`](Self::init) writes it on the members (default:
    /// 60 s); a client that sets another one than they have gets `Misconfigured`, and one that sets none takes theirs.
    ///
    /// # Errors
    /// `Invalid`, with the setting that is refused.
    pub fn of(servers: impl IntoIterator<Item = redis::Builder>) -> Result<Self, Error> {
        let members: Result<Vec<_>, _> = servers.into_iter().map(QuorumMember::new).collect();
        let members = members?;
        for (index, QuorumMember { server, .. }) in members.iter().enumerate() {
            let place = &server.place;
            let why = if members[..index].iter().any(|it| it.server.place == *place) {
                "expected different members"
            } else if server.max_ttl != members[0].server.max_ttl {
                "expected the same max_ttl for all members"
            } else if server.acknowledged_by() > 0 {
                "acknowledged_by is of no use in a quorum"
            } else {
                continue;
            };
            return Err(Error::invalid(format!(
                "quorum refused: {why} member={place}"
            )));
        }
        let count = members.len();
        if count < 3 || count.is_multiple_of(2) {
            return Err(Error::invalid(format!(
                "quorum refused: expected an odd number of members, at least 3 members={count}"
            )));
        }
        let counts = Sink::of_store(KIND);
        counts.has_quorums();
        let shared = Shared {
            granted: Mutex::default(),
            seen: AtomicU64::new(0),
            known: Mutex::default(),
            clock: Mutex::default(),
            counts,
        };
        Ok(Self {
            members: Members::new(members),
            shared: Arc::new(shared),
        })
    }
}

impl Shared {
    pub(super) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    pub(super) fn note_seen(&self, token: u64) {
        self.seen.fetch_max(token, Ordering::Relaxed);
    }

    /// Takes in what the members' clocks show now.
    pub(super) fn read_clocks(&self, members: impl Iterator<Item = u64>) {
        *self.clock.lock() = MembersClock::read(members.collect(), Boottime.now());
    }

    /// Returns the clock from which tokens are minted.
    pub(super) fn clock_us(&self) -> u64 {
        let (ours, now) = (wall_clock_us(), Boottime.now());
        let members = *self.clock.lock();
        members.map_or(ours, |members| members.bound(ours, now))
    }

    /// Chooses the token to propose, and notes it before it is sent. A proposal that was taken back may be freed at any
    /// later moment by a request on its way, so the next one is above it. Otherwise a wrong choice costs a round and no
    /// promise.
    ///
    /// # Errors
    /// As of [`Token::mint`].
    pub(super) fn propose(&self, floor: Option<Token>) -> Result<Token, Error> {
        // A mark above all tokens leaves none.
        let last = self.seen().clamp(1, Token::MAX.get());
        let token = Token::mint(Token::new(last).ok(), floor, self.clock_us())?;
        self.note_seen(token.get());
        Ok(token)
    }
}

impl Backend for Quorum {
    type Failure = Failure;

    fn describe(&self) -> Facts {
        let told = self.shared.known.lock().as_ref().map(|known| known.max_ttl);
        Facts {
            max_ttl: self.members.max_ttl().or(told),
            ..Facts::new(KIND).with_notices()
        }
    }

    fn place(&self) -> &dyn fmt::Display {
        &self.members
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
        let unknown = |failure: Failure, renewal: &Renewal| {
            Outcome::Unknown(self.error(failure, "renew", &renewal.name))
        };
        let known = match self.known(budget.left()).await {
            Ok(known) => known,
            Err(failure) => {
                let outcomes = batch.iter().map(|of| unknown(failure.clone(), of));
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
            decided.unwrap_or_else(|| unknown(too_few(), renewal))
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
        let token = granted.or_else(|| self.shared.propose(None).ok());
        let (token, ttl) = (token.unwrap_or(Token::MAX), keep_for.unwrap_or_default());
        let asked = NameRequest::new(name, holder, token, ttl);
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
        self.leases(prefix, budget).await
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
        let connected = Self {
            members: self.members.beside(purpose),
            shared: self.shared.clone(),
        };
        connected.learn(self.members.connect_timeout()).await?;
        Ok(connected)
    }

    async fn end(&self) {
        for member in self.members.iter() {
            member.server.close().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposal_is_above_all_marks_and_a_mark_above_all_tokens_leaves_none() {
        let shared = Shared {
            granted: Mutex::default(),
            seen: AtomicU64::new(0),
            known: Mutex::default(),
            clock: Mutex::default(),
            counts: Sink::of_store(KIND),
        };
        let first = shared.propose(None).expect("a token");
        assert!(shared.propose(None).expect("a token") > first);
        shared.note_seen(1 << 52);
        let above = shared.propose(Token::new(1).ok()).expect("a token");
        assert_eq!(above.get(), (1 << 52) + 1);
        shared.note_seen(u64::MAX);
        let error = shared.propose(None).expect_err("none is left");
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
    }
}
