//! Waits until replicas have the writes of a connection.
//!
//! A WAIT holds up everything behind it on its connection, so only one is on its way at a time, and all callers whose
//! writes were answered before it was sent share it. Each write is sent by a task of its own: a caller that is not
//! polled holds up no other.

#![expect(
    clippy::await_holding_invalid_type,
    reason = "only tasks hold the lock, and a task is always polled"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool_redis::redis::{Pipeline, Value};
use tokio::sync::Mutex;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::super::failure::{Failure, FailureCause};
use super::super::protocol::reply;
use super::{Answers, OpenConnection};
use crate::error::ErrorKind;
use crate::store::Sent;
use crate::store::kit::budget::{Budget, millis};
use crate::telemetry::{AckOutcome, Sink};

/// Maximum time that a server waits for its replicas, and so delays everything else on the connection.
const LONGEST: Duration = Duration::from_millis(200);

/// Returns whether a reply reports a write that must not be lost.
pub(crate) type IsWritten = fn(&Value) -> bool;

/// The writes of a connection, and those that replicas are known to have.
#[derive(Debug, Default)]
pub(super) struct Acks {
    /// Number of answered writes.
    answered: AtomicU64,
    /// The last WAIT that was answered. Locked while the next one is on its way.
    last: Mutex<Wait>,
}

/// A WAIT that was answered.
#[derive(Debug, Default)]
struct Wait {
    /// It covers the writes up to this one: those that were answered before it was sent.
    up_to: u64,
    /// How long the server waited at most.
    limit: Duration,
    /// The number of replicas that had everything.
    replicas: u64,
}

impl OpenConnection {
    /// Sends commands, and if any of them wrote something, waits until this many replicas have it. If fewer have it in
    /// time, the write fails, although it was carried out.
    ///
    /// # Cancel safety
    /// Run it in a task: while it is not polled, other callers wait.
    pub(super) async fn send_written(
        self: Arc<Self>,
        commands: Pipeline,
        replicas: u8,
        is_written: IsWritten,
        budget: Budget,
    ) -> Result<Answers, Failure> {
        let (mut answers, told) = match self.acks.last.try_lock() {
            Ok(mut wait) => {
                let sent = self.send_and_wait(commands, &mut wait, replicas, budget);
                let mut answers = sent.await?;
                let told = answers.pop();
                (answers, told)
            }
            Err(_) => (self.send(&commands, budget).await?, None),
        };
        let is_written = |answer: &Result<Value, _>| answer.as_ref().is_ok_and(is_written);
        if !answers.iter().any(is_written) {
            return Ok(answers);
        }
        let told = match told {
            Some(told) => reply::number(&told?)?,
            None => self.acknowledged(replicas, budget).await?,
        };
        if let Err(missing) = enough(told, replicas) {
            let written = answers.iter_mut().filter(|answer| is_written(answer));
            written.for_each(|answer| *answer = Err(missing.clone()));
        }
        Ok(answers)
    }

    /// Waits until this many replicas have everything that was answered on this connection before. Returns how many
    /// have it.
    async fn acknowledged(&self, replicas: u8, budget: Budget) -> Result<u64, Failure> {
        let ours = self.acks.answered.fetch_add(1, Ordering::AcqRel) + 1;
        let turn = timeout(budget.left(), self.acks.last.lock()).await;
        let mut wait = turn.map_err(|_| FailureCause::Silent)?;
        let is_enough = wait.replicas >= u64::from(replicas);
        // A caller with a short limit does not decide for those with more time.
        if wait.up_to >= ours && (is_enough || wait.limit >= limit_of(budget)) {
            return Ok(wait.replicas);
        }
        // The tasks whose writes were answered together with this one count them first, and share its WAIT.
        yield_now().await;
        let sent = self.send_and_wait(Pipeline::new(), &mut wait, replicas, budget);
        let told = sent.await?.pop();
        reply::number(&told.unwrap_or(Ok(Value::Nil))?)
    }

    /// Sends commands and, behind them, a WAIT, whose answer is the last one.
    async fn send_and_wait(
        &self,
        mut commands: Pipeline,
        wait: &mut Wait,
        replicas: u8,
        budget: Budget,
    ) -> Result<Answers, Failure> {
        let up_to = self.acks.answered.load(Ordering::Acquire);
        let limit = limit_of(budget);
        // 0 would mean for ever.
        let ms = millis(limit).max(1);
        commands.cmd("WAIT").arg(replicas).arg(ms);
        let answers = self.send(&commands, budget).await?;
        if let Some(Ok(Value::Int(told))) = answers.last() {
            *wait = Wait {
                up_to,
                limit,
                replicas: told.unsigned_abs(),
            };
        }
        Ok(answers)
    }
}

/// Returns how long a server may wait for its replicas within this budget.
fn limit_of(budget: Budget) -> Duration {
    (budget.left() / 2).min(LONGEST)
}

/// Fails if fewer replicas acknowledged a write than must, and counts it.
fn enough(acknowledged: u64, replicas: u8) -> Result<(), Failure> {
    let counts = Sink::of_store(super::super::KIND);
    if acknowledged >= u64::from(replicas) {
        counts.ack(AckOutcome::Acknowledged);
        return Ok(());
    }
    counts.ack(AckOutcome::Missing);
    // It was carried out, and may be lost with its server.
    let words = format!("not acknowledged: {acknowledged} of {replicas} replicas");
    Err(Failure::other(ErrorKind::Unavailable, Sent::Perhaps, words))
}
