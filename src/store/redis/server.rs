//! One server: its lanes, and the scripts, which are loaded when the server does not have them.
//!
//! They are never sent with EVAL: newer servers drop scripts that came with it after 500 others. A call that finds them
//! missing loads them all, once for all callers that wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool_redis::redis::{self, Value};
use futures_util::future::try_join_all;
use tokio::sync::Mutex;

use super::acks::{self, IsWritten};
use super::budget::Budget;
use super::failure::Failure;
use super::link::Request;
use super::reply;
use super::runtime_lanes::RuntimeLanes;
use super::scripts::SCRIPTS;

/// A server and the scripts on it, reached over these lanes.
#[derive(Debug)]
pub(super) struct Server {
    /// Where it is, without secrets.
    pub(super) place: Arc<str>,
    pub(super) lanes: RuntimeLanes,
    /// How often the scripts were loaded over these lanes.
    loads: AtomicU64,
    turn: Mutex<()>,
}

impl Server {
    pub(super) fn new(place: Arc<str>, lanes: RuntimeLanes) -> Self {
        Self {
            place,
            lanes,
            loads: AtomicU64::new(0),
            turn: Mutex::new(()),
        }
    }

    /// Calls a script. If the server does not have it, loads all of them and calls it again: the first call was refused
    /// as a whole, so this does not count as a second attempt.
    pub(super) async fn run(
        &self,
        call: Request<'_>,
        budget: Budget,
        replace_every: Duration,
    ) -> Result<Value, Failure> {
        let call = || self.lanes.exchange(call, budget, replace_every);
        self.with_scripts(call, budget, replace_every).await
    }

    /// Calls a script on a server that imports its slot and serves it only to those who were sent there.
    pub(super) async fn run_asking(
        &self,
        call: Request<'_>,
        budget: Budget,
        replace_every: Duration,
    ) -> Result<Value, Failure> {
        let (command, is_written): (_, IsWritten) = match call {
            Request::One(command) => (command, |_| false),
            Request::Written(command, is_written) => (command, is_written),
            Request::Claim(command) => (command, reply::is_grant),
            Request::All(_) => return Err(Failure::Odd("several commands at once".into())),
        };
        let replicas = self.lanes.acknowledged_by();
        let mut pipeline = redis::pipe();
        pipeline.cmd("ASKING");
        pipeline.add_command(command.clone());
        if replicas > 0 {
            pipeline.add_command(acks::wait(replicas, acks::limit_of(budget)));
        }
        let ask = async || {
            let replies = self.lanes.request_all(&pipeline, budget, replace_every);
            let mut replies = replies.await?.into_iter().skip(1);
            let missing = || Failure::Odd("too few replies".into());
            let reply = reply::no_error(replies.next().ok_or_else(missing)?)?;
            if replicas > 0 && is_written(&reply) {
                let acknowledged = reply::no_error(replies.next().ok_or_else(missing)?)?;
                acks::enough(reply::number(&acknowledged)?, replicas)?;
            }
            Ok(reply)
        };
        self.with_scripts(ask, budget, replace_every).await
    }

    /// Makes a call, and if the server does not have the scripts, loads them and makes it again.
    async fn with_scripts<F: Future<Output = Result<Value, Failure>>>(
        &self,
        call: impl Fn() -> F,
        budget: Budget,
        replace_every: Duration,
    ) -> Result<Value, Failure> {
        let loads = self.loads();
        let missing = match call().await {
            Err(failure) if failure.is_no_script() => failure,
            outcome => return outcome,
        };
        let again = async {
            let loaded = self.load(loads, budget, replace_every).await;
            loaded.map_err(Failure::before_the_request)?;
            call().await
        };
        let outcome = again.await;
        match missing.is_after_another_try() {
            true => outcome.map_err(Failure::after_another_try),
            false => outcome,
        }
    }

    /// Returns how often the scripts were loaded, for [`load`](Self::load).
    pub(super) fn loads(&self) -> u64 {
        self.loads.load(Ordering::Acquire)
    }

    /// Loads the scripts, unless another call did so after they had been loaded `seen` times.
    pub(super) async fn load(
        &self,
        seen: u64,
        budget: Budget,
        replace_every: Duration,
    ) -> Result<(), Failure> {
        let Ok(_turn) = tokio::time::timeout(budget.left(), self.turn.lock()).await else {
            return Err(Failure::Silent);
        };
        if self.loads() != seen {
            return Ok(());
        }
        try_join_all(SCRIPTS.each().map(async |script| {
            let load = script.load();
            self.lanes.request(&load, budget, replace_every).await
        }))
        .await?;
        self.loads.fetch_add(1, Ordering::Release);
        Ok(())
    }
}
