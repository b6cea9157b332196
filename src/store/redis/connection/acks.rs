//! Waiting until replicas have what was written on a connection.
//!
//! A WAIT holds up everything behind it on its connection, so only one is on its way at a time, and all callers whose
//! writes were answered before it was sent share it. It is awaited by a task of its own: a caller that is not polled
//! holds up no other.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Pipeline, Value};
use futures_util::FutureExt as _;

use super::super::failure::Failure;
use super::super::protocol::reply;
use super::{Answers, OpenConnection};
use crate::error::ErrorKind;
use crate::store::Sent;
use crate::store::budget::{Budget, millis};
use crate::store::connection::shared_task::{self, SharedTask};
use crate::telemetry::{AckOutcome, Sink};

/// The longest time that a server waits for its replicas, and so keeps everything else on the connection waiting.
const LONGEST: Duration = Duration::from_millis(200);

/// Returns whether a reply says that something was written that must not be lost.
pub(in super::super) type IsWritten = fn(&Value) -> bool;

/// The writes of a connection, and what replicas are known to have of them.
#[derive(Debug, Default)]
pub(super) struct Acks {
    /// Says how many were answered.
    answered: u64,
    last: Option<Wait>,
}

/// A WAIT. A task awaits its answer.
#[derive(Debug, Clone)]
struct Wait {
    /// It is about the writes up to this one: those that were answered before it was sent.
    up_to: u64,
    /// The time for which the server waits.
    limit: Duration,
    /// The answers to the request that went with it, if one did, and how many replicas have everything.
    answers: SharedTask<Answers, Failure>,
}

impl OpenConnection {
    /// Sends commands, and if any of them wrote something, waits until this many replicas have it. If fewer have it in
    /// time, what was written fails, although it was carried out.
    pub(super) async fn send_written(
        self: &Arc<Self>,
        commands: &Pipeline,
        replicas: u8,
        is_written: IsWritten,
        budget: Budget,
    ) -> Result<Answers, Failure> {
        let last = self.acks.lock().last.clone();
        let is_idle = last.as_ref().is_none_or(Wait::is_over);
        let together =
            is_idle.then(|| self.wait_after(last.as_ref(), commands.clone(), replicas, budget));
        let (mut answers, told) = match together {
            Some(Ok(wait)) => {
                let mut answers = shared_task::outcome(&wait.answers, budget).await?;
                let told = answers.pop();
                (answers, told)
            }
            _ => (self.send(commands, budget).await?, None),
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
    async fn acknowledged(self: &Arc<Self>, replicas: u8, budget: Budget) -> Result<u64, Failure> {
        let (ours, mut wait) = {
            let mut writes = self.acks.lock();
            writes.answered += 1;
            (writes.answered, writes.last.clone())
        };
        loop {
            if let Some(wait) = &wait {
                let told = wait.acknowledged(budget).await;
                let is_enough = matches!(told, Ok(told) if told >= u64::from(replicas));
                // A caller in a hurry says nothing to those who have more time.
                if wait.up_to >= ours && (is_enough || wait.limit >= limit_of(budget)) {
                    return told;
                }
            }
            let next = self.wait_after(wait.as_ref(), Pipeline::new(), replicas, budget);
            wait = Some(next.unwrap_or_else(|newer| newer));
        }
    }

    /// Sends a WAIT, behind these commands, as the next one after `last`.
    ///
    /// # Errors
    /// The WAIT that another caller has sent since.
    fn wait_after(
        self: &Arc<Self>,
        last: Option<&Wait>,
        mut commands: Pipeline,
        replicas: u8,
        budget: Budget,
    ) -> Result<Wait, Wait> {
        let mut writes = self.acks.lock();
        if let Some(newer) = &writes.last
            && last.is_none_or(|last| !newer.answers.ptr_eq(&last.answers))
        {
            return Err(newer.clone());
        }
        let limit = limit_of(budget);
        // 0 would mean for ever.
        let ms = millis(limit).max(1);
        commands.cmd("WAIT").arg(replicas).arg(ms);
        let open = self.clone();
        let answers = async move { open.send(&commands, budget).await };
        let wait = Wait {
            up_to: writes.answered,
            limit,
            answers: shared_task::start(answers),
        };
        writes.last = Some(wait.clone());
        Ok(wait)
    }
}

impl Wait {
    fn is_over(&self) -> bool {
        self.answers.clone().now_or_never().is_some()
    }

    /// Returns how many replicas have the writes that this is about.
    async fn acknowledged(&self, budget: Budget) -> Result<u64, Failure> {
        let mut answers = shared_task::outcome(&self.answers, budget).await?;
        reply::number(&answers.pop().unwrap_or(Ok(Value::Nil))?)
    }
}

/// Returns for how long a server may wait for its replicas within this budget.
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
