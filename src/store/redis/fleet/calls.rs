//! Calls of scripts where several servers share the slots: each goes to the server of its slot, one alone or many in
//! one pipeline for each server.
//!
//! A call that was refused without being carried out is repeated within the budget, because another server may take it:
//! the slot has moved or is moving, or the server is a replica by now. A call that waits for its server is given up
//! when another one has taken over: what the first would answer then is not worth anything.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, Pipeline, Value};
use futures_util::future::join_all;
use tokio::time::sleep;

use super::super::connection::acks::IsWritten;
use super::super::failure::{Failure, FailureCause, Redirect};
use super::super::protocol::reply;
use super::super::protocol::slot::slot_of;
use super::look::{AT_MOST_EVERY, LOOK_EVERY};
use super::map::Map;
use super::{Fleet, PAUSE, unserved};
use crate::clock::{Boottime, Clock, Instant};
use crate::name::Name;
use crate::store::ServerTime;
use crate::store::budget::Budget;
use crate::store::server_url::HostPort;

/// After how long without an answer a call looks whether another server has taken over.
const PATIENCE: Duration = Duration::from_millis(100);
/// Says how many redirections a call follows without a pause: servers that disagree may send it to and fro.
const AT_ONCE: u32 = 3;
/// Says how many redirections each of many calls follows: the others wait for it. A slot that is moved by hand
/// redirects twice.
const OF_MANY: u32 = 4;

/// A call of a script for one slot.
#[derive(Debug)]
pub(in super::super) struct Call {
    pub(in super::super) slot: u16,
    pub(in super::super) command: Cmd,
}

/// The answers of one server to a group of calls, in their order, and its time.
type Answers = (Vec<Result<Value, Failure>>, Option<Duration>);

impl Fleet {
    /// Calls a script on the server of this name's slot. If its reply says that something was written, that counts only
    /// once replicas have it.
    pub(in super::super) async fn run(
        self: &Arc<Self>,
        name: &Name,
        command: Cmd,
        is_written: Option<IsWritten>,
        budget: Budget,
    ) -> Result<Value, Failure> {
        if let Some(server) = self.only() {
            return server.request(&command, is_written, budget).await;
        }
        let slot = slot_of(name.as_str());
        let call = Call { slot, command };
        let asked = self.run_in_slot(&call, is_written, u32::MAX, budget);
        // Boxed, or it would treble the size of each request to a server alone.
        Box::pin(asked).await
    }

    /// Follows at `most` this many redirections.
    // In one piece, because each step of the loop decides by what all the earlier ones met.
    async fn run_in_slot(
        self: &Arc<Self>,
        call: &Call,
        is_written: Option<IsWritten>,
        most: u32,
        budget: Budget,
    ) -> Result<Value, Failure> {
        let (mut importing, mut redirections, mut is_sent_before) = (None, 0, false);
        loop {
            let outcome = match importing.take() {
                Some(place) => {
                    let answer = self.ask(&place, call, is_written, budget).await;
                    Ok((place, answer))
                }
                None => self.ask_owner(call, is_written, budget).await,
            };
            let (place, answer) =
                outcome.map_err(|failure| failure.after_another_try(is_sent_before))?;
            let Err(failure) = answer else {
                return answer;
            };
            let failure = failure.after_another_try(is_sent_before);
            is_sent_before = failure.was_sent_before;
            let Some(redirect) = self.follow(call.slot, &failure, &place) else {
                self.note_failure(&failure);
                return Err(failure);
            };
            if let Redirect::Asked(address) = &redirect {
                importing = self.address_map.redirected(address, &place);
            }
            redirections += 1;
            if redirect == Redirect::Later || redirections > AT_ONCE {
                sleep(PAUSE.min(budget.left())).await;
            }
            if redirections > most || budget.left() <= PAUSE {
                return Err(failure.not_serving());
            }
        }
    }

