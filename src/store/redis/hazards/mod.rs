//! Faults in a server's set-up that weaken the promises.

mod server;

use std::collections::HashMap;

use deadpool_redis::redis::{Cmd, Value};
use futures_util::future::try_join_all;

use super::REPLACE_EVERY;
use super::budget::Budget;
use super::failure::Failure;
use super::fleet::Fleet;
use super::runtime_lanes::RuntimeLanes;
use super::server::Server;
use crate::error::ErrorKind;
use crate::store::{Hazard, Member, MemberState};

/// Asks the servers about their set-up and judges the answers.
pub(super) async fn look(fleet: &Fleet, budget: Budget) -> Result<Vec<Hazard>, Failure> {
    let servers = fleet.servers(budget).await?;
    let is_cluster = fleet.cluster().is_some();
    let looked = servers
        .iter()
        .map(|server| server::look_at(&server.lanes, is_cluster, budget));
    let mut hazards: Vec<Hazard> = Vec::new();
    for hazard in try_join_all(looked).await?.into_iter().flatten() {
        if !hazards.iter().any(|known| known.id == hazard.id) {
            hazards.push(hazard);
        }
    }
    Ok(hazards)
}

/// Returns whether each server answers, and its version if it shows it.
pub(super) async fn see(fleet: &Fleet, budget: Budget) -> Result<Vec<Member>, Failure> {
    let servers = fleet.servers(budget).await?;
    try_join_all(servers.iter().map(|server| see_one(server, budget))).await
}

async fn see_one(server: &Server, budget: Budget) -> Result<Member, Failure> {
    let lanes = &server.lanes;
    let place = &*server.place;
    if let Err(failure) = ask(lanes, budget, &["PING"]).await {
        return match failure.kind() {
            ErrorKind::Unavailable | ErrorKind::TimedOut => {
                Ok(Member::new(place, MemberState::Down))
            }
            _ => Err(failure),
        };
    }
    let told = ask(lanes, budget, &["INFO", "server"]).await;
    let told = told.map(|reply| version(&lines(&reply))).ok();
    Ok(Member::new(place, MemberState::Up).with_version(told.flatten()))
}

/// Returns the server's name and version. Valkey shows the version of Redis beside its own.
fn version(info: &HashMap<String, String>) -> Option<String> {
    let [valkey, redis] = ["valkey_version", "redis_version"].map(|key| info.get(key));
    let valkey = valkey.map(|version| format!("Valkey {version}"));
    valkey.or_else(|| redis.map(|version| format!("Redis {version}")))
}

async fn ask(lanes: &RuntimeLanes, budget: Budget, words: &[&str]) -> Result<Value, Failure> {
    let mut command = Cmd::new();
    words.iter().for_each(|word| {
        command.arg(*word);
    });
    lanes.request(&command, budget, REPLACE_EVERY).await
}

async fn setting(
    lanes: &RuntimeLanes,
    budget: Budget,
    name: &str,
) -> Result<Option<String>, Failure> {
    let reply = allowed(ask(lanes, budget, &["CONFIG", "GET", name]).await)?;
    Ok(reply.map(|reply| match reply {
        Value::Array(pair) => pair.get(1).map(text).unwrap_or_default(),
        Value::Map(pairs) => pairs
            .first()
            .map(|(_, value)| text(value))
            .unwrap_or_default(),
        _ => String::new(),
    }))
}

/// A server that refuses one command, or does not know it, still answers the others.
fn allowed(reply: Result<Value, Failure>) -> Result<Option<Value>, Failure> {
    match reply {
        Ok(value) => Ok(Some(value)),
        Err(failure @ Failure::Refused { .. }) if failure.kind() != ErrorKind::Unavailable => {
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

/// Reads the reply of INFO.
pub(super) fn lines(info: &Value) -> HashMap<String, String> {
    let text = text(info);
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs
        .map(|(key, value)| (key.into(), value.trim().into()))
        .collect()
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
    }
}
