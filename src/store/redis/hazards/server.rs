//! Reads what one server reports of itself, and finds what is wrong with it.

use std::time::Duration;

use super::super::Redis;
use super::super::connection::server::Server;
use super::super::failure::Failure;
use super::{
    OUTLIVED, SLOW_FAILOVER, Settings, allowed, clock_us, lines, quiet, settings, slow_failover,
};
use crate::clock;
use crate::store::Hazard;
use crate::store::Severity::{Critical, Unknown, Warning};
use crate::store::budget::Budget;
use crate::store::check::{Check, found, judge};

/// Says how far the server's clock may be from ours before it is reported: the tokens of a server that takes over later
/// follow its clock.
const CLOCK_APART: Duration = Duration::from_secs(1);

/// The default of Sentinels that this store does not know.
const DOWN_AFTER: Duration = Duration::from_secs(30);

/// The least `min-replicas-max-lag` that works, in seconds: replicas report once a second.
const LEAST_LAG: u64 = 2;

/// The way in which the store knows a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum KnownAs {
    /// By its URL alone.
    #[default]
    OneServer,
    /// The master of a group that Sentinels watch.
    Master,
    /// A primary of a cluster.
    Primary,
    /// A server that may take over.
    Replica,
}

/// The server's facts about itself. `None` if the server refuses the command.
#[derive(Default)]
struct ServerFacts {
    info: Option<Settings>,
    settings: Option<Settings>,
    clock_us: u64,
    /// This machine's clock, when the answers came.
    now_us: u64,
    known_as: KnownAs,
    /// Says how many replicas the store waits for.
    acknowledged_by: u8,
    /// Says whether the store has a longest ttl, for which a server grants nothing that may have lost data.
    keeps_out: bool,
    /// Says whether the server's claims call INFO: with a longest ttl, and wherever another client has turned keep-out
    /// on.
    needs_info: bool,
    /// The time for which the server grants nothing.
    quiet: Duration,
}

impl ServerFacts {
    fn info(&self, key: &str) -> Option<&str> {
        self.info.as_ref()?.get(key).map(String::as_str)
    }

    fn is(&self, key: &str, value: &str) -> bool {
        self.info(key) == Some(value)
    }

    fn setting(&self, name: &str) -> Option<&str> {
        self.settings.as_ref()?.get(name).map(String::as_str)
    }

    fn has_no_snapshots(&self) -> bool {
        self.setting("save") == Some("")
    }

    fn should_grant(&self) -> bool {
        self.known_as != KnownAs::Replica
    }

    fn awaited(&self) -> u64 {
        self.acknowledged_by.into()
    }

