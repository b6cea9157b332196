//! Leases on a quorum of independent Redis or Valkey servers, for when no single one may be trusted to keep its data.
//!
//! # When not to use it
//! **One server and a [fence](crate::fence) is enough for most uses.** A quorum does not make a lease mutual exclusion:
//! a process can be paused between its last check and its write, here as anywhere, and only storage that compares
//! tokens refuses its write. With a quorum, grants and renewals go on while a minority of the servers is down or has
//! lost its data. It costs three or more servers that share no disk, no power line and no failover, twice the work for
//! each request, waiting in no order (there is no queue), and a keep-out: each member that was restarted takes no part
//! for the longest ttl. If your servers run under Sentinel or as a cluster, use [`redis`] with `acknowledged_by`
//! instead.
//!
//! # How to use it
//! ```console
//! $ leasehold init --store redis+quorum://a,b,c?max_ttl=60s
//! ```
//! once, or [`Quorum::init`]; without it a claim fails with `Misconfigured`. From then on the quorum grants.
//!
//! ```no_run
//! # #[tokio::main]
//! # async fn main() -> Result<(), leasehold::Error> {
//! use leasehold::{Client, store::quorum::Quorum};
//!
//! let store = Quorum::open("redis+quorum://a,b,c")?;
//! let client = Client::builder().store(store).build().await?;
//! let lease = client.acquire("nightly-report").await?;
//! # Ok(())
//! # }
//! ```
//!
//! # URLs
//! `redis+quorum://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT],HOST[:PORT][/DB][?max_ttl=60s]`, and `rediss+quorum://` for
//! TLS, with the parameters of a [server alone](super::redis#urls). The credentials are the same for all members;
//! [`Quorum::of`] takes each server with settings of its own. The number of members is odd and at least 3, and all
//! clients list them in the same order. `max_ttl` is the longest ttl: `init` writes it on the members, by default 60 s.
//!
//! # Restarting the members
//! 1. Restart one member.
//! 2. `leasehold status --members` shows it as away, with the time left: the longest ttl.
//! 3. Wait until it is up. Held leases come back to it with their next renewal, within a third of their ttl. Names that
//!    are kept taken come back from its disk, so give the members one (`appendonly yes`).
//! 4. Restart the next.
//! 5. With one member away and another one down, three members grant nothing: do not begin while one is down.
//!
//! # Other members
//! `leasehold init --store NEW --replace OLD` closes the old members and writes the new ones after the longest ttl. OLD
//! is the URL that set up the old ones. All leases end, and nothing is granted during this time. If it stops half-way,
//! run it again. Then shut down the old members that are left out.
//!
//! # What it promises
//! - Tokens rise, and no token is granted twice. This needs no clock while no member is lost. Across a loss, the
//!   keep-out has to be longer than any ttl as the holders measure it; if no majority is in, the clock of the client
//!   that takes the member in has to be ahead of every token.
//! - A lease ends for its holder before another holder gets the name, if each member's clock gains no more than the
//!   margin on the holder's within one ttl.
//! - Once a higher token was granted, the older holder's renewals are refused. This needs no clock while no member is
//!   lost, and the keep-out across a loss.
//! - A holder that asks again gets the token that it already has, if the same store asks, or its watchdog.
//! - What is granted, half granted or on its way runs out at most one ttl after the last member heard of it.
//! - Grants, renewals and releases go on while a majority is in.
//!
//! No disk and no replica is trusted: a member that was restarted or promoted is *away* for the longest ttl, and then
//! comes in without its leases and above all tokens. So does one with the data of another member, as after
//! `REPLICAOF`. Names that are kept taken (`hold_at_least`, and the fires of
//! `once` that were done) come in with it as far as its disk has them: a member that lost its data forgets them.
//!
//! # Its limits
//! 1. **The clocks of members.** If the clock of a member of the granting majority gains more than the margin within
//!    one ttl, two holders may both believe in their leases. The tokens are right, and the fence protects. The same
//!    holds for a member whose clock gains while it keeps out; there a token can fall too.
//! 2. **One dead and one away.** With three members nothing is granted until one of the two is in again. A restart of
//!    one member while another is dead loses the leases that lived on those two. Use five members, or
//!    [replace](Quorum::replace) them.
//! 3. **Data that changes unseen.** No balancer, no address that may go back to a server that was replaced without a
//!    restart, no snapshot of a machine: such a server passes for the one it was, with old data. `leasehold doctor`
//!    names a member whose connections end at two servers; it does not see a balancer that uses one server at a time.
//!    Nor are keys that are deleted by hand or evicted while `<prefix>:node` stays: set `maxmemory-policy noeviction`.
//! 4. **Set-up after a loss of all data.** [`init`](Quorum::init) opens blank servers at once. If all members have lost
//!    their data, wait for the longest ttl before you run it: a holder that was paused believes in its lease for as
//!    long. `init` itself knows only of clients that have asked since.
//! 5. **Evictions across a loss.** If a member that carried out an eviction is lost within the same ttl, the holder may
//!    be renewed once more: evict again.
//!
//! # How it works
//! The client names the token and proposes it to every member at once; a member takes exactly that token, or refuses
//! it. The holder that has a name on a majority holds it, and two majorities share a member, so no token is granted
//! twice and tokens rise. `README.md` in this folder has the rules, what they rest on, and the keys and scripts;
//! `protocol/` has the clients' part as plain functions, which know no clock, no runtime and no connection. The model
//! in `tests/model` runs these as they are, with the members as plain functions too, and the scripts are compared with
//! those, answer by answer.

