//! A server as a member of a quorum: the same connections as for a server alone, and scripts of its own to vote, to free
//! and to evict. Renewals, looks and notices are those of a server alone, because the lease has the same form.

use std::fmt;
use std::time::Duration;

use deadpool_redis::redis::Value;

use super::budget::Budget;
use super::failure::Failure;
use super::fleet::Fleet;
use super::link::Request;
use super::run::MemberClock;
use super::scripts::SCRIPTS;
use super::{
    Builder, KIND, PUBLISH, REPLACE_EVERY, Redis, hazards, millis, notices, replace_every, reply,
};
use crate::error::ErrorKind;
use crate::holder::Holder;
use crate::name::Name;
use crate::store::quorum::{Freed, Proposal, Purpose, TakenBack, Tenure, Vote};
use crate::store::{
    Error, Eviction, Failed, Hazard, Held, HeldState, Info, Lane, Member, MemberState, Notices,
    Renewal, Renewed, Store,
};
use crate::token::Token;

/// A server as a member of a quorum.
pub(in crate::store) struct RedisMember {
    redis: Redis,
    max_ttl: Duration,
}

/// A member's answer to a proposal.
#[derive(Debug)]
pub(in crate::store) struct Voted {
    pub(in crate::store) vote: Vote,
    /// More about the lease, where another holder has the name.
    pub(in crate::store) held: Option<Box<Held>>,
    /// The member's clock, in microseconds since 1970, if it told it.
    pub(in crate::store) clock_us: Option<u64>,
}

impl RedisMember {
    /// Makes the member at the URL of this builder.
    ///
    /// # Errors
    /// `Invalid`, with the setting that is refused.
    pub(in crate::store) fn new(server: Builder, max_ttl: Duration) -> Result<Self, Error> {
        let redis = server.max_ttl(max_ttl).of_quorum().build()?;
        Ok(Self { redis, max_ttl })
    }

    /// Returns where it is, for people to read and without secrets.
    pub(in crate::store) fn place(&self) -> &str {
        &self.redis.place
    }

    /// Returns the same member on a connection of its own, which is not made so far.
    pub(in crate::store) fn beside(&self, lane: Lane) -> Self {
        Self {
            redis: self.redis.beside(lane),
            max_ttl: self.max_ttl,
        }
    }

    /// Makes the connection of the calling runtime now, and returns what the server told of its clock then.
    pub(in crate::store) async fn meet(&self) -> Result<Option<MemberClock>, Error> {
        let met = match &self.redis.fleet {
            Fleet::One(server, _) => server.lanes.meet_member().await,
            Fleet::Many(_) => Ok(None),
        };
        met.map_err(|failure| self.redis.error_of_all(failure, "connect"))
    }

    pub(in crate::store) fn is_closed(&self) -> bool {
        self.redis.fleet.is_closed()
    }

    pub(in crate::store) async fn close(&self) {
        self.redis.close().await;
    }

    /// Proposes a token for a name. The member takes exactly that one or refuses it.
    pub(in crate::store) async fn hold(
        &self,
        name: &Name,
        proposal: &Proposal,
        info: &Info,
        limit: Duration,
    ) -> Result<Voted, Failed> {
        let told = self
            .try_hold(name, proposal, info, Budget::new(limit))
            .await;
        told.map_err(|failure| Failed {
            sent: failure.sent(),
            error: self.redis.error(failure, "acquire", name),
        })
    }

    async fn try_hold(
        &self,
        name: &Name,
        proposal: &Proposal,
        info: &Info,
        budget: Budget,
    ) -> Result<Voted, Failure> {
        let info = serde_json::to_string(info).expect("text and numbers become JSON");
        let [lease, counter] = self.keys(name);
        let mut call = SCRIPTS.hold.call([lease, counter, self.redis.keys.node()]);
        call.arg(proposal.holder.to_string())
            .arg(millis(proposal.ttl))
            .arg(match proposal.purpose {
                Purpose::Claim => "claim",
                Purpose::Repair => "repair",
            })
            .arg(proposal.token.get())
            .arg(info);
        let request = Request::Claim(&call);
        let replace_every = replace_every(proposal.ttl);
        let reply = self.redis.fleet.run(name, request, budget, replace_every);
        let told = voted(&reply.await?, name)?;
        if matches!(told.vote, Vote::Yes(_)) {
            self.redis.fleet.note_write();
        }
        Ok(told)
    }

