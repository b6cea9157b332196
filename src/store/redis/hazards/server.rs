//! What one server tells of itself, and what is wrong with it.

use std::collections::HashMap;
use std::time::Duration;

use super::super::budget::Budget;
use super::super::failure::Failure;
use super::super::reply;
use super::super::runtime_lanes::RuntimeLanes;
use super::{allowed, ask, lines, setting, slow_failover};
use crate::clock;
use crate::store::{Hazard, Severity};

/// How far the server's clock may be from ours before it is reported: the tokens of a server that takes over later
/// follow its clock.
const CLOCK_APART: Duration = Duration::from_secs(1);

/// The default of Sentinels that this store does not know.
const DOWN_AFTER: Duration = Duration::from_secs(30);

/// The least `min-replicas-max-lag` that works, in seconds: replicas report once a second.
const LEAST_LAG: u64 = 2;

/// How the store knows a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum KnownAs {
    /// By its URL alone.
    #[default]
    OneServer,
    /// As the master of a group that Sentinels watch.
    Master,
    /// As a primary of a cluster.
    Primary,
    /// As one that may take over.
    Replica,
}

/// What the server reports about itself. `None` if the server refuses the command.
#[derive(Default)]
struct ServerFacts {
    info: Option<HashMap<String, String>>,
    save: Option<String>,
    min_replicas: Option<String>,
    max_lag: Option<String>,
    clock_us: u64,
    known_as: KnownAs,
    /// How many replicas the store waits for.
    acknowledged_by: u8,
    /// Whether the store has a longest ttl, for which a server grants nothing that may have lost data.
    keeps_out: bool,
}

impl ServerFacts {
    fn info(&self, key: &str) -> Option<&str> {
        self.info.as_ref()?.get(key).map(String::as_str)
    }

    fn is(&self, key: &str, value: &str) -> bool {
        self.info(key) == Some(value)
    }
}