mod claims;
mod connection;
mod failure;
mod hazards;
mod known;
mod members;
#[cfg(not(feature = "internals"))]
#[expect(unreachable_pub, reason = "the models of the tests call it")]
mod protocol;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod protocol;
mod reads;
mod round;
mod setup;
mod shared;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "internals")]
pub(crate) use self::connection::sources;
pub(crate) use self::setup::to_set_up;

use self::claims::Rounds;
use self::connection::{Act, Members, MergedNotices, NameRequest, QuorumMember};
use self::failure::Failure;
use self::round::Round;
use self::shared::Shared;
use super::kit::backend::Backend;
use super::kit::budget::Budget;
use super::{
    Answer, Ask, Claim, Eviction, Facts, Hazard, Held, HeldState, Member, Notices, Outcome,
    Purpose, Release, Renewal, Renewed, Store as _, redis,
};
use crate::clock::{Boottime, Clock as _};
use crate::error::{Error, ErrorKind};
use crate::holder::Holder;
use crate::name::Name;
use crate::telemetry::Sink;
use crate::token::Token;

/// The label of this kind of store in metrics.
const KIND: &str = "quorum";

/// The longest ttl of a quorum that is set up without one.
pub const MAX_TTL: Duration = Duration::from_secs(60);

/// A store on a quorum of independent Redis or Valkey servers. Its clones are the same store on the same connections.
///
/// It is made without I/O: the first request connects.
#[derive(Debug, Clone)]
pub struct Quorum {
    members: Members,
    shared: Arc<Shared>,
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
    /// The longest ttl is the same for all clients: a claim with a longer one is `Invalid`, and a member that was
    /// restarted takes no part for this long. [`init`](Self::init) writes it on the members (default: 60 s); a client
    /// with a different setting gets `Misconfigured`, and one without the setting takes the members' value.
    ///
    /// # Errors
    /// `Invalid`, with the setting that is refused.
    pub fn of(servers: impl IntoIterator<Item = redis::Builder>) -> Result<Self, Error> {
        let members: Result<Vec<_>, _> = servers.into_iter().map(QuorumMember::new).collect();
        let members = members?;
        for (index, QuorumMember { server, .. }) in members.iter().enumerate() {
            let location = &server.location;
            let why = if members[..index]
                .iter()
                .any(|it| it.server.location == *location)
            {
                "expected different members"
            } else if server.max_ttl != members[0].server.max_ttl {
                "expected the same max_ttl for all members"
            } else if server.acknowledged_by() > 0 {
                "acknowledged_by is of no use in a quorum"
            } else {
                continue;
            };
            return Err(Error::invalid(format!(
                "quorum refused: {why} member={location}"
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
        Ok(Self {
            members: Members::new(members),
            shared: Arc::new(Shared::new(counts)),
        })
    }
}

impl Backend for Quorum {
    type Failure = Failure;

    fn own_facts(&self) -> Facts {
        let told = self.shared.known.lock().as_ref().map(|known| known.max_ttl);
        Facts {
            max_ttl: self.members.max_ttl().or(told),
            ..Facts::new(KIND).with_notices()
        }
    }

    fn own_location(&self) -> &dyn fmt::Display {
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
    async fn try_renew(&self, batch: &[Renewal], budget: Budget) -> Renewed {
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
            let too_few =
                || Failure::too_few(&self.members, round.poll.answered, &round.votes.failures);
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
        // Proposals of a holder without a grant are below the tokens seen or, from another store, behind the clock.
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

    async fn try_notices(&self) -> Result<Option<Box<dyn Notices>>, Failure> {
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
        // A renewal on its way may count for that long.
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

    async fn try_hazards(&self, budget: Budget) -> Result<Vec<Hazard>, Failure> {
        hazards::find(self, budget.left()).await
    }

    async fn try_members(&self, budget: Budget) -> Result<Vec<Member>, Failure> {
        members::ask_each(self, budget.left()).await
    }

    /// A majority of the connections has to be made. They bring the members' report of their quorum, so that the first
    /// claim of a client takes one round.
    async fn try_own_connection(&self, purpose: Purpose) -> Result<Self, Failure> {
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

    async fn own_close(&self) {
        for member in self.members.iter() {
            member.server.close().await;
        }
    }
}