    /// Takes back what this holder took.
    pub(in crate::store) async fn take_back(
        &self,
        name: &Name,
        holder: Holder,
        taken: TakenBack,
        limit: Duration,
    ) -> Result<Freed, Error> {
        let numbers = [taken.token.get(), taken.above.map_or(0, Token::get)];
        let freed = self.try_free(name, holder, "take_back", &numbers, limit);
        let freed = freed.await;
        freed.map_err(|failure| self.redis.error(failure, "take back a claim", name))
    }

    /// Releases the name if this holder has it.
    pub(in crate::store) async fn release(
        &self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
        limit: Duration,
    ) -> Result<Freed, Error> {
        let keep = [keep_for.map_or(0, millis)];
        let freed = self.try_free(name, holder, "release", &keep, limit).await;
        freed.map_err(|failure| self.redis.error(failure, "release", name))
    }

    async fn try_free(
        &self,
        name: &Name,
        holder: Holder,
        how: &str,
        numbers: &[u64],
        limit: Duration,
    ) -> Result<Freed, Failure> {
        let mut call = SCRIPTS.free.call(self.keys(name));
        call.arg(holder.to_string())
            .arg(how)
            .arg(PUBLISH)
            .arg(numbers);
        let reply = self.run(name, &call, limit).await?;
        match reply::tagged(&reply)? {
            ("freed", []) => Ok(Freed::Freed),
            ("not_held", []) => Ok(Freed::NotHeld),
            _ => Err(reply::refusal(&reply)),
        }
    }

    /// Evicts the holder. Returns whether the name was held at this member.
    pub(in crate::store) async fn evict(
        &self,
        name: &Name,
        how: Eviction,
        limit: Duration,
    ) -> Result<bool, Error> {
        let mut call = SCRIPTS.evict_member.call(self.keys(name));
        call.arg(match how {
            Eviction::Marked => "marked",
            Eviction::Now => "now",
        })
        .arg(PUBLISH);
        let reply = self.run(name, &call, limit).await;
        let evicted = reply.and_then(|reply| reply::evicted(&reply));
        evicted.map_err(|failure| self.redis.error(failure, "evict", name))
    }

    /// Extends the leases of these grants: one outcome for each, in order.
    pub(in crate::store) async fn renew(&self, batch: &[Renewal], limit: Duration) -> Renewed {
        self.redis.renew(batch, limit).await
    }

    /// Returns the lease that this member has of the name.
    pub(in crate::store) async fn inspect(
        &self,
        name: &Name,
        limit: Duration,
    ) -> Result<Option<Held>, Error> {
        let seen = self.redis.inspect(name, limit).await?;
        Ok(seen.map(without_a_queue))
    }

    /// Returns the leases of all names with this prefix that this member has.
    pub(in crate::store) async fn list(
        &self,
        prefix: &str,
        limit: Duration,
    ) -> Result<Vec<Held>, Error> {
        let list = self.redis.list(prefix, limit).await?;
        Ok(list.into_iter().map(without_a_queue).collect())
    }

    /// Opens a subscription. If the server cannot be reached now, it begins to listen once it can.
    ///
    /// # Errors
    /// `Denied` if this user may not subscribe, and the other errors that last.
    pub(in crate::store) async fn notices(&self) -> Result<Box<dyn Notices>, Error> {
        let redis = &self.redis;
        let address = match &redis.fleet {
            Fleet::One(..) => redis.fleet.ear(),
            Fleet::Many(_) => None,
        };
        let ear = address.expect("a member has one address");
        let limit = redis.connect_timeout;
        let counts = super::counts(true);
        let now = notices::subscribe(ear.clone(), &redis.keys, counts, limit).await;
        let subscribed = match now.as_ref().map_err(Failure::kind) {
            Err(ErrorKind::Unavailable | ErrorKind::TimedOut) => {
                notices::subscribe_later(ear, &redis.keys, counts, limit).await
            }
            _ => now,
        };
        match subscribed {
            Ok(subscription) => Ok(Box::new(subscription)),
            Err(failure) => Err(redis.error_of_all(failure, "subscribe")),
        }
    }

    /// Returns whether it answers, and whether it takes part in claims.
    pub(in crate::store) async fn look(&self, limit: Duration) -> Result<Member, Error> {
        let member = self.try_look(Budget::new(limit)).await;
        member.map_err(|failure| self.redis.error_of_all(failure, "check the servers"))
    }

