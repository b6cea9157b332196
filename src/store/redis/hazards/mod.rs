//! Faults in a server's set-up that weaken the promises.

mod cluster;
mod sentinels;
mod server;
pub(super) mod tokens;

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::Value;
use futures_util::future::{join_all, try_join_all};

use self::server::KnownAs;
use super::Redis;
use super::connection::server::Server;
use super::failure::{Failure, FailureCause};
use super::fleet::Discovery;
use super::protocol::reply;
use crate::error::ErrorKind;
use crate::store::backend::Failing;
use crate::store::budget::Budget;
use crate::store::check::{Check, Weakness, found, judge};
use crate::store::connection::is_transient;
use crate::store::{Hazard, Member, MemberState, Severity};

/// The lines of INFO, or the settings of CONFIG, by their names.
type Settings = HashMap<String, String>;

/// The facts that a server reports of itself, by its address.
type Looked = (String, Vec<Hazard>);

/// Asks the servers about their set-up, including discovered ones, and judges the answers.
pub(super) async fn look(redis: &Redis, budget: Budget) -> Result<Vec<Hazard>, Failure> {
    let fleet = &redis.fleet;
    let servers = fleet.servers(budget).await?;
    let known_as = match &fleet.discovery {
        Discovery::One(_) => KnownAs::OneServer,
        Discovery::Sentinels(_) => KnownAs::Master,
        Discovery::Nodes(_) => KnownAs::Primary,
    };
    let granting = try_join_all(servers.iter().map(async |server| {
        let hazards = server::look_at(redis, server, known_as, budget).await?;
        Ok((server.connector.address.to_string(), hazards))
    }));
    let beside = look_beside(redis, &servers, budget);
    let (granting, (mut hazards, replicas)) = tokio::try_join!(granting, beside)?;
    hazards.extend(told_once(granting, replicas));
    // A store of another kind has its own rules for the tokens that its servers remember.
    if fleet.settings.program.kind == super::KIND {
        hazards.extend(tokens::look(&redis.keys, &servers, budget).await?);
    }
    Ok(hazards)
}

/// Looks at the Sentinels or the cluster, and at the replicas. Each of those may have to take over one day.
async fn look_beside(
    redis: &Redis,
    servers: &[Arc<Server>],
    budget: Budget,
) -> Result<(Vec<Hazard>, Vec<Looked>), Failure> {
    let fleet = &redis.fleet;
    // One that is silent leaves the replicas their time.
    let first = budget.at_most(budget.left() / 2);
    let (hazards, mut replicas) = match &fleet.discovery {
        Discovery::One(_) => return Ok((Vec::new(), Vec::new())),
        Discovery::Sentinels(group) => {
            let (hazards, named) = sentinels::look(group, first).await;
            let reached = named
                .into_iter()
                .map(|place| fleet.address_map.reached(place));
            (hazards, reached.collect())
        }
        Discovery::Nodes(_) => cluster::look(fleet, servers, first).await?,
    };
    replicas.sort_by_key(ToString::to_string);
    replicas.dedup();
    let looked = replicas.iter().map(async |replica| {
        let server = Server::new(fleet.settings.at(replica), None);
        let looked = server::look_at(redis, &server, KnownAs::Replica, budget).await;
        server.close();
        let hazards = looked.unwrap_or_else(|failure| judge(&[UNSEEN], &failure));
        (server.connector.address.to_string(), hazards)
    });
    Ok((hazards, join_all(looked).await))
}

/// A replica that did not answer.
const UNSEEN: Check<Failure> = Check::new(
    Severity::Unknown,
    "redis-replica-unseen",
    |failure| found(true, format!("a replica cannot be asked: {failure}")),
    "its clock and its settings cannot be checked, and tokens follow them once it takes over",
    "Start it, and let this user in",
);

/// Tells each weakness once. Where not all servers that grant leases have it, it is told which do.
fn told_once(granting: Vec<Looked>, replicas: Vec<Looked>) -> Vec<Hazard> {
    let all: Vec<_> = granting.iter().map(|(place, _)| place.clone()).collect();
    let mut told: Vec<(Hazard, Vec<String>)> = Vec::new();
    for (place, hazards) in granting.into_iter().chain(replicas) {
        for hazard in hazards {
            let is_same = |known: &Hazard| known.id == hazard.id && known.what == hazard.what;
            match told.iter_mut().find(|(known, _)| is_same(known)) {
                Some((_, places)) => places.push(place.clone()),
                None => told.push((hazard, vec![place.clone()])),
            }
        }
    }
    let named = told.into_iter().map(|(mut hazard, places)| {
        if !all.iter().all(|place| places.contains(place)) {
            hazard.what = format!("{}, on {}", hazard.what, places.join(", ")).into();
        }
        hazard
    });
    named.collect()
}

/// The time that an election and the promotion take, once a master counts as down: half of that is left for a busy
/// machine.
const ELECTION: Duration = Duration::from_secs(2);

/// The identifier of a failover that takes longer than short leases last.
const SLOW_FAILOVER: &str = "redis-slow-failover";
/// The words for what it endangers: no lease of a ttl below this many seconds ...
const OUTLIVED: &str = "survives it";

