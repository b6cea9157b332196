//! Faults in the server's set-up that weaken the promises: a table, judged by what [`survey`](survey) read.

pub(super) mod survey;

use std::time::Duration;

use self::survey::Findings;
use crate::store::Severity::{Critical, Unknown, Warning};
use crate::store::kit::check::{Check, found};

/// Maximum age of a snapshot. Until it ends no dead row is removed: each renewal leaves some 200 bytes.
const OLD_SNAPSHOT_S: i64 = 60;
/// Number of connections that should be left for others.
const SPARE_CONNECTIONS: i64 = 10;
/// Maximum fill of the queue of notices.
const FULL_NOTICES_PERCENT: i64 = 10;
/// Maximum difference between the server's clock and ours.
const APART_US: u64 = 1_000_000;
/// The faults that weaken the promises.
pub(super) const CHECKS: &[Check<Findings>] = &[
    // The cost of a crash.
    Check::new(
        Critical,
        "postgres-no-flush",
        |facts| {
            let [fsync, pages] = ["fsync", "full_page_writes"].map(|name| facts.word(name));
            let what = format!("fsync is {fsync} and full_page_writes {pages}");
            found(fsync == "off" || pages == "off", what)
        },
        "a crash of the machine can lose every lease and damage the tables",
        "Turn both on",
    ),
    Check::new(
        Critical,
        "postgres-unlogged",
        |facts| found(facts.flag("is_unlogged"), "the tables were made UNLOGGED"),
        "a crash of the server frees every name at once, and only a fence protects",
        "ALTER TABLE ... SET LOGGED for lease and queue",
    ),
    // The cost of a failover.
    Check::new(
        Critical,
        "postgres-waits-for-standby",
        |facts| {
            let waiting = facts.number("waits_for_standby");
            let what = format!("{waiting} commits wait for a synchronous standby");
            found(waiting > 0, what)
        },
        "until it is back no name can be granted or renewed, and each commit that waits occupies a connection",
        "Start the standby, or take it out of synchronous_standby_names; see wait_event SyncRep in pg_stat_activity",
    ),
    Check::new(
        Warning,
        "postgres-keep-out",
        |facts| {
            let quiet = facts.quiet();
            let what = format!(
                "the tables came from another server; for {quiet:.1?} more nothing is granted"
            );
            found(!quiet.is_zero(), what)
        },
        "leases that they may have lost are over by then; those that they have are renewed",
        "Wait, and find out what happened to the server",
    ),
    Check::new(
        Critical,
        "postgres-standby",
        |facts| found(facts.flag("is_standby"), "the server is a standby"),
        "it grants nothing",
        "Name the primary, or several hosts, in the URL",
    ),
    Check::new(
        Warning,
        "postgres-synchronous-commit-local",
        |facts| {
            let is_local = facts.word("synchronous_commit") == "local";
            found(
                is_local && facts.is_synchronous(),
                "synchronous_commit is local",
            )
        },
        "the synchronous standby can miss grants; after its promotion nothing is granted for the longest ttl",
        "ALTER ROLE ... SET synchronous_commit = on",
    ),
    Check::new(
        Warning,
        "postgres-no-synchronous-standby",
        |facts| {
            let standbys = facts.number("standbys");
            let what = format!("none of the standbys is synchronous standbys={standbys}");
            found(standbys > 0 && !facts.is_synchronous(), what)
        },
        "after a promotion nothing is granted for the longest ttl, because the standby may have missed grants",
        "Set synchronous_standby_names, or accept this",
    ),
    Check::new(
        Warning,
        "postgres-no-timeline",
        |facts| {
            let is_hidden = !facts.flag("tells_origin") && !facts.flag("is_standby");
            found(is_hidden, "the server does not show its timeline")
        },
        "a promoted standby that missed grants is not detected: two holders are possible, and only a fence protects",
        "Allow pg_control_system() and pg_walfile_name() to the role that runs `leasehold init`, and run it again",
    ),
    // Things that fill up.
    Check::new(
        Warning,
        "postgres-old-snapshot",
        |facts| {
            let [snapshot, prepared] =
                ["oldest_snapshot_s", "oldest_prepared_s"].map(|name| facts.number(name));
            let oldest = snapshot.max(prepared);
            let what = format!("a transaction has been open for {oldest} s");
            found(oldest > OLD_SNAPSHOT_S, what)
        },
        "until it ends each renewal leaves some 200 bytes, and busy names become slow",
        "End it; see pg_stat_activity and pg_prepared_xacts",
    ),
    Check::new(
        Unknown,
        "postgres-transactions-unseen",
        |facts| {
            let what = "the role does not see the transactions of other roles";
            found(!facts.flag("sees_transactions"), what)
        },
        "an old transaction that keeps dead rows, and commits that wait for a standby, are not reported",
        "GRANT pg_read_all_stats to the role, or run the doctor as another one",
    ),
    Check::new(
        Warning,
        "postgres-dead-rows",
        |facts| {
            let [dead, live] = ["dead", "live"].map(|name| facts.number(name));
            let what = format!("{dead} dead rows beside {live} live ones");
            found(dead > 10_000.max(2 * live.max(1)), what)
        },
        "grants and renewals become slow",
        "Look for an old transaction, an unused replication slot, or for why autovacuum does not run",
    ),
    // Things that keep clients from connecting.
    Check::new(
        Warning,
        "postgres-few-connections",
        |facts| {
            let most = facts.number("max_connections");
            let spare = most - facts.known("connections")?;
            // Tables of an earlier leasehold do not tell the last two.
            let room = facts.known("room").unwrap_or(most);
            let ours = facts.number("own_connections");
            let spare = spare.min(room - ours);
            let what = format!(
                "{spare} connections are left for this role, which may have {room} here and has {ours}; a client that \
                 holds a lease keeps one or two, and one that waits keeps one"
            );
            found(spare < SPARE_CONNECTIONS, what)
        },
        "a client that asks for one may be refused for as long as others wait, and a lease whose connection broke expires",
        "Raise max_connections and the limits of role and database, or use a pooler",
    ),
    Check::new(
        Critical,
        "postgres-encoding",
        |facts| {
            let encoding = facts.word("encoding");
            let what = format!("the encoding of the database is {encoding}");
            found(!["UTF8", "SQL_ASCII", ""].contains(&encoding), what)
        },
        "a name outside of it is refused when it first comes",
        "Move the leases to a database in UTF8",
    ),
    Check::new(
        Warning,
        "postgres-notices-full",
        |facts| {
            let percent = facts.number("notices_percent");
            let what = format!("the queue of notices is {percent} % full");
            found(percent > FULL_NOTICES_PERCENT, what)
        },
        "when it is full, waiting clients only check again after some time",
        "Find the session that listens and stays in one transaction",
    ),
    Check::new(
        Critical,
        "postgres-idle-session-timeout",
        |facts| {
            let idle = facts.number("idle_session_s");
            let what = format!("idle_session_timeout is {idle} s");
            found((1..60).contains(&idle), what)
        },
        "the watchdog's connection is closed between two renewals",
        "ALTER ROLE ... SET idle_session_timeout = 0",
    ),
    Check::new(
        Warning,
        "postgres-clock",
        |facts| {
            let clock_us = u64::try_from(facts.number("clock_us")).unwrap_or_default();
            let apart_us = clock_us.abs_diff(facts.wall_clock_us);
            let is_ahead = clock_us > facts.wall_clock_us;
            let side = if is_ahead { "ahead of" } else { "behind" };
            let apart = Duration::from_micros(apart_us);
            let what = format!("the server's clock is {apart:.1?} {side} ours");
            found(apart_us > APART_US, what)
        },
        "after a move to another store or server tokens may fall",
        "Run a time daemon on both",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::kit::check::judge;

    /// The findings of a server without hazards.
    fn sound() -> Findings {
        let facts = serde_json::json!({
            "synchronous_commit": "on",
            "fsync": "on",
            "full_page_writes": "on",
            "synchronous_standbys": "",
            "max_connections": 100,
            "connections": 5,
            "clock_us": 7_000_000,
            "live": 10,
            "tells_origin": true,
            "sees_transactions": true,
        });
        Findings {
            told: facts.as_object().cloned().expect("an object"),
            wall_clock_us: 7_000_000,
        }
    }

    fn with(what: &str, value: impl Into<serde_json::Value>) -> Findings {
        let mut facts = sound();
        facts.told.insert(what.into(), value.into());
        facts
    }

    fn told(facts: &Findings) -> String {
        let hazards = judge(CHECKS, facts).into_iter();
        hazards.map(|hazard| hazard.to_string()).collect()
    }

    #[test]
    fn a_sound_server_has_none() {
        assert_eq!(told(&sound()), "");
    }

    #[test]
    fn each_weak_setting_is_told() {
        for (setting, value, word) in [
            ("fsync", "off", "fsync"),
            ("full_page_writes", "off", "full_page_writes"),
        ] {
            let facts = with(setting, value);
            assert!(told(&facts).contains(word), "{setting}: {}", told(&facts));
        }
    }

    #[test]
    fn what_fills_up_is_told() {
        for (what, value, word) in [
            ("standbys", 1, "synchronous_standby_names"),
            ("quiet_us", 1_500_000, "for 1.5s more nothing is granted"),
            ("oldest_snapshot_s", 61, "pg_stat_activity"),
            ("oldest_prepared_s", 61, "pg_prepared_xacts"),
            ("connections", 95, "max_connections"),
            ("room", 5, "may have 5 here"),
            ("own_connections", 95, "has 95"),
            ("notices_percent", 11, "queue of notices"),
            ("dead", 10_001, "dead rows"),
            ("idle_session_s", 30, "idle_session_timeout"),
            ("waits_for_standby", 2, "2 commits wait"),
            ("clock_us", 9_500_000, "2.5s ahead of"),
        ] {
            let facts = with(what, value);
            assert!(told(&facts).contains(word), "{what}: {}", told(&facts));
        }
    }

    #[test]
    fn an_encoding_that_lacks_most_letters_is_told() {
        let facts = with("encoding", "LATIN1");
        assert!(told(&facts).contains("LATIN1"), "{}", told(&facts));
        assert_eq!(told(&with("encoding", "SQL_ASCII")), "");
    }

    #[test]
    fn what_is_so_or_is_not_is_told() {
        for (what, value, word) in [
            ("tells_origin", false, "timeline"),
            ("is_standby", true, "is a standby"),
            ("is_unlogged", true, "SET LOGGED"),
            ("sees_transactions", false, "pg_read_all_stats"),
        ] {
            let facts = with(what, value);
            assert!(told(&facts).contains(word), "{what}: {}", told(&facts));
        }
    }

    #[test]
    fn the_readme_has_each_hazard() {
        let readme = include_str!("../README.md");
        for check in CHECKS {
            assert!(readme.contains(&format!("`{}`", check.id)), "{}", check.id);
        }
    }
}
