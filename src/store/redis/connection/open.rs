//! One connection, and what its silence says about the server.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use deadpool_redis::redis::aio::{ConnectionLike, MultiplexedConnection};
use deadpool_redis::redis::{Cmd, Pipeline, Value};
use futures_util::{FutureExt, TryFutureExt};
use tokio::time::timeout;

use super::super::failure::Failure;
use super::acks::{Acks, IsWritten};
use super::budget::Budget;
use super::origin::{Origin, PoolSlot};
use crate::clock::{Boottime, Clock, Instant};
use crate::future::shielded;

/// A request as it is sent at a time.
#[derive(Clone, Copy)]
pub(in super::super) enum Request<'a> {
    One(&'a Cmd),
    /// The reply is an array, and a refusal of one of the commands is in it.
    All(&'a Pipeline),
    /// A command that may write what must not be lost: then it counts only once replicas have it.
    Written(&'a Cmd, IsWritten),
}

/// One connection.
pub(in super::super) struct OpenConnection {
    connection: MultiplexedConnection,
    /// When the first request was sent that is still unanswered, if none was answered since.
    silent_since: Mutex<Option<Instant>>,
    acks: Acks,
    /// Keeps the pool's count of connections correct.
    _slot: Option<PoolSlot>,
}

impl OpenConnection {
    pub(in super::super) async fn make(source: &Origin, limit: Duration) -> Result<Self, Failure> {
        let (connection, slot) = source.connect(limit).await?;
        Ok(Self {
            connection,
            silent_since: Mutex::default(),
            acks: Acks::default(),
            _slot: slot,
        })
    }

    pub(in super::super) async fn send(
        &self,
        request: Request<'_>,
        budget: Budget,
    ) -> Result<Value, Failure> {
        let mut connection = self.connection.clone();
        let answer = match request {
            Request::One(command) | Request::Written(command, _) => {
                connection.req_packed_command(command)
            }
            Request::All(pipeline) => connection
                .req_packed_commands(pipeline, 0, pipeline.len())
                .map_ok(Value::Array)
                .boxed(),
        };
        let mut answer = pin!(shielded(answer));
        // Only a connection that was closed already fails without waiting for anything. Its task may run on another
        // thread, so in rare cases it closed after it had sent this.
        let at_once = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await;
        let answer = match at_once {
            Poll::Ready(Err(error)) if error.is_connection_dropped() => {
                return Err(Failure::FoundClosed(error));
            }
            Poll::Ready(answer) => answer,
            Poll::Pending => {
                let sent_at = Boottime.now();
                match timeout(budget.left(), answer).await {
                    Ok(answer) => answer,
                    Err(_) => {
                        self.note_silence(sent_at);
                        return Err(Failure::Silent);
                    }
                }
            }
        };
        *self.silent_since() = None;
        match answer? {
            Value::ServerError(error) => Err(error.into()),
            value => Ok(value),
        }
    }

    pub(in super::super) fn acks(&self) -> &Acks {
        &self.acks
    }

    fn silent_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.silent_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a request sent at this moment is unanswered.
    fn note_silence(&self, sent_at: Instant) {
        let mut since = self.silent_since();
        *since = Some(since.map_or(sent_at, |since| since.min(sent_at)));
    }

    /// Returns whether no request was answered for this long, although some were sent.
    pub(in super::super) fn is_silent_for(&self, least: Duration) -> bool {
        let since = *self.silent_since();
        since.is_some_and(|since| Boottime.now().since(since) >= least)
    }
}
