//! Renewals, which extend leases in batches, and what the store answers to them.

use std::time::Duration;

use crate::error::Error;
use crate::holder::Holder;
use crate::name::Name;
use crate::token::Token;

/// The greatest number of renewals in one batch. 256 renewals keep a Redis server busy for 0.2 to 0.5 ms, and a SQLite
/// file for some milliseconds; 1,000 would block a Redis server for 1 to 1.7 ms.
pub const MAX_BATCH: usize = 256;

/// One lease to extend.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Renewal {
    /// The name that is held.
    pub name: Name,
    /// The identity of its holder.
    pub holder: Holder,
    /// The token of its grant. A lease with another token is a later grant to the same holder, which this renewal does
    /// not extend.
    pub token: Token,
    /// How long the store keeps the lease from now.
    pub ttl: Duration,
}

impl Renewal {
    /// Makes a renewal that extends the lease that was granted to this holder with this token, to `ttl` from now. Do
    /// not use a token that was never granted: a member of a quorum would take it for a claim that it has missed.
    pub const fn new(name: Name, holder: Holder, token: Token, ttl: Duration) -> Self {
        Self {
            name,
            holder,
            token,
            ttl,
        }
    }
}

/// The reply to a batch of renewals.
#[derive(Debug)]
#[non_exhaustive]
pub struct Renewed {
    /// One outcome for each renewal of the batch, in its order.
    pub outcomes: Vec<Outcome>,
    /// The time of the server that answered. With it the watchdog distinguishes a step of the server's clock from the
    /// passing of time. `None` if it is not known, or if several servers answered.
    pub server_time: Option<ServerTime>,
}

/// The reading of a server's clock when it answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerTime {
    /// The server, as [`Store::shard`](super::Store::shard) numbers them: readings are compared with those of the same
    /// number only. Servers that share the leases' ends, such as a master and the replica that is promoted after it,
    /// share a number, because there a difference of their clocks ends leases as a step does.
    pub shard: u32,
    /// The time since 1970.
    pub time: Duration,
}

impl Renewed {
    /// Makes a reply without the server's time.
    pub const fn new(outcomes: Vec<Outcome>) -> Self {
        Self {
            outcomes,
            server_time: None,
        }
    }

    /// Adds the server's time, for a store with one server at a time: a single one, or a master and its successor.
    #[must_use]
    pub fn at(mut self, time: Option<Duration>) -> Self {
        self.server_time = time.map(|time| ServerTime { shard: 0, time });
        self
    }
}

/// The outcome of one renewal.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Outcome {
    /// The lease was extended.
    Renewed,
    /// The holder no longer has the name, or has it by a later grant. This is final.
    Refused,
    /// An operator evicted the holder. This is final.
    Evicted,
    /// The outcome is unknown. Retry until the deadline.
    Unknown(Error),
}