/// Asks a server about its set-up and judges the answers.
pub(super) async fn look_at(
    lanes: &RuntimeLanes,
    known_as: KnownAs,
    budget: Budget,
) -> Result<Vec<Hazard>, Failure> {
    let facts = ServerFacts {
        info: allowed(ask(lanes, budget, &["INFO"]).await)?.map(|reply| lines(&reply)),
        save: setting(lanes, budget, "save").await?,
        min_replicas: setting(lanes, budget, "min-replicas-to-write").await?,
        max_lag: setting(lanes, budget, "min-replicas-max-lag").await?,
        clock_us: micros(reply::time(&ask(lanes, budget, &["TIME"]).await?)?),
        known_as,
        acknowledged_by: lanes.acknowledged_by(),
        keeps_out: lanes.keeps_out(),
    };
    Ok(judge(&facts, clock::wall_clock_us()))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn judge(facts: &ServerFacts, now_us: u64) -> Vec<Hazard> {
    let mut hazards = unchecked(facts);
    hazards.extend(of_memory_and_disk(facts));
    if facts.known_as != KnownAs::Replica {
        hazards.extend(of_role(facts));
        hazards.extend(of_replicas(facts));
    }
    hazards.extend(of_clock(facts, now_us));
    hazards
}

/// Returns hazards for what the server does not let us check.
fn unchecked(facts: &ServerFacts) -> Vec<Hazard> {
    let state = facts.info.is_none().then(|| {
        Hazard::new(
            "redis-info-refused",
            Severity::Unknown,
            "INFO is refused",
            "the server's state cannot be checked",
            "Grant `+info`, or check the server by hand",
        )
    });
    let settings = facts.save.is_none().then(|| {
        Hazard::new(
            "redis-config-refused",
            Severity::Unknown,
            "CONFIG is refused",
            "the server's settings cannot be checked",
            "Grant `+config|get`, or check save and min-replicas-to-write by hand",
        )
    });
    state.into_iter().chain(settings).collect()
}

fn of_role(facts: &ServerFacts) -> Vec<Hazard> {
    let replica = facts.is("role", "slave").then(|| {
        Hazard::new(
            "redis-replica",
            Severity::Critical,
            "this server is a replica",
            "it grants no leases",
            "Use the address of its master",
        )
    });
    let cluster =
        (facts.is("redis_mode", "cluster") && facts.known_as == KnownAs::OneServer).then(|| {
            Hazard::new(
                "redis-cluster-node",
                Severity::Critical,
                "this server is a node of a cluster",
                "names whose slots are on other nodes cannot be leased",
                "Use redis+cluster://",
            )
        });
    replica.into_iter().chain(cluster).collect()
}

fn of_memory_and_disk(facts: &ServerFacts) -> Vec<Hazard> {
    let policy = facts.info("maxmemory_policy");
    let drops = policy.filter(|policy| *policy != "noeviction");
    let drops = drops.map(|policy| {
        Hazard::new(
            "redis-drops-keys",
            Severity::Critical,
            format!("maxmemory-policy is {policy}"),
            "a full server drops leases that are held",
            "Set it to noeviction",
        )
    });
    let forgets = facts.is("aof_enabled", "0").then(|| {
        let (what, endangers) = match facts.save.as_deref() {
            Some("") => (
                "nothing is written to disk",
                "a restart frees every lease, and holders are told at their next renewal",
            ),
            _ => (
                "only snapshots are written to disk",
                "a restart frees leases granted since the last snapshot",
            ),
        };
        let fix = "Set appendonly yes";
        Hazard::new("redis-forgets", Severity::Warning, what, endangers, fix)
    });
    drops.into_iter().chain(forgets).collect()
}

fn of_replicas(facts: &ServerFacts) -> Vec<Hazard> {
    let connected = facts.info("connected_slaves");
    let connected: u64 = connected.and_then(|count| count.parse().ok()).unwrap_or(0);
    let awaited = u64::from(facts.acknowledged_by);
    let too_few = (facts.info.is_some() && connected < awaited).then(|| {
        Hazard::new(
            "redis-too-few-replicas",
            Severity::Critical,
            format!("acknowledged_by is {awaited}, and {connected} replicas are connected"),
            "no lease is granted or renewed",
            "Connect the replicas, or lower acknowledged_by",
        )
    });
    if connected == 0 {
        return too_few.into_iter().collect();
    }
    let some = (0 < awaited && awaited < connected).then(|| {
        Hazard::new(
            "redis-some-replicas",
            Severity::Warning,
            format!("acknowledged_by is {awaited} of {connected} replicas"),
            "a replica that missed a grant can be promoted, and grant the held name again",
            "Set acknowledged_by to the number of replicas",
        )
    });
    let is_off = |setting: &Option<String>| setting.as_deref() == Some("0");
    let waits_for_none = is_off(&facts.min_replicas) || is_off(&facts.max_lag);
    let asynchronous = (awaited == 0 && waits_for_none).then(|| {
        Hazard::new(
            "redis-asynchronous-replicas",
            Severity::Warning,
            "grants are answered before a replica has them",
            "a failover can grant a held name again",
            "Set acknowledged_by to the number of replicas, or min-replicas-to-write to 1, and guard storage with a fence",
        )
    });
    let lag: Option<u64> = facts.max_lag.as_ref().and_then(|lag| lag.parse().ok());
    let lag = lag.filter(|lag| *lag > LEAST_LAG && awaited == 0 && !waits_for_none);
    let lagging = lag.map(|lag| {
        Hazard::new(
            "redis-replica-lag",
            Severity::Warning,
            format!("min-replicas-max-lag is {lag} s"),
            "a master that is cut off with a holder renews its lease for that long, while a replica is promoted and \
             grants the name again",
            "Set acknowledged_by to the number of replicas, or min-replicas-max-lag to 2",
        )
    });
    [too_few, some, asynchronous, lagging]
        .into_iter()
        .flatten()
        .chain(of_failover(facts))
        .collect()
}

/// Returns what a failover to one of the replicas endangers.
fn of_failover(facts: &ServerFacts) -> impl Iterator<Item = Hazard> {
    // A cluster is not offered it.
    let forgetful = (!facts.keeps_out && facts.known_as != KnownAs::Primary).then(|| {
        Hazard::new(
            "redis-no-keep-out",
            Severity::Warning,
            "this server has replicas, and the store has no max_ttl",
            "a replica that was promoted without the last grants grants held names again",
            "Set max_ttl to the longest ttl in use",
        )
    });
    let slow = (facts.known_as == KnownAs::OneServer).then(|| {
        slow_failover(
            DOWN_AFTER,
            "the default down-after-milliseconds of Sentinels",
            "Set down-after-milliseconds below half of the ttl",
        )
    });
    [forgetful, slow].into_iter().flatten()
}

fn of_clock(facts: &ServerFacts, now_us: u64) -> Option<Hazard> {
    let apart = Duration::from_micros(facts.clock_us.abs_diff(now_us));
    let side = if facts.clock_us > now_us {
        "ahead of"
    } else {
        "behind"
    };
    (apart > CLOCK_APART).then(|| {
        Hazard::new(
            "redis-clock-apart",
            Severity::Warning,
            format!("the server's clock is {apart:.1?} {side} this machine's"),
            "tokens can fall when another server takes over",
            "Run a time daemon on both",
        )
    })
}

#[cfg(test)]
mod tests {
    use deadpool_redis::redis::Value;

    use super::*;

    /// The facts of a server without hazards, with these lines of INFO.
    fn facts(info: &str) -> ServerFacts {
        let sound = "role:master\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n";
        ServerFacts {
            info: Some(lines(&Value::BulkString(format!("{sound}{info}").into()))),
            save: Some("3600 1".into()),
            min_replicas: Some("0".into()),
            clock_us: 7_000_000,
            max_lag: Some("10".into()),
            known_as: KnownAs::OneServer,
            acknowledged_by: 0,
            keeps_out: false,
        }
    }

    fn told(facts: &ServerFacts) -> String {
        let hazards = judge(facts, 7_000_000).into_iter();
        hazards.map(|hazard| hazard.to_string()).collect()
    }

    #[test]
    fn a_sound_server_has_none() {
        assert_eq!(told(&facts("connected_slaves:0\r\n")), "");
    }

    #[test]
    fn each_hazard_is_reported_with_its_fix() {
        for (line, word) in [
            ("role:slave", "replica"),
            ("redis_mode:cluster", "cluster"),
            ("maxmemory_policy:allkeys-lru", "noeviction"),
            ("aof_enabled:0", "appendonly yes"),
            ("connected_slaves:1", "min-replicas-to-write"),
            ("connected_slaves:1", "down-after-milliseconds"),
        ] {
            let told = told(&facts(line));
            assert!(told.contains(word), "{line}: {told}");
        }
    }

    #[test]
    fn replicas_are_compared_with_those_that_are_awaited() {
        for (awaited, connected, id) in [
            (1, 0, "acknowledged_by is 1, and 0 replicas"),
            (2, 1, "acknowledged_by is 2, and 1 replicas"),
            (1, 2, "acknowledged_by is 1 of 2 replicas"),
        ] {
            let mut facts = facts(&format!("connected_slaves:{connected}\r\n"));
            facts.acknowledged_by = awaited;
            assert!(told(&facts).contains(id), "{}", told(&facts));
        }
        let mut all = facts("connected_slaves:2\r\n");
        all.acknowledged_by = 2;
        assert!(!told(&all).contains("acknowledged_by"), "{}", told(&all));
    }

    #[test]
    fn keep_out_is_recommended_where_a_replica_can_be_promoted() {
        let mut facts = facts("connected_slaves:1\r\n");
        assert!(told(&facts).contains("max_ttl"), "{}", told(&facts));
        facts.known_as = KnownAs::Primary;
        assert!(!told(&facts).contains("max_ttl"), "{}", told(&facts));
        facts.known_as = KnownAs::Master;
        facts.keeps_out = true;
        assert!(!told(&facts).contains("max_ttl"), "{}", told(&facts));
    }

    #[test]
    fn a_cut_off_master_goes_on_for_as_long_as_a_replica_may_lag() {
        let mut facts = facts("connected_slaves:1\r\n");
        facts.min_replicas = Some("1".into());
        assert!(told(&facts).contains("max-lag is 10 s"), "{}", told(&facts));
        facts.max_lag = Some("2".into());
        assert!(!told(&facts).contains("max-lag is"), "{}", told(&facts));
        facts.max_lag = Some("0".into());
        assert!(told(&facts).contains("before a replica has them"));
        facts.acknowledged_by = 1;
        assert!(!told(&facts).contains("lag"), "{}", told(&facts));
    }

    #[test]
    fn of_a_replica_only_that_is_told_which_it_would_bring_along() {
        let mut facts = facts("role:slave\r\nmaxmemory_policy:allkeys-lru\r\n");
        facts.known_as = KnownAs::Replica;
        facts.acknowledged_by = 1;
        let told = told(&facts);
        assert!(told.contains("allkeys-lru"), "{told}");
        assert!(
            !told.contains("replica") && !told.contains("acknowledged_by"),
            "{told}"
        );
    }

    #[test]
    fn a_cluster_is_a_hazard_only_where_it_is_not_known() {
        let mut facts = facts("redis_mode:cluster\r\n");
        assert!(told(&facts).contains("redis+cluster://"));
        facts.known_as = KnownAs::Primary;
        assert_eq!(told(&facts), "");
    }

    #[test]
    fn what_cannot_be_checked_is_said() {
        let told = told(&ServerFacts {
            clock_us: 7_000_000,
            ..ServerFacts::default()
        });
        assert!(told.contains("INFO is refused"), "{told}");
        assert!(told.contains("CONFIG is refused"), "{told}");
    }

    #[test]
    fn a_clock_that_is_off_is_told() {
        let mut facts = facts("");
        facts.clock_us += 2_500_000;
        assert!(told(&facts).contains("2.5s ahead of"), "{}", told(&facts));
    }
}
