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

use super::super::connection::acks::{self, IsWritten};
use super::super::connection::server::Server;
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
    /// Returns whether its reply says that something was written: that counts only once replicas have it.
    pub(in super::super) is_written: Option<IsWritten>,
    pub(in super::super) command: Cmd,
}

/// The answers of one server to a group of calls, in their order, and its time.
type Answers = (Vec<Result<Value, Failure>>, Option<Duration>);

impl Fleet {
    /// Calls a script on the server of this name's slot.
    pub(in super::super) async fn run(
        self: &Arc<Self>,
        name: &Name,
        command: &Cmd,
        is_written: Option<IsWritten>,
        budget: Budget,
    ) -> Result<Value, Failure> {
        if let Some(server) = self.only() {
            return server.request(command, is_written, budget).await;
        }
        let slot = slot_of(name.as_str());
        let asked = self.run_in_slot(slot, command, is_written, u32::MAX, budget);
        // Boxed, or it would treble the size of each request to a server alone.
        Box::pin(asked).await
    }

    /// Follows at `most` this many redirections.
    // In one piece, because each step of the loop decides by what all the earlier ones met.
    async fn run_in_slot(
        self: &Arc<Self>,
        slot: u16,
        command: &Cmd,
        is_written: Option<IsWritten>,
        most: u32,
        budget: Budget,
    ) -> Result<Value, Failure> {
        let (mut asks, mut redirections, mut is_sent_before) = (None, 0, false);
        loop {
            let asked: Option<HostPort> = asks.take();
            let place = match &asked {
                Some(importing) => Ok(importing.clone()),
                None => self.owner(slot, budget).await,
            };
            let place = place.map_err(|failure| failure.after_another_try(is_sent_before))?;
            let outcome = match asked {
                Some(_) => self.ask(&place, command, is_written, budget).await,
                None => {
                    let answer = async {
                        self.server(&place)?
                            .request(command, is_written, budget)
                            .await
                    };
                    let is_right = |map: &Map| map.owner(slot) == Some(&place);
                    self.watched(&place, is_right, budget, answer).await
                }
            };
            let Err(failure) = outcome else {
                return outcome;
            };
            let failure = failure.after_another_try(is_sent_before);
            is_sent_before = failure.is_after_another_try();
            let Some(redirect) = self.follow(slot, &failure, &place) else {
                self.note_failure(&failure);
                return Err(failure);
            };
            if let Redirect::Asked(address) = &redirect {
                asks = self.address_map.redirected(address, &place);
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

    /// Makes a call on a server that imports its slot and serves it only to those who were sent there.
    async fn ask(
        self: &Arc<Self>,
        importing: &HostPort,
        command: &Cmd,
        is_written: Option<IsWritten>,
        budget: Budget,
    ) -> Result<Value, Failure> {
        let server = self.server(importing)?;
        let mut pipeline = Pipeline::with_capacity(3);
        pipeline.cmd("ASKING").add_command(command.clone());
        let mut answers = answers(&server, pipeline, &[is_written], 1, budget).await?;
        answers.0.pop().unwrap_or(Err(FailureCause::Silent.into()))
    }

    /// Makes each call on the server of its slot. One that fails does not concern the others. Returns the outcomes in
    /// the order of the calls, and the server's time if one server answered them all.
    pub(in super::super) async fn run_each(
        self: &Arc<Self>,
        calls: &[Call],
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
        let sent = groups.into_iter().map(async |(place, group)| {
            (self.send(&place, &group, calls, budget).await, place, group)
        });
        let (mut times, mut redirected) = (Vec::new(), Vec::new());
        for (answers, place, group) in join_all(sent).await {
            let (answers, time) = answers.unwrap_or_else(|failure| {
                self.note_failure(&failure);
                (vec![Err(failure); group.len()], None)
            });
            times.extend(time.map(|time| (place.clone(), time)));
            for (index, outcome) in group.into_iter().zip(answers) {
                let failure = outcome.as_ref().err();
                let next = failure.and_then(|why| self.follow(calls[index].slot, why, &place));
                redirected.extend(next.map(|_| index));
                outcomes[index] = outcome;
            }
        }
        let shard = |place| self.map.borrow().place(place);
        let time = match &*times {
            [(place, time)] if redirected.is_empty() => shard(place).map(|shard| ServerTime {
                shard: shard.into(),
                time: *time,
            }),
            _ => None,
        };
        let again = redirected.into_iter().map(async |index| {
            let Call {
                slot,
                is_written,
                command,
            } = &calls[index];
            let outcome = self.run_in_slot(*slot, command, *is_written, OF_MANY, budget);
            (index, outcome.await)
        });
        for (index, outcome) in join_all(again).await {
            outcomes[index] = outcome;
        }
        (outcomes, time)
    }

    /// Sends a group of calls to one server, as one pipeline.
    async fn send(
        self: &Arc<Self>,
        place: &HostPort,
        group: &[usize],
        calls: &[Call],
        budget: Budget,
    ) -> Result<Answers, Failure> {
        let server = self.server(place)?;
        let mut pipeline = Pipeline::with_capacity(group.len() + 2);
        for &index in group {
            pipeline.add_command(calls[index].command.clone());
        }
        let are_written: Vec<_> = group.iter().map(|&index| calls[index].is_written).collect();
        let is_served = |map: &Map, index: usize| map.owner(calls[index].slot) == Some(place);
        let is_right = |map: &Map| group.iter().any(|&index| is_served(map, index));
        let answers = answers(&server, pipeline, &are_written, 0, budget);
        let (mut answers, time) = self.watched(place, is_right, budget, answers).await?;
        // An answer of a server that was replaced meanwhile does not count.
        let map = self.map.borrow();
        for (&index, answer) in group.iter().zip(&mut answers) {
            if answer.is_ok() && !is_served(&map, index) {
                *answer = Err(FailureCause::Deposed.into());
            }
        }
        Ok((answers, time))
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
                if let Some(place) = self.address_map.redirected(address, answered)
                    && self.change(|map| map.set_owner(slot, place, Boottime.now()))
                {
                    self.look_later();
                }
                self.look(LOOK_EVERY);
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

/// Sends calls to a server, behind this many other commands of the same pipeline. Waits until replicas have what they
/// wrote, and asks for the server's time.
async fn answers(
    server: &Server,
    mut pipeline: Pipeline,
    are_written: &[Option<IsWritten>],
    others: usize,
    budget: Budget,
) -> Result<Answers, Failure> {
    let replicas = match are_written.iter().any(Option::is_some) {
        true => server.connector.acknowledged_by,
        false => 0,
    };
    if replicas > 0 {
        pipeline.add_command(acks::wait(replicas, acks::limit_of(budget)));
    }
    pipeline.cmd("TIME");
    let replies = server.request_all(&pipeline, budget).await?;
    let mut replies = replies.into_iter().skip(others);
    let answers = replies.by_ref().take(are_written.len());
    let mut answers: Vec<_> = answers.map(reply::no_error).collect();
    let mut next = || replies.next().ok_or_else(|| Failure::odd("too short"));
    if replicas > 0
        && let Err(failure) = acks::enough(acks::replicas_in(&next()?)?, replicas)
    {
        for (answer, is_written) in answers.iter_mut().zip(are_written) {
            let is_it = |reply| is_written.is_some_and(|is_written| is_written(reply));
            if answer.as_ref().is_ok_and(is_it) {
                *answer = Err(failure.clone());
            }
        }
    }
    Ok((answers, reply::time(&next()?).ok()))
}
