//! Which run of a server a connection leads to.
//!
//! A server that was started again, or promoted, may lack what it had granted. It tells by the run that its key
//! `<prefix>:node` names: `node.lua` compares it with the run that the claim was sent to. So that no restart goes
//! unseen, a run is read on the connection that carries the claims, and never used on another one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, Value, pipe};

use super::budget::Budget;
use super::failure::Failure;
use super::hazards;
use super::link::{Link, Request};
use super::{millis, reply};
use crate::clock::{Boottime, Clock as _, Instant};

/// The key in which a server keeps whether it still has its data, and what this client does about it.
#[derive(Debug, Clone)]
pub(super) struct NodeKey {
    pub(super) key: Arc<str>,
    /// The SCAN pattern of the marks, which only a server has that grants leases on its own.
    pub(super) marks: Arc<str>,
    /// The longest ttl. Without it the client obeys the key where there is one, and creates none.
    pub(super) max_ttl: Option<Duration>,
    /// Whether the server is used as a member of a quorum.
    pub(super) is_member: bool,
}

/// A run of a server, as its claims name it.
#[derive(Debug)]
pub(super) struct ServerRun {
    id: Box<str>,
    /// The client's longest ttl; 0 for a client that only obeys.
    max_ttl_ms: u64,
    /// Of a member of a quorum: whether every write is on its disk before it is answered.
    is_trusted: Option<bool>,
    clock: Option<MemberClock>,
}

/// What a member of a quorum told when the connection was made.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct MemberClock {
    /// Its clock, in microseconds since 1970.
    pub(in crate::store) us: u64,
    /// It takes only tokens above this one.
    pub(in crate::store) floor: u64,
    /// When the answer came.
    pub(in crate::store) at: Instant,
}

impl MemberClock {
    /// Reads the reply to TIME and the floor. `None` if the user lacks the permission, which claims report.
    fn told_in(time: Value, floor: Option<&Value>, at: Instant) -> Option<Self> {
        let time = reply::time(&reply::no_error(time).ok()?).ok()?;
        let floor = floor.and_then(|floor| reply::number(floor).ok());
        Some(Self {
            us: u64::try_from(time.as_micros()).ok()?,
            floor: floor.unwrap_or_default(),
            at,
        })
    }
}

impl ServerRun {
    /// Asks the server at the other end for its run. `None` if its claims need not name it.
    ///
    /// # Errors
    /// `Member` on a member of a quorum: the quorum's other clients would not know of leases granted without it.
    pub(super) async fn met_on(
        link: &Link,
        node: &NodeKey,
        budget: Budget,
    ) -> Result<Option<Self>, Failure> {
        let ask = async |words: &[&str]| ask_on(link, words, budget).await;
        if node.is_member {
            return Self::of_member(link, node, budget).await.map(Some);
        }
        let is_there = match ask(&["EXISTS", &node.key]).await {
            Ok(count) => count != Value::Int(0),
            // If the check is not permitted, or the server is a node of a cluster, the requests themselves report what
            // is wrong. A server that may be able to answer later is asked later.
            Err(failure @ Failure::Refused { .. }) if !failure.is_of_busy_server() => false,
            Err(failure) => return Err(failure),
        };
        if is_there && ask(&["HGET", &node.key, "floor"]).await? != Value::Nil {
            return Err(Failure::Member);
        }
        if !is_there && node.max_ttl.is_none() {
            return Ok(None);
        }
        let told = hazards::lines(&ask(&["INFO", "server"]).await?);
        Ok(Some(Self {
            id: run_id(&told)?,
            max_ttl_ms: node.max_ttl.map_or(0, millis),
            is_trusted: None,
            clock: None,
        }))
    }

    /// The same for a server that is used as a member of a quorum.
    ///
    /// # Errors
    /// `Alone` on a server that grants leases on its own: the quorum would not know of them.
    async fn of_member(link: &Link, node: &NodeKey, budget: Budget) -> Result<Self, Failure> {
        let ask = async |words: &[&str]| ask_on(link, words, budget).await;
        let mut look = pipe();
        look.cmd("HMGET").arg(&[&*node.key, "run", "floor"]);
        look.cmd("TIME");
        let told = link.send(Request::All(&look), budget).await?;
        let at = Boottime.now();
        let [row, time] = <[Value; 2]>::try_from(reply::into_items(told)?)
            .map_err(|_| Failure::Odd("too few replies".into()))?;
        let row = reply::no_error(row)?;
        let items = reply::items(&row)?;
        match items {
            [Value::Nil, _] if has_marks(link, &node.marks, budget).await? => {
                return Err(Failure::Alone);
            }
            [run, Value::Nil] if *run != Value::Nil => return Err(Failure::Alone),
            _ => {}
        }
        let told = hazards::lines(&ask(&["INFO"]).await?);
        let is = |key: &str, value: &str| told.get(key).is_some_and(|told| told == value);
        let is_alone = is("aof_enabled", "1") && is("connected_slaves", "0");
        let is_trusted = is_alone
            && match ask(&["CONFIG", "GET", "appendfsync"]).await {
                Ok(setting) => hazards::setting_in(&setting) == "always",
                // If the check is not permitted, the server is not trusted.
                Err(Failure::Refused { .. }) => false,
                Err(failure) => return Err(failure),
            };
        Ok(Self {
            id: run_id(&told)?,
            max_ttl_ms: node.max_ttl.map_or(0, millis),
            is_trusted: Some(is_trusted),
            clock: MemberClock::told_in(time, items.get(1), at),
        })
    }

    /// Returns what a member of a quorum told when it was met.
    pub(super) fn clock(&self) -> Option<MemberClock> {
        self.clock
    }

    /// Returns the claim with the run at its end.
    pub(super) fn told_in<'a>(claim: &'a Cmd, run: Option<&Self>) -> Cow<'a, Cmd> {
        let Some(run) = run else {
            return Cow::Borrowed(claim);
        };
        let mut told = claim.clone();
        told.arg(&*run.id).arg(run.max_ttl_ms);
        if let Some(is_trusted) = run.is_trusted {
            told.arg(u8::from(is_trusted));
        }
        Cow::Owned(told)
    }
}

async fn ask_on(link: &Link, words: &[&str], budget: Budget) -> Result<Value, Failure> {
    let mut command = Cmd::new();
    words.iter().for_each(|word| {
        command.arg(*word);
    });
    link.send(Request::One(&command), budget).await
}

/// Returns the run id among what INFO told.
fn run_id(told: &HashMap<String, String>) -> Result<Box<str>, Failure> {
    let id = told.get("run_id").filter(|id| !id.is_empty());
    let id = id.ok_or_else(|| Failure::Odd("INFO without run_id".into()))?;
    Ok(id.as_str().into())
}

/// Returns whether the server has a mark. Reads all its keys, once for each connection to a server that is no member so
/// far.
async fn has_marks(link: &Link, pattern: &str, budget: Budget) -> Result<bool, Failure> {
    let mut cursor = 0;
    loop {
        let mut scan = Cmd::new();
        scan.arg("SCAN").arg(cursor).arg("MATCH").arg(pattern);
        scan.arg("COUNT").arg(1_000);
        let page = link.send(Request::One(&scan), budget).await?;
        let (next, keys) = reply::scanned(&page)?;
        if !keys.is_empty() {
            return Ok(true);
        }
        if next == 0 {
            return Ok(false);
        }
        cursor = next;
    }
}
