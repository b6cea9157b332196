//! One server: its connections, and the scripts, which are loaded when the server does not have them.
//!
//! They are never sent with EVAL: newer servers drop scripts that came with it after 500 others. A call that finds them
//! missing loads them all.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{self, Value};

use super::super::failure::Failure;
use super::super::protocol::reply;
use super::acks::{self, IsWritten};
use super::budget::Budget;
use super::connections::Connections;
use super::open::Request;

/// A server and the scripts on it, reached over these connections.
#[derive(Debug)]
pub(in super::super) struct Server {
    /// Where it is, without secrets.
    pub(in super::super) place: Arc<str>,
    pub(in super::super) connections: Connections,
}

impl Server {
    pub(in super::super) fn new(place: Arc<str>, connections: Connections) -> Self {
        Self { place, connections }
    }

    /// Calls a script. If the server does not have it, loads all of them and calls it again: the first call was refused
    /// as a whole, so this does not count as a second attempt.
    pub(in super::super) async fn run(
        &self,
        call: Request<'_>,
        budget: Budget,
        replace_every: Duration,
    ) -> Result<Value, Failure> {
        let call = || self.connections.exchange(call, budget, replace_every);
        self.with_scripts(call, budget, replace_every).await
    }

    /// Calls a script on a server that imports its slot and serves it only to those who were sent there.
    pub(in super::super) async fn run_asking(
        &self,
        call: Request<'_>,
        budget: Budget,
        replace_every: Duration,
    ) -> Result<Value, Failure> {
        let (command, is_written): (_, IsWritten) = match call {
            Request::One(command) => (command, |_| false),
            Request::Written(command, is_written) => (command, is_written),
            Request::All(_) => return Err(Failure::Odd("several commands at once".into())),
        };
        let replicas = self.connections.acknowledged_by();
        let mut pipeline = redis::pipe();
        pipeline.cmd("ASKING");
        pipeline.add_command(command.clone());
        if replicas > 0 {
            pipeline.add_command(acks::wait(replicas, acks::limit_of(budget)));
        }
        let ask = async || {
            let replies = self
                .connections
                .request_all(&pipeline, budget, replace_every);
            let mut replies = replies.await?.into_iter().skip(1);
            let missing = || Failure::Odd("too few replies".into());
            let reply = reply::no_error(replies.next().ok_or_else(missing)?)?;
            if replicas > 0 && is_written(&reply) {
                let acknowledged = replies.next().ok_or_else(missing)?;
                acks::enough(acks::replicas_in(&acknowledged)?, replicas)?;
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
        let loads = self.connections.loads()?;
        let missing = match call().await {
            Err(failure) if failure.is_no_script() => failure,
            outcome => return outcome,
        };
        let again = async {
            let loaded = self.connections.load(loads, budget, replace_every).await;
            loaded.map_err(Failure::before_the_request)?;
            call().await
        };
        let outcome = again.await;
        match missing.is_after_another_try() {
            true => outcome.map_err(Failure::after_another_try),
            false => outcome,
        }
    }
}
