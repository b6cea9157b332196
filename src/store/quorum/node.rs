//! What the store asks of one member, whatever the member is: a server behind a connection, or one in memory.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Extension, Freed, LocalNode, Proposal, Tenure, Vote};
use crate::future::BoxFuture;
use crate::holder::Holder;
use crate::name::Name;
use crate::store::{Error, Eviction, Failed, Info, Notices, Renewal};
use crate::token::Token;

/// One member of a quorum. It knows nothing of the others.
///
/// Every call ends within about its limit. Dropping a future leaves the outcome unknown, as a lost reply does.
pub trait Node: fmt::Debug + Send + Sync + 'static {
    /// Returns where the member is, for people to read and without secrets.
    fn place(&self) -> String;

    /// Proposes a token for a name. The member takes exactly that one or refuses it.
    fn hold<'a>(
        &'a self,
        name: &'a Name,
        proposal: &'a Proposal,
        info: &'a Arc<Info>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Timed<Vote>, Failed>>;

    /// Takes back what this holder took at this token or below. It is idempotent.
    fn take_back<'a>(
        &'a self,
        name: &'a Name,
        holder: Holder,
        token: Token,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Freed, Failed>>;

    /// Releases the name if this holder has it, and bars what is still on its way. It is idempotent.
    fn release<'a>(
        &'a self,
        name: &'a Name,
        holder: Holder,
        keep_for: Option<Duration>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Freed, Failed>>;

    /// Extends the leases of these grants: one answer for each, in order.
    fn renew<'a>(&'a self, batch: &'a [Renewal], limit: Duration) -> BoxFuture<'a, Vec<Extension>>;

    /// Returns the lease that this member has of the name.
    fn inspect<'a>(
        &'a self,
        name: &'a Name,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Option<NodeLease>, Error>>;

    /// Returns the names with this prefix that are taken at this member, in order.
    fn list<'a>(
        &'a self,
        prefix: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Vec<Name>, Error>>;

    /// Evicts the holder. Returns whether the name was held at this member.
    fn evict<'a>(
        &'a self,
        name: &'a Name,
        how: Eviction,
        limit: Duration,
    ) -> BoxFuture<'a, Result<bool, Error>>;

    /// Opens a subscription to this member's hints, if it gives any.
    fn notices(&self) -> BoxFuture<'_, Result<Option<Box<dyn Notices>>, Error>>;
}

/// An answer, and the member's clock when it was given, in microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timed<T> {
    /// The answer.
    pub answer: T,
    /// The clock.
    pub clock_us: u64,
}

/// A lease as one member shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLease {
    /// Who has the name here, under which token.
    pub tenure: Tenure,
    /// What the holder tells about itself.
    pub info: Arc<Info>,
    /// The time left, by the member's clock.
    pub remaining: Duration,
}

/// A member in memory that several clients share. It gives no hints.
pub struct InMemory {
    place: String,
    node: Mutex<LocalNode>,
    now_us: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl InMemory {
    /// Returns this member under a clock that tells microseconds since 1970.
    pub fn new(
        place: impl Into<String>,
        node: LocalNode,
        now_us: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        Self {
            place: place.into(),
            node: Mutex::new(node),
            now_us: Box::new(now_us),
        }
    }

    /// Returns the member itself, for a test that restarts it.
    pub fn node(&self) -> MutexGuard<'_, LocalNode> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the member act at this moment of its clock.
    fn act<'a, T: Send + 'a>(
        &'a self,
        act: impl FnOnce(&mut LocalNode, u64) -> T + Send + 'a,
    ) -> BoxFuture<'a, T> {
        Box::pin(async move {
            let now_us = (self.now_us)();
            act(&mut self.node(), now_us)
        })
    }
}

impl fmt::Debug for InMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InMemory").field(&self.place).finish()
    }
}

impl Node for InMemory {
    fn place(&self) -> String {
        self.place.clone()
    }

    fn hold<'a>(
        &'a self,
        name: &'a Name,
        proposal: &'a Proposal,
        info: &'a Arc<Info>,
        _: Duration,
    ) -> BoxFuture<'a, Result<Timed<Vote>, Failed>> {
        self.act(move |node, clock_us| {
            let answer = node.hold(name, proposal, info, clock_us);
            Ok(Timed { answer, clock_us })
        })
    }

    fn take_back<'a>(
        &'a self,
        name: &'a Name,
        holder: Holder,
        token: Token,
        _: Duration,
    ) -> BoxFuture<'a, Result<Freed, Failed>> {
        self.act(move |node, now_us| Ok(node.take_back(name, holder, token, now_us)))
    }

    fn release<'a>(
        &'a self,
        name: &'a Name,
        holder: Holder,
        keep_for: Option<Duration>,
        _: Duration,
    ) -> BoxFuture<'a, Result<Freed, Failed>> {
        self.act(move |node, now_us| Ok(node.release(name, holder, keep_for, now_us)))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], _: Duration) -> BoxFuture<'a, Vec<Extension>> {
        self.act(move |node, now_us| node.renew(batch, now_us))
    }

    fn inspect<'a>(
        &'a self,
        name: &'a Name,
        _: Duration,
    ) -> BoxFuture<'a, Result<Option<NodeLease>, Error>> {
        self.act(move |node, now_us| {
            let seen = node.inspect(name, now_us);
            Ok(seen.map(|(tenure, info)| NodeLease {
                tenure,
                info,
                remaining: Duration::from_micros(tenure.ends_at_us.saturating_sub(now_us)),
            }))
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, _: Duration) -> BoxFuture<'a, Result<Vec<Name>, Error>> {
        self.act(move |node, now_us| Ok(node.list(prefix, now_us)))
    }

    fn evict<'a>(
        &'a self,
        name: &'a Name,
        how: Eviction,
        _: Duration,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        self.act(move |node, now_us| Ok(node.evict(name, how, now_us)))
    }

    fn notices(&self) -> BoxFuture<'_, Result<Option<Box<dyn Notices>>, Error>> {
        Box::pin(async { Ok(None) })
    }
}
