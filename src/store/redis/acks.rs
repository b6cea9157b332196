//! Waiting until replicas have what was written on a connection.
//!
//! A WAIT holds up everything behind it on its connection, so only one is on its way at a time, and all callers whose
//! writes were answered before it was sent share it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool_redis::redis::{Cmd, Pipeline, Value};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::budget::Budget;
use super::failure::Failure;
use super::link::{Link, Request};
use super::{millis, reply};
use crate::telemetry::AckOutcome;

/// The longest time that a server waits for its replicas, and so keeps everything else on the connection waiting.
const LONGEST: Duration = Duration::from_millis(200);

/// Returns whether a reply says that something was written that must not be lost.
pub(super) type IsWritten = fn(&Value) -> bool;

/// The writes of a connection that replicas are known to have.
#[derive(Debug, Default)]
pub(super) struct Acks {
    /// How many writes were answered.
    answered: AtomicU64,
    last: Mutex<LastWait>,
}

/// The last WAIT that was answered.
#[derive(Debug, Default)]
struct LastWait {
    /// It is about the writes up to this one.
    up_to: u64,
    /// How many replicas have them.
    replicas: u64,
    /// For how long the server would have waited for more.
    limit: Duration,
}

impl Link {
    /// Sends a command, and if it wrote something, waits until this many replicas have it.
    ///
    /// # Errors
    /// `Unacknowledged` if fewer replicas have it in time. It was carried out then.
    pub(super) async fn send_written(
        &self,
        command: &Cmd,
        replicas: u8,
        is_written: IsWritten,
        budget: Budget,
    ) -> Result<Value, Failure> {
        let acks = self.acks();
        // While nobody waits, both go together.
        if let Ok(mut last) = acks.last.try_lock() {
            let up_to = acks.answered.load(Ordering::Acquire);
            let mut both = Pipeline::with_capacity(2);
            both.add_command(command.clone());
            let limit = limit_of(budget);
            both.add_command(wait(replicas, limit));
            let reply = self.send(Request::All(&both), budget).await?;
            let [written, acknowledged] = <[Value; 2]>::try_from(reply::into_items(reply)?)
                .map_err(|_| Failure::Odd("too few replies".into()))?;
            let written = reply::no_error(written)?;
            if !is_written(&written) {
                return Ok(written);
            }
            let acknowledged = reply::number(&reply::no_error(acknowledged)?)?;
            *last = LastWait {
                up_to,
                replicas: acknowledged,
                limit,
            };
            return enough(acknowledged, replicas).map(|()| written);
        }
        let written = self.send(Request::One(command), budget).await?;
        if is_written(&written) {
            self.acknowledged(replicas, budget).await?;
        }
        Ok(written)
    }

    /// Waits until this many replicas have everything that was answered on this connection so far.
    async fn acknowledged(&self, replicas: u8, budget: Budget) -> Result<(), Failure> {
        let acks = self.acks();
        let ours = acks.answered.fetch_add(1, Ordering::AcqRel) + 1;
        let Ok(mut last) = timeout(budget.left(), acks.last.lock()).await else {
            return Err(Failure::Silent);
        };
        let limit = limit_of(budget);
        // A caller in a hurry says nothing to those who have more time.
        let is_too_short = last.replicas < u64::from(replicas) && last.limit < limit;
        if last.up_to < ours || is_too_short {
            let up_to = acks.answered.load(Ordering::Acquire);
            let wait = wait(replicas, limit);
            let acknowledged = self.send(Request::One(&wait), budget).await?;
            *last = LastWait {
                up_to,
                replicas: reply::number(&acknowledged)?,
                limit,
            };
        }
        enough(last.replicas, replicas)
    }
}

/// Returns for how long a server may wait for its replicas within this budget.
pub(super) fn limit_of(budget: Budget) -> Duration {
    (budget.left() / 2).min(LONGEST)
}

/// Returns the command that waits until replicas have what was written before it on its connection.
pub(super) fn wait(replicas: u8, limit: Duration) -> Cmd {
    let mut wait = Cmd::new();
    // 0 would mean for ever.
    wait.arg("WAIT").arg(replicas).arg(millis(limit).max(1));
    wait
}

/// Fails if fewer replicas acknowledged a write than must, and counts it.
pub(super) fn enough(acknowledged: u64, replicas: u8) -> Result<(), Failure> {
    let is_enough = acknowledged >= u64::from(replicas);
    super::counts(false).ack(match is_enough {
        true => AckOutcome::Acknowledged,
        false => AckOutcome::Missing,
    });
    match is_enough {
        true => Ok(()),
        false => Err(Failure::Unacknowledged {
            acknowledged,
            replicas,
        }),
    }
}