    async fn try_look(&self, budget: Budget) -> Result<Member, Failure> {
        let Fleet::One(server, _) = &self.redis.fleet else {
            return Err(Failure::Odd("a member is one server".into()));
        };
        let mut member = hazards::see_one(server, budget).await?;
        if member.state != MemberState::Up {
            return Ok(member);
        }
        let mut look = deadpool_redis::redis::pipe();
        look.cmd("TIME");
        look.cmd("INFO").arg("server");
        look.cmd("HMGET")
            .arg(self.redis.keys.node())
            .arg("run")
            .arg("ready");
        let replies = server
            .lanes
            .request_all(&look, budget, REPLACE_EVERY)
            .await?;
        let [time, info, row] =
            <[Value; 3]>::try_from(replies).map_err(|_| Failure::Odd("too few replies".into()))?;
        let now = reply::time(&reply::no_error(time)?)?;
        let run = hazards::lines(&reply::no_error(info)?).remove("run_id");
        let row = reply::no_error(row)?;
        let remaining = match reply::items(&row)? {
            [known, ready] if reply::text(known).ok() == run.as_deref() => {
                Duration::from_micros(reply::number(ready)?).saturating_sub(now)
            }
            // The first claim writes that its data is lost. If every write is on its disk, it then takes part at once.
            [_, _] => crate::store::quorum::keep_out(self.max_ttl),
            _ => return Err(reply::odd(&row)),
        };
        if !remaining.is_zero() {
            member.state = MemberState::Away { remaining };
        }
        Ok(member)
    }

    /// Returns the faults of its set-up.
    pub(in crate::store) async fn hazards(&self, limit: Duration) -> Result<Vec<Hazard>, Error> {
        self.redis.hazards(limit).await
    }

    fn keys(&self, name: &Name) -> [String; 2] {
        let keys = &self.redis.keys;
        [keys.lease(name), keys.counter(name)]
    }

    async fn run(
        &self,
        name: &Name,
        call: &deadpool_redis::redis::Cmd,
        limit: Duration,
    ) -> Result<Value, Failure> {
        let fleet = &self.redis.fleet;
        let reply = fleet.run(name, Request::One(call), Budget::new(limit), REPLACE_EVERY);
        reply.await
    }
}

impl fmt::Debug for RedisMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple(KIND).field(&self.place()).finish()
    }
}

/// A quorum keeps no queue.
fn without_a_queue(held: Held) -> Held {
    Held {
        waiting: None,
        ..held
    }
}

/// Parses the reply of `hold.lua`.
fn voted(reply: &Value, name: &Name) -> Result<Voted, Failure> {
    if let ("held", [left, value, clock]) = reply::tagged(reply)? {
        let held = reply::held(name, left, value)?;
        let clock_us = reply::number(clock)?;
        let tenure = Tenure {
            holder: held.by,
            token: held.token.ok_or_else(|| reply::odd(value))?,
            ends_at_us: match held.remaining {
                Some(left) => {
                    clock_us.saturating_add(u64::try_from(left.as_micros()).unwrap_or(u64::MAX))
                }
                None => u64::MAX,
            },
            is_evicted: held.state == HeldState::Evicted,
        };
        return Ok(Voted {
            vote: Vote::Held(tenure),
            held: Some(Box::new(held)),
            clock_us: Some(clock_us),
        });
    }
    let Ok(text) = reply::text(reply) else {
        return Err(reply::refusal(reply));
    };
    let words: Vec<&str> = text.split(' ').collect();
    let number = |word: &str| word.parse::<u64>().map_err(|_| reply::odd(reply));
    let (vote, clock) = match words[..] {
        ["granted", token, clock] => {
            let token = token.parse::<Token>().map_err(|_| reply::odd(reply))?;
            (Vote::Yes(token), Some(clock))
        }
        ["low", floor, of_server, clock] => {
            let [floor, of_server] = [number(floor)?, number(of_server)?];
            (Vote::Low { floor, of_server }, Some(clock))
        }
        ["ahead", clock] => (Vote::Ahead, Some(clock)),
        ["away", left, clock] => (Vote::Away(number(left)?), Some(clock)),
        ["mismatch", theirs] => (Vote::Mismatch(number(theirs)?), None),
        ["alone"] => return Err(Failure::Alone),
        _ => return Err(reply::odd(reply)),
    };
    Ok(Voted {
        vote,
        held: None,
        clock_us: clock.map(number).transpose()?,
    })
}
