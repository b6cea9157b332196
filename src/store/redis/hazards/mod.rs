//! Faults in a server's set-up that weaken the promises.

mod sentinels;
mod server;
pub(super) mod tokens;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use deadpool_redis::redis::Value;
use futures_util::future::{join_all, try_join_all};

use self::server::{KnownAs, ServerFacts};
use super::Redis;
use super::connection::server::Server;
use super::failure::Failure;
use super::protocol::reply;
use super::target::UrlServers;
use crate::clock::Timing;
use crate::store::kit::budget::Budget;
use crate::store::kit::check::{Check, Weakness, found, judge};
use crate::store::{Hazard, Severity};

/// The lines of INFO, or the settings of CONFIG, by their names.
pub(super) type Fields = BTreeMap<String, String>;

/// The faults of a server, by its address.
type Judged = (String, Vec<Hazard>);

/// Asks the servers about their set-up, including discovered ones, and judges the answers.
pub(super) async fn find(redis: &Redis, budget: Budget) -> Result<Vec<Hazard>, Failure> {
    let fleet = &redis.fleet;
    let servers = fleet.servers(budget).await?;
    let known_as = match &fleet.named {
        UrlServers::One => KnownAs::OneServer,
        UrlServers::Sentinels(_) => KnownAs::Master,
        UrlServers::Cluster(_) => KnownAs::Primary,
    };
    let asked = servers.iter();
    let asked = asked.map(|server| ServerFacts::of(redis, server, known_as, budget));
    // A silent server must leave the replicas their time.
    let sentinels = sentinels::find(fleet, budget.at_most(budget.left() / 2));
    let (granting, sentinels) = tokio::join!(try_join_all(asked), sentinels);
    let granting = granting?;
    let replicas = find_at_replicas(redis, &granting, budget).await;
    let granting = granting.iter().map(ServerFacts::judged).collect();
    let mut hazards = told_once(sentinels, Vec::new());
    hazards.extend(told_once(granting, replicas));
    // Another kind of store has its own rules for the tokens on its servers.
    if fleet.settings.program.kind == super::KIND {
        hazards.extend(tokens::find(&redis.keys, &servers, budget).await?);
    }
    Ok(hazards)
}

/// Checks the replicas that the servers report: each may be promoted one day.
async fn find_at_replicas(redis: &Redis, masters: &[ServerFacts], budget: Budget) -> Vec<Judged> {
    let fleet = &redis.fleet;
    let replicas = masters.iter().flat_map(ServerFacts::known_replicas);
    let found = replicas.map(async |(host, port)| {
        let endpoint =
            (fleet.address_map).reached(&host, port, &fleet.settings.address.endpoint)?;
        let server = Server::at(fleet.settings.at(&endpoint), None);
        let facts = ServerFacts::of(redis, &server, KnownAs::Replica, budget).await;
        server.close();
        Some(match facts {
            Ok(facts) => facts.judged(),
            Err(failure) => {
                let location = server.connector().address.to_string();
                (location, judge(&[UNSEEN], &failure))
            }
        })
    });
    join_all(found).await.into_iter().flatten().collect()
}

/// A replica that did not answer.
const UNSEEN: Check<Failure> = Check::new(
    Severity::Unknown,
    "redis-replica-unseen",
    |failure| {
        found(
            true,
            format!("a replica cannot be asked: {}", failure.cause),
        )
    },
    "its clock and its settings cannot be checked, and tokens follow them once it takes over",
    "Start it, and let this user in",
);

/// Reports each weakness once. Names the servers that have it, unless all that grant leases, or all Sentinels, do.
fn told_once(granting: Vec<Judged>, replicas: Vec<Judged>) -> Vec<Hazard> {
    let all: Vec<_> = granting
        .iter()
        .map(|(endpoint, _)| endpoint.clone())
        .collect();
    let mut told: Vec<(Hazard, Vec<String>)> = Vec::new();
    for (endpoint, hazards) in granting.into_iter().chain(replicas) {
        for hazard in hazards {
            let is_same = |known: &Hazard| known.id == hazard.id && known.what == hazard.what;
            match told.iter_mut().find(|(known, _)| is_same(known)) {
                Some((_, endpoints)) => endpoints.push(endpoint.clone()),
                None => told.push((hazard, vec![endpoint.clone()])),
            }
        }
    }
    let named = told.into_iter().map(|(mut hazard, endpoints)| {
        if !all.iter().all(|endpoint| endpoints.contains(endpoint)) {
            hazard.what = format!("{}, on {}", hazard.what, endpoints.join(", ")).into();
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
/// What it endangers, in words: no lease of a ttl below this many seconds ...
const OUTLIVED: &str = "survives it";

/// Returns the hazards of a failover that begins after this long without an answer. A renewal can have been due just
/// before the master failed, so the rest of the ttl must be enough.
fn slow_failover(begins_after: Duration, by: impl Display) -> Weakness {
    let takes = begins_after + ELECTION;
    let least_ttl = Timing::RENEWED_AFTER.ttl_of_rest(takes);
    let least_ttl = Duration::from_secs(least_ttl.as_secs_f64().ceil() as u64);
    let what = format!("a failover takes {takes:.1?} with {by}");
    Weakness(what.into(), Some(least_ttl))
}

/// Returns how long the server grants nothing, as it noted at its last claim. `None` where keep-out is off.
pub(super) fn quiet(
    ready: Result<Value, Failure>,
    clock: &Value,
) -> Result<Option<Duration>, Failure> {
    let ready = ready.and_then(|ready| reply::number(&ready));
    let quiet = |ready| Ok(Duration::from_micros(ready).saturating_sub(reply::time(clock)?));
    ready.ok().map(quiet).transpose()
}

/// Reads the reply of INFO.
pub(super) fn lines(info: &Value) -> Fields {
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
        let found = |all: &[(&str, &[&'static str])]| {
            let all = all.iter().map(|(location, whats)| {
                let hazards = whats.iter().map(|what| hazard(what));
                ((*location).to_owned(), hazards.collect())
            });
            all.collect()
        };
        let told = told_once(found(granting), found(replicas)).into_iter();
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
