//! Calls of scripts for several servers that share the slots: each call goes to the server of its slot, in one pipeline
//! per server.
//!
//! A call that was refused without being carried out is repeated within the budget, because another server may take it:
//! the slot has moved or is moving, or the server is a replica by now. A call that waits for its server is given up
//! when another server has taken over, because the answer of the first no longer counts.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, Pipeline, Value};
use futures_util::future::join_all;
use tokio::time::sleep;

use super::super::connection::Answers;
use super::super::connection::acks::IsWritten;
use super::super::failure::{Failure, FailureCause, Redirect};
use super::super::protocol::slot::slot_of;
use super::super::target::UrlServers;
use super::Fleet;
use super::discovery::{AFTER_FAILURES_EVERY, AT_MOST_EVERY, DISCOVER_EVERY};
use super::map::Map;
use crate::clock::{Boottime, Clock};
use crate::name::Name;
use crate::store::Sent;
use crate::store::kit::backend::Failing as _;
use crate::store::kit::budget::Budget;
use crate::store::kit::server_url::HostPort;

/// Pause before a call is repeated that no server accepts at the moment.
const PAUSE: Duration = Duration::from_millis(25);
/// How long a call waits for an answer before it checks for a failover.
const CHECK_AFTER: Duration = Duration::from_millis(100);
/// Redirections that a call follows without a pause. Servers that disagree can bounce a call between them.
const AT_ONCE: u32 = 3;
/// A single call follows redirections until its limit ends.
pub(crate) const OF_ONE: u32 = u32::MAX;
/// Maximum redirections per call in a batch, because finished calls wait for the rest. Moving a slot by hand causes
/// two.
pub(crate) const OF_MANY: u32 = 4;

/// A call of a script for one slot.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) slot: u16,
    pub(crate) command: Cmd,
}

/// The index of a call, and its server, if that is not the server of its slot but one that imports the slot and serves
/// it only to redirected clients.
type Waiting = (usize, Option<HostPort>);

impl Fleet {
    /// Calls a script on the server of this name's slot, and follows at `most` this many redirections. If its reply
    /// reports a write, that counts only once replicas have it.
    pub(crate) async fn run(
        self: &Arc<Self>,
        name: &Name,
        command: Cmd,
        is_written: Option<IsWritten>,
        most: u32,
        budget: Budget,
    ) -> Result<Value, Failure> {
        if let UrlServers::One = self.named {
            return self.first()?.ask(command, is_written, budget).await;
        }
        let slot = slot_of(name.as_str());
        let calls = [Call { slot, command }];
        // Boxed, or it would treble the size of each request to a server alone.
        let asked = Box::pin(self.run_each(&calls, is_written, most, budget));
        asked.await.0.swap_remove(0)
    }

    /// Makes each call on the server of its slot, and follows at `most` this many redirections. A call that fails does
    /// not affect the others. Returns the answers, and whether no call was redirected.
    pub(crate) async fn run_each(
        self: &Arc<Self>,
        calls: &[Call],
        is_written: Option<IsWritten>,
        most: u32,
        budget: Budget,
    ) -> (Answers, bool) {
        if let Err(failure) = self.find(budget).await {
            return (vec![Err(failure); calls.len()], true);
        }
        let mut outcomes: Answers = calls.iter().map(Call::unserved).collect();
        let mut waiting: Vec<_> = (0..calls.len()).map(|index| (index, None)).collect();
        let mut round = 1;
        loop {
            let mut is_at_once = round <= AT_ONCE;
            let asked = self.ask_once(calls, waiting, is_written, budget).await;
            waiting = Vec::new();
            for (index, endpoint, answer) in asked {
                let answer = answer.map_err(|failure| match &outcomes[index] {
                    Err(before) if before.sent() == Sent::Perhaps => failure.after_another_try(),
                    _ => failure,
                });
                let failure = answer.as_ref().err();
                let next =
                    failure.and_then(|why| self.follow(calls[index].slot, why, endpoint.as_ref()));
                if let Some((importing, is_later)) = next {
                    is_at_once &= !is_later;
                    waiting.push((index, importing));
                }
                outcomes[index] = answer;
            }
            if !waiting.is_empty() && !is_at_once {
                sleep(PAUSE.min(budget.left())).await;
            }
            if waiting.is_empty() || round > most || budget.left() <= PAUSE {
                break;
            }
            round += 1;
        }
        let is_direct = round == 1 && waiting.is_empty();
        let outcomes = outcomes.into_iter();
        let outcomes = outcomes.map(|outcome| outcome.map_err(Failure::not_serving));
        (outcomes.collect(), is_direct)
    }

