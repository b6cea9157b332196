//! Reads what one server reports about itself, and finds its hazards.

mod claims;

use std::collections::BTreeSet;
use std::time::Duration;

use deadpool_redis::redis::Value;

use super::super::Redis;
use super::super::connection::server::Server;
use super::super::failure::Failure;
use super::super::protocol::reply;
use super::{Fields, Judged, OUTLIVED, SLOW_FAILOVER, lines, quiet, slow_failover};
use crate::clock;
use crate::store::Hazard;
use crate::store::Severity::{Critical, Unknown, Warning};
use crate::store::kit::budget::Budget;
use crate::store::kit::check::{Check, found, judge};

/// Maximum difference between the server's clock and ours that is not reported: the tokens of a server that takes over
/// later follow its clock.
const CLOCK_APART: Duration = Duration::from_secs(1);

/// The least `min-replicas-max-lag` that works, in seconds: replicas report once a second.
const LEAST_LAG: u64 = 2;

/// The store's knowledge of a server.
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
pub(super) struct ServerFacts {
    location: String,
    info: Option<Fields>,
    settings: Option<Fields>,
    /// The slots that a node of a cluster sends or receives.
    moving: Option<BTreeSet<u16>>,
    clock_us: u64,
    /// This machine's clock, when the answers came.
    now_us: u64,
    known_as: KnownAs,
    /// Number of replicas that the store waits for.
    awaited: u64,
    /// Whether the operator declared that this server never has a replica.
    is_alone: bool,
    /// Whether the store has a longest ttl, during which a server that may have lost data grants nothing.
    keeps_out: bool,
    /// How long the server grants nothing. `None` if no client has turned keep-out on.
    quiet: Option<Duration>,
}

impl ServerFacts {
    /// Asks a server about its set-up.
    pub(super) async fn of(
        redis: &Redis,
        server: &Server,
        known_as: KnownAs,
        budget: Budget,
    ) -> Result<Self, Failure> {
        let node = redis.keys.node().to_string();
        let commands: [&[&str]; 5] = [
            &["INFO"],
            &["CONFIG", "GET", "*"],
            &["CLUSTER", "NODES"],
            &["HGET", &node, "ready"],
            &["TIME"],
        ];
        let [info, settings, nodes, ready, clock] = server.ask_each(commands, budget).await?;
        // The reply is not shown: it has the server's passwords.
        let fields = |reply| reply::parsed(&reply).map_err(|_| Failure::odd("to CONFIG GET"));
        let settings = settings.ok().map(fields).transpose()?;
        let clock = clock?;
        Ok(Self {
            location: server.connector().address.to_string(),
            info: info.ok().map(|reply| lines(&reply)),
            settings,
            moving: nodes.ok().map(|nodes| moving(&nodes)),
            clock_us: u64::try_from(reply::time(&clock)?.as_micros()).unwrap_or(u64::MAX),
            now_us: clock::wall_clock_us(),
            known_as,
            awaited: server.connector().acknowledged_by.into(),
            is_alone: redis.is_alone,
            keeps_out: redis.max_ttl.is_some(),
            quiet: quiet(ready, &clock)?,
        })
    }

    /// Judges them.
    pub(super) fn judged(&self) -> Judged {
        (self.location.clone(), self.hazards())
    }

    fn hazards(&self) -> Vec<Hazard> {
        let mut hazards = judge(CHECKS, self);
        hazards.extend(judge(claims::CHECKS, self));
        hazards
    }

    /// Returns the addresses of a server's replicas, as it reports them to other programs.
    pub(super) fn known_replicas(&self) -> Vec<(String, u16)> {
        // "slave0:ip=10.0.0.7,port=6379,state=online,offset=0,lag=1"
        let endpoint = |line: &String| {
            let fact = |name| line.split(',').find_map(|fact| fact.strip_prefix(name));
            Some((fact("ip=")?.to_owned(), fact("port=")?.parse().ok()?))
        };
        match self.known_as {
            // The replicas of a single server matter only if the store waits for them.
            KnownAs::OneServer if self.awaited == 0 => Vec::new(),
            KnownAs::OneServer | KnownAs::Master | KnownAs::Primary => {
                let lines = self.info.iter().flat_map(Fields::values);
                lines.filter_map(endpoint).collect()
            }
            KnownAs::Replica => Vec::new(),
        }
    }

