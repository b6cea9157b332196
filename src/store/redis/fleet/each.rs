//! Many calls at once, each for a slot of its own: one pipeline for each server.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, Pipeline, Value};
use futures_util::future::join_all;

use super::super::connection::acks;
use super::super::connection::budget::Budget;
use super::super::failure::{Failure, Redirect};
use super::super::protocol::reply;
use super::look::LOOK_EVERY;
use super::many::Many;
use super::map::{HostPort, Map};
use crate::store::ServerTime;

/// Says how often a call may be sent, with redirections. A slot that is moved by hand redirects twice.
const ROUNDS: usize = 5;

/// A call of a script for one slot.
#[derive(Debug)]
pub(in super::super) struct Call {
    pub(in super::super) slot: u16,
    /// It may write what must not be lost: then it counts only once replicas have it.
    pub(in super::super) is_write: bool,
    pub(in super::super) command: Cmd,
}

/// Says where a call goes next.
struct Unplaced {
    index: usize,
    /// The server that imports the slot, if the slot's server has sent us there.
    asks: Option<HostPort>,
}

/// The answers of one server to a group of calls, in their order, and its time.
type Answers = (Vec<Result<Value, Failure>>, Option<Duration>);

impl Many {
    /// Makes each call on the server of its slot. One that fails does not concern the others. Returns the outcomes in
    /// the order of the calls, and the server's time if one server answered them all.
    pub(in super::super) async fn run_each(
        self: &Arc<Self>,
        calls: &[Call],
        budget: Budget,
        replace_every: Duration,
    ) -> (Vec<Result<Value, Failure>>, Option<ServerTime>) {
        let mut outcomes: Vec<_> = calls.iter().map(|_| Err(Failure::Silent)).collect();
        let all = 0..calls.len();
        let mut pending: Vec<_> = all.map(|index| Unplaced { index, asks: None }).collect();
        let mut times = HashMap::new();
        for _ in 0..ROUNDS {
            let mut groups: HashMap<HostPort, Vec<Unplaced>> = HashMap::new();
            for one in pending.drain(..) {
                let place = match &one.asks {
                    Some(importing) => Ok(importing.clone()),
                    None => self.owner_at_once(calls[one.index].slot, budget).await,
                };
                match place {
                    Ok(place) => groups.entry(place).or_default().push(one),
                    Err(failure) => outcomes[one.index] = Err(failure),
                }
            }
            if groups.is_empty() {
                break;
            }
            let sent = groups.into_iter().map(async |(place, group)| {
                let answers = self.run_group(&place, &group, calls, (budget, replace_every));
                (answers.await, place, group)
            });
            let mut is_late = false;
            for (answers, place, group) in join_all(sent).await {
                let answers = match answers {
                    Ok((answers, time)) => {
                        times.insert(place.clone(), time);
                        answers
                    }
                    Err(failure) => {
                        self.note_failure(&failure);
                        group.iter().map(|_| Err(failure.clone())).collect()
                    }
                };
                for (Unplaced { index, .. }, outcome) in group.into_iter().zip(answers) {
                    let slot = calls[index].slot;
                    let refusal = outcome.as_ref().err().and_then(Failure::redirect);
                    let asks = match &refusal {
                        Some(Redirect::Asked(address)) => self.redirected(address, &place),
                        _ => None,
                    };
                    match &refusal {
                        Some(Redirect::Moved(address)) => self.note_moved(slot, address, &place),
                        Some(Redirect::Later) => is_late = true,
                        _ => {}
                    }
                    outcomes[index] = outcome.map_err(Failure::not_serving);
                    if refusal.is_some() {
                        pending.push(Unplaced { index, asks });
                    }
                }
            }
            if is_late {
                self.look_again(budget).await;
            }
        }
        let time = match (times.len(), times.into_iter().next()) {
            (1, Some((place, Some(time)))) => self.map().place(&place).map(|shard| {
                let shard = shard.into();
                ServerTime { shard, time }
            }),
            _ => None,
        };
        (outcomes, time)
    }

    /// Returns who serves this slot. Waits only while nothing at all is known: a slot that nobody serves must not keep
    /// the calls beside it from their servers.
    async fn owner_at_once(
        self: &Arc<Self>,
        slot: u16,
        budget: Budget,
    ) -> Result<HostPort, Failure> {
        let known = {
            let map = self.map();
            map.is_known().then(|| map.owner(slot).cloned())
        };
        match known {
            Some(Some(place)) => Ok(place),
            Some(None) => {
                self.look(LOOK_EVERY);
                Err(Failure::Unserved(slot).before_the_request())
            }
            None => self.owner(slot, budget).await,
        }
    }

    /// Sends a group of calls to one server, as one pipeline.
    async fn run_group(
        self: &Arc<Self>,
        place: &HostPort,
        group: &[Unplaced],
        calls: &[Call],
        (budget, replace_every): (Budget, Duration),
    ) -> Result<Answers, Failure> {
        let server = self.server(place)?;
        let loads = server.connections.loads()?;
        let mut pipeline = Pipeline::with_capacity(group.len() + 1);
        for one in group {
            if one.asks.is_some() {
                pipeline.cmd("ASKING").ignore();
            }
            pipeline.add_command(calls[one.index].command.clone());
        }
        let replicas = match group.iter().any(|one| calls[one.index].is_write) {
            true => server.connections.acknowledged_by(),
            false => 0,
        };
        if replicas > 0 {
            pipeline.add_command(acks::wait(replicas, acks::limit_of(budget)));
        }
        pipeline.cmd("TIME");
        let is_right = |map: &Map| {
            let mut slots = group.iter().map(|one| calls[one.index].slot);
            let is_asked = group.iter().any(|one| one.asks.is_some());
            is_asked || slots.any(|slot| map.owner(slot) == Some(place))
        };
        let replies = server
            .connections
            .request_all(&pipeline, budget, replace_every);
        let mut replies = self
            .watched(place, is_right, budget, replies)
            .await?
            .into_iter();
        let too_few = || Failure::Odd("too few replies".into());
        let mut answers = Vec::with_capacity(group.len());
        for one in group {
            if one.asks.is_some() {
                replies.next();
            }
            let reply = replies.next().ok_or_else(too_few)?;
            answers.push(reply::no_error(reply));
        }
        if answers
            .iter()
            .any(|answer| answer.as_ref().is_err_and(Failure::is_no_script))
        {
            let loaded = server.connections.load(loads, budget, replace_every).await;
            loaded.map_err(Failure::before_the_request)?;
        }
        if replicas > 0 {
            let acknowledged = acks::replicas_in(&replies.next().ok_or_else(too_few)?)?;
            if let Err(failure) = acks::enough(acknowledged, replicas) {
                let answered = answers.iter_mut().filter(|answer| answer.is_ok());
                answered.for_each(|answer| *answer = Err(failure.clone()));
            }
        }
        // What a server answered that was replaced meanwhile does not count.
        let map = self.map();
        for (one, answer) in group.iter().zip(&mut answers) {
            let is_right = one.asks.is_some() || map.owner(calls[one.index].slot) == Some(place);
            if answer.is_ok() && !is_right {
                *answer = Err(Failure::Deposed);
            }
        }
        drop(map);
        let time = replies.next().and_then(|time| reply::time(&time).ok());
        Ok((answers, time))
    }
}
