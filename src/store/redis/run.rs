//! Which run of a server a connection leads to.
//!
//! A server that was started again, or promoted, may lack what it had granted. It tells by the run that its key
//! `<prefix>:node` names: `node.lua` compares it with the run that the claim was sent to. So that no restart goes
//! unseen, a run is read on the connection that carries the claims, and never used on another one.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, Value};

use super::budget::Budget;
use super::failure::Failure;
use super::hazards;
use super::link::{Link, Request};
use super::millis;

/// The key in which a server keeps whether it still has its data, and what this client does about it.
#[derive(Debug, Clone)]
pub(super) struct NodeKey {
    pub(super) key: Arc<str>,
    /// The longest ttl. Without it the client obeys the key where there is one, and creates none.
    pub(super) max_ttl: Option<Duration>,
}

/// A run of a server, as its claims name it.
#[derive(Debug)]
pub(super) struct ServerRun {
    id: Box<str>,
    /// The client's longest ttl; 0 for a client that only obeys.
    max_ttl_ms: u64,
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
        let ask = async |words: &[&str]| {
            let mut command = Cmd::new();
            words.iter().for_each(|word| {
                command.arg(*word);
            });
            link.send(Request::One(&command), budget).await
        };
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
        let id = told.get("run_id").filter(|id| !id.is_empty());
        let id = id.ok_or_else(|| Failure::Odd("INFO without run_id".into()))?;
        Ok(Some(Self {
            id: id.as_str().into(),
            max_ttl_ms: node.max_ttl.map_or(0, millis),
        }))
    }

    /// Returns the claim with the run at its end.
    pub(super) fn told_in<'a>(claim: &'a Cmd, run: Option<&Self>) -> Cow<'a, Cmd> {
        let Some(run) = run else {
            return Cow::Borrowed(claim);
        };
        let mut told = claim.clone();
        told.arg(&*run.id).arg(run.max_ttl_ms);
        Cow::Owned(told)
    }
}