    fn info(&self, key: &str) -> Option<&str> {
        self.info.as_ref()?.get(key).map(String::as_str)
    }

    fn is(&self, key: &str, value: &str) -> bool {
        self.info(key) == Some(value)
    }

    fn setting(&self, name: &str) -> Option<&str> {
        self.settings.as_ref()?.get(name).map(String::as_str)
    }

    fn should_grant(&self) -> bool {
        self.known_as != KnownAs::Replica
    }

    fn is_primary(&self) -> bool {
        self.known_as == KnownAs::Primary
    }

    /// Returns whether the server's claims call INFO: with a longest ttl, and wherever another client has turned
    /// keep-out on.
    fn needs_info(&self) -> bool {
        self.keeps_out || self.quiet.is_some()
    }

    fn replicas(&self) -> u64 {
        let connected = self.info("connected_slaves");
        connected.and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    fn may_fail_over(&self) -> bool {
        self.should_grant() && self.replicas() > 0
    }

    /// Returns whether the server accepts writes that no replica has.
    fn waits_for_none(&self) -> bool {
        let is_off = |name| self.setting(name) == Some("0");
        is_off("min-replicas-to-write") || is_off("min-replicas-max-lag")
    }
}

/// Returns the slots that a node sends or receives, from its reply to `CLUSTER NODES`: `[93-<-ID]` or `[93->-ID]` in
/// its own line.
fn moving(nodes: &Value) -> BTreeSet<u16> {
    let nodes = reply::text(nodes).unwrap_or_default().lines();
    let own = nodes.filter(|line| line.contains("myself"));
    let marks = own.flat_map(str::split_ascii_whitespace);
    let slots = marks.filter_map(|mark| mark.strip_prefix('[')?.split('-').next()?.parse().ok());
    slots.collect()
}

/// The faults in a server's own set-up and role that weaken the promises.
const CHECKS: &[Check<ServerFacts>] = &[
    // Settings that the server does not let us check.
    Check::new(
        Critical,
        "redis-keep-out-denied",
        |facts| {
            let is_needed = facts.info.is_none() && facts.needs_info();
            found(is_needed, "keep-out needs the permission +info")
        },
        "no lease is granted to this user",
        "Grant `+info`",
    ),
    Check::new(
        Unknown,
        "redis-check-refused",
        |facts| {
            let refused = [
                ("INFO", facts.info.is_none() && !facts.needs_info()),
                ("CONFIG", facts.settings.is_none()),
                (
                    "CLUSTER NODES",
                    facts.is_primary() && facts.moving.is_none(),
                ),
            ];
            let refused = refused.iter().filter(|(_, is_refused)| *is_refused);
            let what: Vec<_> = refused
                .map(|(what, _)| format!("{what} is refused"))
                .collect();
            found(!what.is_empty(), what.join(", "))
        },
        "the server's state, its settings, or slots that were left in the middle of a move are not seen",
        "Grant `+info`, `+config|get` and, on a cluster, `+cluster|nodes`, or check by hand",
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
            let kept = match facts.setting("save") {
                Some("") => "nothing is",
                _ => "only snapshots are",
            };
            let what = format!("{kept} written to disk");
            found(facts.is("aof_enabled", "0"), what)
        },
        "a restart frees leases granted since the last snapshot, and holders are told at their next renewal",
        "Set appendonly yes",
    ),
    // Things that keep a server from granting leases.
    Check::new(
        Warning,
        "redis-keep-out",
        |facts| {
            let quiet = facts.quiet?;
            let what = format!(
                "this server grants nothing for {quiet:.1?}: it is new, or may have lost leases"
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
            let (awaited, connected) = (facts.awaited, facts.replicas());
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
            let (awaited, connected) = (facts.awaited, facts.replicas());
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
            let is_asynchronous = facts.awaited == 0 && facts.waits_for_none();
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
            let is_lagging = lag > LEAST_LAG && facts.awaited == 0 && !facts.waits_for_none();
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
            // Not available on a cluster.
            let may_keep_out = !facts.is_primary() && !facts.keeps_out;
            let what = "this server has replicas, and the store has no max_ttl";
            found(facts.may_fail_over() && may_keep_out, what)
        },
        "a replica that was promoted without the last grants grants held names again",
        "Set max_ttl to the longest ttl in use",
    ),
    // Things that make a cluster slow, or stand still.
    Check::new(
        Warning,
        SLOW_FAILOVER,
        |facts| {
            let ms = facts.setting("cluster-node-timeout")?.parse().ok()?;
            let after = Duration::from_millis(ms) * 3 / 2;
            let slow = || slow_failover(after, "this cluster-node-timeout");
            facts.is_primary().then(slow)
        },
        OUTLIVED,
        "Lower cluster-node-timeout, or lease for longer",
    ),
    Check::new(
        Warning,
        "redis-no-replica",
        |facts| {
            let is_alone = facts.is_primary() && facts.is("connected_slaves", "0");
            found(is_alone, "a primary is without a replica")
        },
        "while it is down, its names cannot be leased and its leases end",
        "Give it one",
    ),
    Check::new(
        Warning,
        "redis-full-coverage",
        |facts| {
            let needs_all = facts.setting("cluster-require-full-coverage") == Some("yes");
            let what = "cluster-require-full-coverage is yes";
            found(facts.is_primary() && needs_all, what)
        },
        "while the slots of one primary are unserved, no name at all can be leased or renewed",
        "Set it to no",
    ),
    Check::new(
        Warning,
        "redis-slots-moving",
        |facts| {
            let moving = facts.moving.as_ref()?;
            let (count, first) = (moving.len(), moving.first()?);
            let what = format!("slots in the middle of a move: {count}, the first is {first}");
            found(facts.is_primary(), what)
        },
        "their names can be renewed, but not leased or released, until the move is over",
        "If nothing moves them any more, run redis-cli --cluster fix",
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
            ..ServerFacts::default()
        }
    }