    /// Makes a call on the server of its slot. Returns where that is, and its answer.
    async fn ask_owner(
        self: &Arc<Self>,
        call: &Call,
        is_written: Option<IsWritten>,
        budget: Budget,
    ) -> Result<(HostPort, Result<Value, Failure>), Failure> {
        let place = self.owner(call.slot, budget).await?;
        let answer = async {
            let server = self.server(&place)?;
            server.request(&call.command, is_written, budget).await
        };
        let is_right = |map: &Map| map.owner(call.slot) == Some(&place);
        let answer = self.watched(&place, is_right, budget, answer).await;
        Ok((place, answer))
    }

    /// Makes a call on a server that imports its slot and serves it only to those who were sent there.
    async fn ask(
        &self,
        importing: &HostPort,
        call: &Call,
        is_written: Option<IsWritten>,
        budget: Budget,
    ) -> Result<Value, Failure> {
        let mut both = Pipeline::with_capacity(2);
        both.cmd("ASKING").add_command(call.command.clone());
        let server = self.server(importing)?;
        reply::last(server.request_all(&both, is_written, budget).await?)
    }

    /// Makes each call on the server of its slot. One that fails does not concern the others. Returns the outcomes in
    /// the order of the calls, and the server's time if one server answered them all.
    pub(in super::super) async fn run_each(
        self: &Arc<Self>,
        calls: &[Call],
        is_written: Option<IsWritten>,
        budget: Budget,
    ) -> (Vec<Result<Value, Failure>>, Option<ServerTime>) {
        if let Err(failure) = self.find(budget).await {
            return (vec![Err(failure); calls.len()], None);
        }
        let (mut outcomes, mut groups) = (Vec::new(), HashMap::<_, Vec<_>>::new());
        for (index, call) in calls.iter().enumerate() {
            let owner = self.map.borrow().owner(call.slot).cloned();
            outcomes.push(Err(match owner {
                Some(place) => {
                    groups.entry(place).or_default().push(index);
                    FailureCause::Silent.into()
                }
                // A slot that nobody serves must not keep the other calls from their servers.
                None => {
                    self.look(LOOK_EVERY);
                    unserved(call.slot)
                }
            }));
        }
        let is_alone = groups.len() == 1;
        let sent = groups.into_iter().map(async |(place, group)| {
            let answers = self.send(&place, &group, calls, is_written, budget).await;
            (place, group, answers)
        });
        let (mut server_time, mut redirected) = (None, Vec::new());
        for (place, group, answers) in join_all(sent).await {
            let (answers, time) = answers.unwrap_or_else(|failure| {
                self.note_failure(&failure);
                (vec![Err(failure); group.len()], None)
            });
            for (index, outcome) in group.into_iter().zip(answers) {
                let failure = outcome.as_ref().err();
                let next = failure.and_then(|why| self.follow(calls[index].slot, why, &place));
                redirected.extend(next.map(|_| index));
                outcomes[index] = outcome;
            }
            let shard = self.map.borrow().place(&place);
            if let (true, Some(time), Some(shard)) = (is_alone, time, shard) {
                let shard = shard.into();
                server_time = Some(ServerTime { shard, time });
            }
        }
        let server_time = server_time.filter(|_| redirected.is_empty());
        let again = redirected.into_iter().map(async |index| {
            let outcome = self.run_in_slot(&calls[index], is_written, OF_MANY, budget);
            (index, outcome.await)
        });
        for (index, outcome) in join_all(again).await {
            outcomes[index] = outcome;
        }
        (outcomes, server_time)
    }

