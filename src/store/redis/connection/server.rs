//! A server, as the tasks of one runtime use it: over one connection.
//!
//! A connection is a task of the runtime on which it was made: while that runtime is blocked, or once it has ended, no
//! task reads the server's answers. But a client can be used from several runtimes, one after the other or at the same
//! time. So the callers of each runtime share a connection of their own. A thread that drives one connection for all of
//! them would wake twice for each request, which doubles the time of a hand-off to a task of a runtime with several
//! threads.

use std::sync::atomic::Ordering;

use deadpool_redis::redis::{Cmd, Pipeline, Value};

use super::super::failure::Failure;
use super::acks::IsWritten;
use super::{Answers, Connector, Request};
use crate::store::kit::budget::Budget;
use crate::store::kit::connection::{Connection, HomeRuntime, is_transient};
use crate::telemetry::{ConnectionPurpose, Sink};

/// The connection to one server.
pub(crate) type Server = Connection<Connector>;

impl Server {
    /// Makes the connection to a server, which the first request opens on its runtime.
    pub(crate) fn at(connector: Connector, purpose: Option<ConnectionPurpose>) -> Self {
        let kind = connector.program.kind;
        let counts = Sink::of_store(kind);
        if kind == super::super::KIND {
            counts.has_replicas();
        }
        let gauge = counts.connection(purpose);
        Self::new(connector, HomeRuntime::Caller, gauge)
    }

    /// Makes the connection of the calling runtime.
    pub(crate) async fn connect(&self, budget: Budget) -> Result<(), Failure> {
        match self.open(budget).await {
            Ok(_) => Ok(()),
            Err(failure) => Err(self.connector().named(failure)),
        }
    }

    /// Sends a command and awaits its answer. If its answer `is_written`, that counts only once replicas have the
    /// write. Loads scripts that the server lacks.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the outcome unknown.
    pub(crate) async fn ask(
        &self,
        command: Cmd,
        is_written: Option<IsWritten>,
        budget: Budget,
    ) -> Result<Value, Failure> {
        let mut commands = Pipeline::with_capacity(1);
        commands.add_command(command);
        let mut answers = self.ask_all(&commands, is_written, budget).await?;
        answers.pop().ok_or_else(|| Failure::odd("too short"))?
    }

    /// Sends these commands one right after the other, and awaits their answers.
    pub(crate) async fn ask_all(
        &self,
        commands: &Pipeline,
        is_written: Option<IsWritten>,
        budget: Budget,
    ) -> Result<Answers, Failure> {
        let request = Request(commands, is_written);
        let outcome = self.request(request, budget).await;
        let outcome = outcome.map_err(|failure| self.connector().named(failure));
        match self.connector().has_written.load(Ordering::Relaxed) {
            true => outcome.map_err(Failure::after_a_write),
            false => outcome,
        }
    }

    /// Like that, with a fixed number of commands. A server that refuses one, or does not know it, still answers the
    /// others.
    pub(crate) async fn ask_each<const N: usize>(
        &self,
        commands: [&[&str]; N],
        budget: Budget,
    ) -> Result<[Result<Value, Failure>; N], Failure> {
        let mut all = Pipeline::with_capacity(N);
        for words in commands {
            all.add_command(Cmd::new().arg(words).clone());
        }
        let answers = self.ask_all(&all, None, budget).await?;
        let mut failures = answers.iter().filter_map(|answer| answer.as_ref().err());
        match failures.find(|failure| is_transient(*failure)) {
            Some(failure) => Err(failure.clone()),
            None => <[_; N]>::try_from(answers).map_err(|_| Failure::odd("too short")),
        }
    }
}