    fn replicas(&self) -> u64 {
        let connected = self.info("connected_slaves");
        connected.and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    fn may_fail_over(&self) -> bool {
        self.should_grant() && self.replicas() > 0
    }

    /// Returns whether the server itself answers a write that no replica has.
    fn waits_for_none(&self) -> bool {
        let is_off = |name| self.setting(name) == Some("0");
        is_off("min-replicas-to-write") || is_off("min-replicas-max-lag")
    }
}

/// Asks a server about its set-up and judges the answers.
pub(super) async fn look_at(
    redis: &Redis,
    server: &Server,
    known_as: KnownAs,
    budget: Budget,
) -> Result<Vec<Hazard>, Failure> {
    let quiet = quiet(server, &redis.keys.node(), budget).await?;
    let keeps_out = redis.max_ttl.is_some();
    let facts = ServerFacts {
        info: allowed(server.ask(&["INFO"], budget).await)?.map(|reply| lines(&reply)),
        settings: settings(server, budget).await?,
        clock_us: clock_us(server, budget).await?,
        now_us: clock::wall_clock_us(),
        known_as,
        acknowledged_by: server.connector.acknowledged_by,
        keeps_out,
        needs_info: keeps_out || quiet.is_some(),
        quiet: quiet.unwrap_or_default(),
    };
    Ok(judge(CHECKS, &facts))
}

/// The faults in a server's own set-up and role that weaken the promises.
const CHECKS: &[Check<ServerFacts>] = &[
    // Settings that the server does not let us check.
    Check::new(
        Critical,
        "redis-keep-out-denied",
        |facts| {
            let is_needed = facts.info.is_none() && facts.needs_info;
            found(is_needed, "keep-out needs the permission +info")
        },
        "no lease is granted to this user",
        "Grant `+info`",
    ),
    Check::new(
        Unknown,
        "redis-info-refused",
        |facts| found(facts.info.is_none() && !facts.needs_info, "INFO is refused"),
        "the server's state cannot be checked",
        "Grant `+info`, or check the server by hand",
    ),
    Check::new(
        Unknown,
        "redis-config-refused",
        |facts| found(facts.settings.is_none(), "CONFIG is refused"),
        "the server's settings cannot be checked",
        "Grant `+config|get`, or check save and min-replicas-to-write by hand",
    ),
    // The cost of a full server or a restart.
    Check::new(
        Critical,
        "redis-drops-keys",
        |facts| {
            let policy = facts.info("maxmemory_policy")?;
            found(
                policy != "noeviction",
                format!("maxmemory-policy is {policy}"),
            )
        },
        "a full server drops leases that are held",
        "Set it to noeviction",
    ),
    Check::new(
        Warning,
        "redis-forgets",
        |facts| {
            let is_lost = facts.is("aof_enabled", "0") && facts.has_no_snapshots();
            found(is_lost, "nothing is written to disk")
        },
        "a restart frees every lease, and holders are told at their next renewal",
        "Set appendonly yes",
    ),
    Check::new(
        Warning,
        "redis-forgets",
        |facts| {
            let is_late = facts.is("aof_enabled", "0") && !facts.has_no_snapshots();
            found(is_late, "only snapshots are written to disk")
        },
        "a restart frees leases granted since the last snapshot",
        "Set appendonly yes",
    ),
    // Things that keep a server from granting leases.
    Check::new(
        Warning,
        "redis-keep-out",
        |facts| {
            let quiet = facts.quiet;
            let what = format!(
                "this server grants nothing for {quiet:.0?}: it is new, or may have lost leases"
            );
            found(facts.should_grant() && !quiet.is_zero(), what)
        },
        "leases that it may have lost are over by then; those that it has are renewed",
        "Wait; if it is new, `leasehold init` ends the wait",
    ),
    Check::new(
        Critical,
        "redis-replica",
        |facts| {
            let is_replica = facts.should_grant() && facts.is("role", "slave");
            found(is_replica, "this server is a replica")
        },
        "it grants no leases",
        "Use the address of its master",
    ),
    Check::new(
        Critical,
        "redis-cluster-node",
        |facts| {
            let is_alone = facts.known_as == KnownAs::OneServer;
            let is_node = is_alone && facts.is("redis_mode", "cluster");
            found(is_node, "this server is a node of a cluster")
        },
        "names whose slots are on other nodes cannot be leased",
        "Use redis+cluster://",
    ),
    Check::new(
        Critical,
        "redis-too-few-replicas",
        |facts| {
            let (awaited, connected) = (facts.awaited(), facts.replicas());
            let is_checked = facts.should_grant() && facts.info.is_some();
            let what =
                format!("acknowledged_by is {awaited}, and {connected} replicas are connected");
            found(is_checked && connected < awaited, what)
        },
        "no lease is granted or renewed",
        "Connect the replicas, or lower acknowledged_by",
    ),
    // The cost of a failover to one of its replicas.
    Check::new(
        Warning,
        "redis-some-replicas",
        |facts| {
            let (awaited, connected) = (facts.awaited(), facts.replicas());
            let is_some = facts.may_fail_over() && 0 < awaited && awaited < connected;
            found(
                is_some,
                format!("acknowledged_by is {awaited} of {connected} replicas"),
            )
        },
        "a replica that missed a grant can be promoted, and grant the held name again",
        "Set acknowledged_by to the number of replicas",
    ),
    Check::new(
        Warning,
        "redis-asynchronous-replicas",
        |facts| {
            let is_asynchronous = facts.awaited() == 0 && facts.waits_for_none();
            let what = "grants are answered before a replica has them";
            found(facts.may_fail_over() && is_asynchronous, what)
        },
        "a failover can grant a held name again",
        "Set acknowledged_by to the number of replicas, or min-replicas-to-write to 1, and guard storage with a fence",
    ),
    Check::new(
        Warning,
        "redis-replica-lag",
        |facts| {
            let lag: u64 = facts.setting("min-replicas-max-lag")?.parse().ok()?;
            let is_lagging = lag > LEAST_LAG && facts.awaited() == 0 && !facts.waits_for_none();
            let what = format!("min-replicas-max-lag is {lag} s");
            found(facts.may_fail_over() && is_lagging, what)
        },
        "a master that is cut off with a holder renews its lease for that long, while a replica is promoted and grants \
         the name again",
        "Set acknowledged_by to the number of replicas, or min-replicas-max-lag to 2",
    ),
    Check::new(
        Warning,
        "redis-no-keep-out",
        |facts| {
            // A cluster is not offered it.
            let may_keep_out = facts.known_as != KnownAs::Primary && !facts.keeps_out;
            let what = "this server has replicas, and the store has no max_ttl";
            found(facts.may_fail_over() && may_keep_out, what)
        },
        "a replica that was promoted without the last grants grants held names again",
        "Set max_ttl to the longest ttl in use",
    ),
    Check::new(
        Warning,
        SLOW_FAILOVER,
        |facts| {
            let is_alone = facts.known_as == KnownAs::OneServer;
            let by = "the default down-after-milliseconds of Sentinels";
            (is_alone && facts.may_fail_over()).then(|| slow_failover(DOWN_AFTER, by))
        },
        OUTLIVED,
        "Set down-after-milliseconds below half of the ttl",
    ),
    Check::new(
        Warning,
        "redis-clock-apart",
        |facts| {
            let apart = Duration::from_micros(facts.clock_us.abs_diff(facts.now_us));
            let is_ahead = facts.clock_us > facts.now_us;
            let side = if is_ahead { "ahead of" } else { "behind" };
            let what = format!("the server's clock is {apart:.1?} {side} this machine's");
            found(apart > CLOCK_APART, what)
        },
        "tokens can fall when another server takes over",
        "Run a time daemon on both",
    ),
];

#[cfg(test)]
mod tests {
    use deadpool_redis::redis::Value;