    /// Sends these calls once, in one pipeline per server. Returns the server of each call, and its answer.
    async fn ask_once(
        self: &Arc<Self>,
        calls: &[Call],
        waiting: Vec<Waiting>,
        is_written: Option<IsWritten>,
        budget: Budget,
    ) -> Vec<(usize, Option<HostPort>, Result<Value, Failure>)> {
        let mut groups: Vec<(_, Vec<_>)> = Vec::new();
        for (index, importing) in waiting {
            let is_importing = importing.is_some();
            let endpoint =
                importing.or_else(|| self.map.borrow().owner(calls[index].slot).cloned());
            let asked = (endpoint, is_importing);
            match groups.iter_mut().find(|(known, _)| *known == asked) {
                Some((_, group)) => group.push(index),
                None => groups.push((asked, vec![index])),
            }
        }
        let asked = groups
            .into_iter()
            .map(async |((endpoint, is_importing), group)| {
                let of_group: Vec<_> = group.iter().map(|index| &calls[*index]).collect();
                let answers = match &endpoint {
                    Some(endpoint) => {
                        let sent = self.send(endpoint, is_importing, &of_group, is_written, budget);
                        sent.await
                    }
                    None => Ok(of_group.into_iter().map(Call::unserved).collect()),
                };
                let answers = answers.unwrap_or_else(|failure| vec![Err(failure); group.len()]);
                let answers = group.into_iter().zip(answers);
                answers.map(move |(index, answer)| (index, endpoint.clone(), answer))
            });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// Sends calls to the server of their slots, or to one that imports them.
    async fn send(
        self: &Arc<Self>,
        endpoint: &HostPort,
        is_importing: bool,
        calls: &[&Call],
        is_written: Option<IsWritten>,
        budget: Budget,
    ) -> Result<Answers, Failure> {
        let mut commands = Pipeline::with_capacity(2 * calls.len());
        for call in calls {
            if is_importing {
                commands.cmd("ASKING");
            }
            commands.add_command(call.command.clone());
        }
        let server = self.server(endpoint)?;
        let answers = server.ask_all(&commands, is_written, budget);
        if is_importing {
            return Ok(answers.await?.into_iter().skip(1).step_by(2).collect());
        }
        let is_served = |map: &Map, call: &Call| map.owner(call.slot) == Some(endpoint);
        let is_right = |map: &Map| calls.iter().any(|call| is_served(map, call));
        let answers = self.watched(endpoint, is_right, budget, answers).await?;
        // An answer of a server that was replaced in the meantime does not count.
        let map = self.map.borrow();
        let counted = |(answer, call): (Result<_, _>, &&Call)| match answer {
            Ok(_) if !is_served(&map, call) => Err(FailureCause::Deposed.into()),
            answer => answer,
        };
        Ok(answers.into_iter().zip(calls).map(counted).collect())
    }

    /// Waits for the answer of the server at this endpoint as long as it is the right one, and searches for another one
    /// when it is slow. The answer counts only if the server is still the right one after it.
    ///
    /// A server that was slow to answer may have been stopped, and replaced, when it answered: then the discovery that
    /// confirms it must be younger than the answer. Otherwise the Sentinels are asked every [`DISCOVER_EVERY`], and the
    /// nodes of a cluster redirect by themselves.
    async fn watched<T>(
        self: &Arc<Self>,
        endpoint: &HostPort,
        is_right: impl Fn(&Map) -> bool,
        budget: Budget,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let began_at = Boottime.now();
        let mut discovery = (!self.is_cluster()).then(|| self.discover(DISCOVER_EVERY));
        let deposed = async {
            let mut map = self.map.subscribe();
            // This store owns the sender.
            let _ = map.wait_for(|map| !is_right(map)).await;
        };
        let impatient = async {
            loop {
                sleep(CHECK_AFTER).await;
                self.discover(DISCOVER_EVERY);
            }
        };
        let answer = tokio::select! {
            biased;
            answer = answer => answer?,
            () = deposed => {
                tracing::debug!(server = %endpoint, "another server has taken over");
                return Err(FailureCause::Deposed.into());
            }
            () = impatient => unreachable!("it repeats for ever"),
        };
        if Boottime.now().since(began_at) > CHECK_AFTER {
            discovery = Some(self.discover(AT_MOST_EVERY));
        }
        if let Some(discovery) = discovery {
            self.confirmed_by(&discovery, budget).await;
        }
        match is_right(&self.map.borrow()) {
            true => Ok(answer),
            false => Err(FailureCause::Deposed.into()),
        }
    }

    /// Corrects the map by the answer of a server that did not carry out a call, and starts a discovery of the rest.
    /// Returns the server to ask, if one imports the slot, and whether to wait before. `None`: the call must not be
    /// repeated.
    fn follow(
        self: &Arc<Self>,
        slot: u16,
        failure: &Failure,
        answered: Option<&HostPort>,
    ) -> Option<(Option<HostPort>, bool)> {
        let redirected = |address: &str| self.address_map.redirected(address, answered?);
        match failure.redirect() {
            Some(Redirect::Moved(address)) => {
                if let Some(endpoint) = redirected(&address) {
                    self.change(|map| map.set_owner(slot, endpoint, Boottime.now()));
                }
                self.discover(DISCOVER_EVERY);
                // A discovery that began earlier may have missed what has changed, and the nodes learn it one after the
                // other.
                let fleet = self.clone();
                tokio::spawn(async move {
                    sleep(DISCOVER_EVERY).await;
                    fleet.discover(AT_MOST_EVERY);
                });
                Some((None, false))
            }
            Some(Redirect::Asked(address)) => Some((redirected(&address), false)),
            Some(Redirect::Later) => {
                self.discover(AT_MOST_EVERY);
                Some((None, true))
            }
            None => {
                // Another server may have taken over.
                if failure.is_of_connection() {
                    self.discover(AFTER_FAILURES_EVERY);
                }
                None
            }
        }
    }
}

impl Call {
    fn unserved(&self) -> Result<Value, Failure> {
        Err(FailureCause::Unserved(self.slot).into())
    }
}