    fn settings(min_replicas: &str, max_lag: &str) -> Fields {
        let settings = [
            ("save", "3600 1"),
            ("min-replicas-to-write", min_replicas),
            ("min-replicas-max-lag", max_lag),
        ];
        let settings = settings.map(|(name, value)| (name.into(), value.into()));
        settings.into()
    }

    fn told(facts: &ServerFacts) -> String {
        let hazards = facts.hazards().into_iter();
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
            facts.awaited = awaited;
            assert!(told(&facts).contains(id), "{}", told(&facts));
        }
        let mut all = facts("connected_slaves:2\r\n");
        all.awaited = 2;
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
    fn a_server_that_is_nearly_full_is_told_with_its_room() {
        let of = |used: u32| {
            let mut facts = facts(&format!("connected_clients:{used}\r\n"));
            set(&mut facts, "maxclients", "100");
            told(&facts)
        };
        assert_eq!(of(74), "");
        assert!(of(76).contains("room for 8 more clients"), "{}", of(76));
        assert!(of(100).contains("room for 0 more clients"), "{}", of(100));
    }

    #[test]
    fn a_server_whose_replicas_take_writes_is_told() {
        let mut facts = facts("");
        set(&mut facts, "replica-read-only", "yes");
        assert_eq!(told(&facts), "");
        set(&mut facts, "replica-read-only", "no");
        assert!(
            told(&facts).contains("replica-read-only is no"),
            "{}",
            told(&facts)
        );
    }

    #[test]
    fn a_replica_whose_clock_is_ahead_is_told_with_the_ttl_that_it_endangers() {
        let mut facts = facts("role:slave\r\n");
        (facts.known_as, facts.clock_us) = (KnownAs::Replica, facts.now_us + 500_000);
        assert_eq!(told(&facts), "");
        facts.awaited = 1;
        assert!(
            told(&facts).contains("no lease of a ttl below 24 s"),
            "{}",
            told(&facts)
        );
        facts.clock_us = facts.now_us + 50_000;
        assert_eq!(told(&facts), "");
    }

    #[test]
    fn a_server_that_is_said_to_be_alone_is_told_with_its_replicas() {
        for (replicas, words) in [
            (0, "alone=yes of this server: "),
            (1, "and it has replicas"),
        ] {
            let mut facts = facts(&format!("connected_slaves:{replicas}\r\n"));
            assert!(!told(&facts).contains("alone"), "{}", told(&facts));
            facts.is_alone = true;
            assert!(told(&facts).contains(words), "{}", told(&facts));
        }
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
        facts.awaited = 1;
        assert!(!told(&facts).contains("lag"), "{}", told(&facts));
    }