    use super::*;

    /// The facts of a server without hazards, with these lines of INFO.
    fn facts(info: &str) -> ServerFacts {
        let sound = "role:master\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n";
        ServerFacts {
            info: Some(lines(&Value::BulkString(format!("{sound}{info}").into()))),
            settings: Some(settings("0", "10")),
            clock_us: 7_000_000,
            now_us: 7_000_000,
            known_as: KnownAs::OneServer,
            acknowledged_by: 0,
            keeps_out: false,
            needs_info: false,
            quiet: Duration::ZERO,
        }
    }

    fn settings(min_replicas: &str, max_lag: &str) -> Settings {
        let settings = [
            ("save", "3600 1"),
            ("min-replicas-to-write", min_replicas),
            ("min-replicas-max-lag", max_lag),
        ];
        let settings = settings.map(|(name, value)| (name.into(), value.into()));
        settings.into()
    }

    fn told(facts: &ServerFacts) -> String {
        let hazards = judge(CHECKS, facts).into_iter();
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
        facts.settings = Some(settings("1", "10"));
        assert!(told(&facts).contains("max-lag is 10 s"), "{}", told(&facts));
        facts.settings = Some(settings("1", "2"));
        assert!(!told(&facts).contains("max-lag is"), "{}", told(&facts));
        facts.settings = Some(settings("1", "0"));
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
        let told = told(&ServerFacts::default());
        assert!(told.contains("INFO is refused"), "{told}");
        assert!(told.contains("CONFIG is refused"), "{told}");
    }

    #[test]
    fn a_server_that_keeps_out_says_for_how_long() {
        let mut facts = facts("");
        facts.quiet = Duration::from_millis(41_200);
        assert!(told(&facts).contains("nothing for 41s"), "{}", told(&facts));
        facts.known_as = KnownAs::Replica;
        assert_eq!(told(&facts), "");
    }

    #[test]
    fn a_clock_that_is_off_is_told() {
        let mut facts = facts("");
        facts.clock_us += 2_500_000;
        assert!(told(&facts).contains("2.5s ahead of"), "{}", told(&facts));
    }
}