/// Returns what is found of a failover that begins after so long without an answer. A renewal can have been due just
/// before the master failed, so two thirds of the ttl must be enough.
fn slow_failover(begins_after: Duration, by: impl Display) -> Weakness {
    let takes = begins_after + ELECTION;
    let least_ttl = Duration::from_secs((takes * 3 / 2).as_secs_f64().ceil() as u64);
    let what = format!("a failover takes {takes:.1?} with {by}");
    Weakness(what.into(), Some(least_ttl))
}

/// Returns whether each server answers and takes part, and its version if it shows it.
pub(super) async fn see(redis: &Redis, budget: Budget) -> Result<Vec<Member>, Failure> {
    let servers = redis.fleet.servers(budget).await?;
    let node = redis.keys.node();
    let seen = servers.iter().map(|server| see_one(server, &node, budget));
    try_join_all(seen).await
}

/// Returns for how long the server grants nothing, as it noted at its last claim. `None` where keep-out is off.
async fn quiet(server: &Server, node: &str, budget: Budget) -> Result<Option<Duration>, Failure> {
    let ready = allowed(server.ask(&["HGET", node, "ready"], budget).await)?;
    let Some(ready) = ready.and_then(|reply| reply::number(&reply).ok()) else {
        return Ok(None);
    };
    let now = clock_us(server, budget).await?;
    Ok(Some(Duration::from_micros(ready.saturating_sub(now))))
}

/// Returns the server's clock, in microseconds since 1970.
async fn clock_us(server: &Server, budget: Budget) -> Result<u64, Failure> {
    let time = reply::time(&server.ask(&["TIME"], budget).await?)?;
    Ok(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

async fn see_one(server: &Server, node: &str, budget: Budget) -> Result<Member, Failure> {
    let look = async {
        server.ask(&["PING"], budget).await?;
        let told = server.ask(&["INFO"], budget).await;
        let info = told.map(|reply| lines(&reply)).unwrap_or_default();
        let state = match info.get("role").map(String::as_str) {
            Some("slave") => MemberState::Standby,
            _ => match quiet(server, node, budget).await? {
                Some(remaining) if !remaining.is_zero() => MemberState::Away { remaining },
                _ => MemberState::Up,
            },
        };
        Ok::<_, Failure>((state, version(&info)))
    };
    let (state, version) = match look.await {
        Err(failure) if is_transient(&failure) => (MemberState::Down, None),
        looked => looked?,
    };
    let place = server.connector.address.to_string();
    Ok(Member::new(place, state).with_version(version))
}

/// Returns the server's name and version. Valkey shows the version of Redis with its own.
fn version(info: &HashMap<String, String>) -> Option<String> {
    let [valkey, redis] = ["valkey_version", "redis_version"].map(|key| info.get(key));
    let valkey = valkey.map(|version| format!("Valkey {version}"));
    valkey.or_else(|| redis.map(|version| format!("Redis {version}")))
}

/// Returns the settings of a server. `None` if it refuses to tell them.
async fn settings(server: &Server, budget: Budget) -> Result<Option<Settings>, Failure> {
    let reply = allowed(server.ask(&["CONFIG", "GET", "*"], budget).await)?;
    // The reply is not shown: it has the server's passwords.
    let fields = |reply| reply::fields(&reply).map_err(|_| Failure::odd("to CONFIG GET"));
    reply.map(fields).transpose()
}

/// A server that refuses one command, or does not know it, still answers the others.
fn allowed(reply: Result<Value, Failure>) -> Result<Option<Value>, Failure> {
    match reply {
        Ok(value) => Ok(Some(value)),
        Err(failure) => match failure.cause {
            FailureCause::Refused { .. } if failure.kind() != ErrorKind::Unavailable => Ok(None),
            _ => Err(failure),
        },
    }
}

/// Reads the reply of INFO.
fn lines(info: &Value) -> Settings {
    let text = reply::text(info).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs
        .map(|(key, value)| (key.into(), value.trim().into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hazard(what: &'static str) -> Hazard {
        Hazard::new("id", Severity::Warning, what, "endangers", "Fix")
    }

    fn told(granting: &[(&str, &[&'static str])], replicas: &[(&str, &[&'static str])]) -> String {
        let looked = |all: &[(&str, &[&'static str])]| {
            let all = all.iter().map(|(place, whats)| {
                let hazards = whats.iter().map(|what| hazard(what));
                ((*place).to_owned(), hazards.collect())
            });
            all.collect()
        };
        let told = told_once(looked(granting), looked(replicas)).into_iter();
        let told: Vec<_> = told.map(|hazard| hazard.what.into_owned()).collect();
        told.join("; ")
    }

    #[test]
    fn what_all_have_is_told_once_and_what_some_have_with_their_names() {
        assert_eq!(told(&[("a", &["x"])], &[]), "x");
        assert_eq!(told(&[("a", &["x"]), ("b", &["x"])], &[]), "x");
        assert_eq!(
            told(&[("a", &["x"]), ("b", &["y"])], &[]),
            "x, on a; y, on b"
        );
        assert_eq!(told(&[("a", &[])], &[("r", &["x"])]), "x, on r");
    }
}