    #[test]
    fn of_a_replica_only_that_is_told_which_it_would_bring_along() {
        let mut facts = facts("role:slave\r\nmaxmemory_policy:allkeys-lru\r\n");
        facts.known_as = KnownAs::Replica;
        facts.awaited = 1;
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
        facts.moving = Some(BTreeSet::new());
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
        facts.quiet = Some(Duration::from_millis(41_200));
        assert!(
            told(&facts).contains("nothing for 41.2s"),
            "{}",
            told(&facts)
        );
        facts.known_as = KnownAs::Replica;
        assert_eq!(told(&facts), "");
    }

    #[test]
    fn a_clock_that_is_off_is_told() {
        let mut facts = facts("");
        facts.clock_us += 2_500_000;
        assert!(told(&facts).contains("2.5s ahead of"), "{}", told(&facts));
    }

    fn primary() -> ServerFacts {
        ServerFacts {
            known_as: KnownAs::Primary,
            moving: Some(BTreeSet::new()),
            ..facts("connected_slaves:1\r\n")
        }
    }

    fn set(facts: &mut ServerFacts, name: &str, value: &str) {
        let settings = facts.settings.as_mut().expect("they are known");
        settings.insert(name.into(), value.into());
    }

    #[test]
    fn a_node_timeout_is_told_with_the_ttl_that_outlives_it() {
        for (ms, least) in [("5000", 15), ("15000", 37)] {
            let mut facts = primary();
            set(&mut facts, "cluster-node-timeout", ms);
            let told = told(&facts);
            assert!(told.contains(&format!("ttl below {least} s")), "{told}");
            let hazards = judge(CHECKS, &facts);
            let slow = hazards.iter().find(|hazard| hazard.id == SLOW_FAILOVER);
            let slow = slow.unwrap_or_else(|| panic!("{told}"));
            assert!(slow.concerns(Duration::from_secs(least - 1)));
            assert!(!slow.concerns(Duration::from_secs(least)));
        }
    }

    #[test]
    fn each_hazard_of_a_cluster_is_reported_of_its_primaries_alone() {
        let mut facts = primary();
        set(&mut facts, "cluster-require-full-coverage", "yes");
        set(&mut facts, "cluster-node-timeout", "15000");
        facts.moving = Some((0..10).collect());
        let words = [
            "coverage is yes",
            "middle of a move: 10, the first is 0",
            "node-timeout",
        ];
        for word in words {
            assert!(told(&facts).contains(word), "{word}: {}", told(&facts));
        }
        facts.known_as = KnownAs::Master;
        for word in words {
            assert!(!told(&facts).contains(word), "{word}: {}", told(&facts));
        }
        let alone = ServerFacts {
            moving: None,
            info: self::facts("connected_slaves:0\r\n").info,
            ..primary()
        };
        for word in ["without a replica", "cluster|nodes"] {
            assert!(told(&alone).contains(word), "{word}: {}", told(&alone));
        }
    }

    #[test]
    fn slots_that_move_are_read_from_the_nodes_own_line() {
        let read = |nodes: &str| moving(&Value::BulkString(nodes.into()));
        let nodes = "ab 127.0.0.1:1@10001 myself,master - 0 0 1 connected 0-5460 [93-<-cd] [77->-cd]\n\
                     cd 127.0.0.1:2@10002 master - 0 0 2 connected 5461-10922 [5->-ab]\n";
        assert_eq!(read(nodes), [77, 93].into());
        assert!(read("ab 127.0.0.1:1@10001 myself,master - 0 0 1 connected 0-5460").is_empty());
    }

    #[test]
    fn replicas_are_read_from_the_lines_of_their_master() {
        let line = "slave0:ip=fe80::7,port=6380,state=online,offset=14,lag=1";
        let info = format!("slave_repl_offset:0\r\nconnected_slaves:1\r\n{line}\r\n");
        let mut facts = facts(&info);
        assert!(facts.known_replicas().is_empty(), "they are not asked for");
        facts.awaited = 1;
        assert_eq!(facts.known_replicas().len(), 1, "they are waited for");
        facts.known_as = KnownAs::Master;
        assert_eq!(facts.known_replicas(), [("fe80::7".to_owned(), 6_380)]);
    }
}