    /// Sends a group of calls to one server, as one pipeline with a question for its time.
    async fn send(
        self: &Arc<Self>,
        place: &HostPort,
        group: &[usize],
        calls: &[Call],
        is_written: Option<IsWritten>,
        budget: Budget,
    ) -> Result<Answers, Failure> {
        let mut pipeline = Pipeline::with_capacity(group.len() + 1);
        for &index in group {
            pipeline.add_command(calls[index].command.clone());
        }
        pipeline.cmd("TIME");
        let server = self.server(place)?;
        let is_served = |map: &Map, index: usize| map.owner(calls[index].slot) == Some(place);
        let is_right = |map: &Map| group.iter().any(|&index| is_served(map, index));
        let answers = server.request_all(&pipeline, is_written, budget);
        let mut answers = self.watched(place, is_right, budget, answers).await?;
        let time = answers.pop().and_then(|time| reply::time(&time).ok());
        // An answer of a server that was replaced meanwhile does not count.
        let map = self.map.borrow();
        let counted = |(answer, &index): (Value, &usize)| match reply::no_error(answer) {
            Ok(_) if !is_served(&map, index) => Err(FailureCause::Deposed.into()),
            answer => answer,
        };
        let answers = answers.into_iter().zip(group);
        Ok((answers.map(counted).collect(), time))
    }

    /// Waits for the answer of the server at this place as long as it is the right one, and looks for another one when
    /// it is slow. The answer counts only if the server is still the right one after it.
    async fn watched<T>(
        self: &Arc<Self>,
        place: &HostPort,
        is_right: impl Fn(&Map) -> bool,
        budget: Budget,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let began_at = Boottime.now();
        if !self.is_cluster() {
            self.look(LOOK_EVERY);
        }
        let deposed = async {
            let mut map = self.map.subscribe();
            // The sender is ours.
            let _ = map.wait_for(|map| !is_right(map)).await;
        };
        let impatient = async {
            loop {
                sleep(PATIENCE).await;
                self.look(LOOK_EVERY);
            }
        };
        let answer = tokio::select! {
            biased;
            answer = answer => answer?,
            () = deposed => {
                tracing::debug!(server = %place, "another server has taken over");
                return Err(FailureCause::Deposed.into());
            }
            () = impatient => unreachable!("it looks for ever"),
        };
        self.confirm(began_at, budget).await;
        match is_right(&self.map.borrow()) {
            true => Ok(answer),
            false => Err(FailureCause::Deposed.into()),
        }
    }

    /// Waits for a look that confirms an answer to a call that began at this moment, but not for long: while no
    /// Sentinel answers, the servers go on.
    ///
    /// A server that was slow to answer may have been stopped, and replaced, when it answered: then the look must be
    /// younger than the answer. Otherwise the Sentinels are asked every [`LOOK_EVERY`], and the nodes of a cluster
    /// redirect by themselves.
    async fn confirm(self: &Arc<Self>, began_at: Instant, budget: Budget) {
        let now = Boottime.now();
        let since = if now.since(began_at) > PATIENCE {
            self.look(AT_MOST_EVERY);
            now.before(AT_MOST_EVERY)
        } else if self.is_cluster() {
            return;
        } else {
            began_at.before(LOOK_EVERY)
        };
        self.looks.confirmed_since(since, budget.left()).await;
    }

    /// Corrects the map by what a server said that did not carry a call out, and looks for the rest of it. Returns what
    /// it said, or `None` after every other failure.
    fn follow(
        self: &Arc<Self>,
        slot: u16,
        failure: &Failure,
        answered: &HostPort,
    ) -> Option<Redirect> {
        let redirect = failure.redirect()?;
        match &redirect {
            Redirect::Moved(address) => {
                if let Some(place) = self.address_map.redirected(address, answered) {
                    self.change(|map| map.set_owner(slot, place, Boottime.now()));
                }
                self.look(LOOK_EVERY);
                // A look that began before may have missed what has changed, and the nodes learn it one after the other.
                let fleet = self.clone();
                tokio::spawn(async move {
                    sleep(LOOK_EVERY).await;
                    fleet.look(AT_MOST_EVERY);
                });
            }
            Redirect::Later => self.look(AT_MOST_EVERY),
            Redirect::Asked(_) | Redirect::Again => {}
        }
        Some(redirect)
    }

    /// Looks if this failure is one that another server would not have.
    fn note_failure(self: &Arc<Self>, failure: &Failure) {
        if failure.is_of_connection() {
            self.look(AT_MOST_EVERY);
        }
    }
}
