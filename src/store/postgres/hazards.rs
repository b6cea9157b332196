//! Faults in the server's set-up that weaken the promises: judged from what [`survey`](super::survey) read.

use std::time::Duration;

use super::survey::Findings;
use crate::store::{Hazard, Severity};

/// How old a snapshot may be. Until it ends no dead row is removed: each renewal leaves some 200 bytes.
const OLD_SNAPSHOT_S: i64 = 60;
/// How many connections should be left for others.
const SPARE_CONNECTIONS: i64 = 10;
/// How full the queue of notices may be.
const FULL_NOTICES_PERCENT: i64 = 10;
/// How far the server's clock and ours may differ.
const APART_US: u64 = 1_000_000;
/// The size of a live lease with its share of free space; more than four times as much is bloat.
const BYTES_A_LEASE: i64 = 400;
/// Below this size bloat does not matter.
const SMALL: i64 = 1 << 20;

/// Returns what weakens the promises. `wall_clock_us` is the time here when the findings were read.
pub(super) fn judge(facts: &Findings, wall_clock_us: u64) -> Vec<Hazard> {
    let mut hazards = durability(facts);
    hazards.extend(failover(facts));
    hazards.extend(space(facts));
    hazards.extend(connections(facts));
    let clock_us = u64::try_from(facts.number("clock_us")).unwrap_or_default();
    let apart = clock_us.abs_diff(wall_clock_us);
    if apart > APART_US {
        let side = if clock_us > wall_clock_us {
            "ahead of"
        } else {
            "behind"
        };
        hazards.push(Hazard::new(
            "postgres-clock",
            Severity::Warning,
            format!(
                "the server's clock is {:.1?} {side} ours",
                Duration::from_micros(apart)
            ),
            "after a move to another store or server tokens may fall",
            "Run a time daemon on both",
        ));
    }
    hazards
}

/// Checks what a crash would cost.
fn durability(facts: &Findings) -> Vec<Hazard> {
    let settings = &facts.settings;
    let setting = |name: &str| settings.get(name).cloned().unwrap_or_default();
    found([
        (
            facts.is("synchronous_commit", &["off"]),
            "postgres-synchronous-commit-off",
            Severity::Warning,
            "synchronous_commit is off".into(),
            "each grant turns it on for itself, but other writes of this role may be lost in a crash",
            "ALTER ROLE ... SET synchronous_commit = on",
        ),
        (
            facts.is("fsync", &["off"]) || facts.is("full_page_writes", &["off"]),
            "postgres-no-flush",
            Severity::Critical,
            format!(
                "fsync is {} and full_page_writes {}",
                setting("fsync"),
                setting("full_page_writes")
            ),
            "a crash of the machine can lose every lease and damage the tables",
            "Turn both on",
        ),
        (
            facts.is_unlogged && facts.tells_crash,
            "postgres-unlogged",
            Severity::Warning,
            "the tables are UNLOGGED".into(),
            "after a crash of the server every holder loses its lease, and nothing is granted for the longest ttl",
            "ALTER TABLE ... SET LOGGED for lease, queue and witness, or accept this",
        ),
        (
            facts.is_unlogged && !facts.tells_crash,
            "postgres-unlogged-unseen",
            Severity::Critical,
            "the tables were made UNLOGGED without the command for it".into(),
            "a crash of the server frees every name at once, and only a fence protects",
            "Run `leasehold init --unlogged`, or ALTER TABLE ... SET LOGGED",
        ),
        (
            settings
                .get("encoding")
                .is_some_and(|encoding| encoding != "UTF8"),
            "postgres-encoding",
            Severity::Warning,
            format!("the database's encoding is {}", setting("encoding")),
            "names with other characters are refused",
            "Use a database with ENCODING UTF8",
        ),
        (
            settings
                .get("isolation")
                .is_some_and(|isolation| isolation != "read committed"),
            "postgres-isolation",
            Severity::Warning,
            format!("the default isolation is {}", setting("isolation")),
            "contended claims fail with 40001 and are retried",
            "ALTER ROLE ... SET default_transaction_isolation = 'read committed'",
        ),
    ])
}

/// Checks what a failover would cost.
fn failover(facts: &Findings) -> Vec<Hazard> {
    let settings = &facts.settings;
    let is_synchronous = settings
        .get("synchronous_standbys")
        .is_some_and(|names| !names.is_empty());
    let has_standby = facts.number("standbys") > 0;
    let quiet = Duration::from_micros(u64::try_from(facts.number("quiet_us")).unwrap_or_default());
    found([
        (
            !quiet.is_zero(),
            "postgres-keep-out",
            Severity::Warning,
            format!(
                "the tables came from another server, or a crash emptied them; for {quiet:.1?} more nothing is granted"
            ),
            "leases that they may have lost are over by then; those that they have are renewed",
            "Wait, and find out what happened to the server",
        ),
        (
            facts.is_standby,
            "postgres-standby",
            Severity::Critical,
            "the server is a standby".into(),
            "it grants nothing",
            "Name the primary, or several hosts, in the URL",
        ),
        (
            facts.is("synchronous_commit", &["local"]) && is_synchronous,
            "postgres-synchronous-commit-local",
            Severity::Warning,
            "synchronous_commit is local".into(),
            "the synchronous standby can miss grants; after its promotion nothing is granted for the longest ttl",
            "ALTER ROLE ... SET synchronous_commit = on",
        ),
        (
            has_standby && !is_synchronous,
            "postgres-no-synchronous-standby",
            Severity::Warning,
            format!(
                "none of the standbys is synchronous standbys={}",
                facts.number("standbys")
            ),
            "after a promotion nothing is granted for the longest ttl, because the standby may have missed grants",
            "Set synchronous_standby_names, or accept this",
        ),
        (
            !facts.tells_origin && !facts.is_standby,
            "postgres-no-timeline",
            Severity::Warning,
            "the server does not show its timeline".into(),
            "a promoted standby that missed grants is not detected: two holders are possible, and only a fence protects",
            "Allow pg_control_system() and pg_walfile_name() to this role and run `leasehold init` again",
        ),
    ])
}

/// Checks what fills up.
fn space(facts: &Findings) -> Vec<Hazard> {
    let number = |what| facts.number(what);
    let snapshot = number("oldest_snapshot_s").max(number("oldest_prepared_s"));
    let live = number("live").max(1);
    let is_bloated = number("bytes") > SMALL && number("bytes") / live > 4 * BYTES_A_LEASE;
    found([
        (
            snapshot > OLD_SNAPSHOT_S,
            "postgres-old-snapshot",
            Severity::Warning,
            format!("a transaction has been open for {snapshot} s"),
            "until it ends each renewal leaves some 200 bytes, and busy names become slow",
            "End it; see pg_stat_activity and pg_prepared_xacts",
        ),
        (
            number("idle_slots") > 0,
            "postgres-unused-slot",
            Severity::Warning,
            format!(
                "{} replication slots are unused and keep old rows",
                number("idle_slots")
            ),
            "each renewal leaves some 200 bytes",
            "Drop them: pg_drop_replication_slot",
        ),
        (
            facts.is("autovacuum", &["off"]),
            "postgres-no-autovacuum",
            Severity::Warning,
            "autovacuum is off".into(),
            "the tables grow with every renewal",
            "Turn it on",
        ),
        (
            number("dead") > 10_000.max(2 * live),
            "postgres-dead-rows",
            Severity::Warning,
            format!(
                "{} dead rows beside {} live ones",
                number("dead"),
                number("live")
            ),
            "grants and renewals become slow",
            "Look for an old transaction, or for what blocks autovacuum",
        ),
        (
            is_bloated,
            "postgres-bloat",
            Severity::Warning,
            format!(
                "the table takes {} bytes for {} rows",
                number("bytes"),
                number("live")
            ),
            "its free space is used again, but sweeps read all of it",
            "Run VACUUM FULL on it when traffic is low; renewals wait meanwhile",
        ),
    ])
}

/// Checks what keeps clients from connecting.
fn connections(facts: &Findings) -> Vec<Hazard> {
    let number = |what| facts.number(what);
    let spare = number("max_connections") - number("connections");
    let idle = number("idle_session_s");
    found([
        (
            facts.numbers.contains_key("connections") && spare < SPARE_CONNECTIONS,
            "postgres-few-connections",
            Severity::Warning,
            format!(
                "{spare} connections are left of {}",
                number("max_connections")
            ),
            "a client that reconnects may be refused, and its leases expire",
            "Raise max_connections, or use a pooler",
        ),
        (
            number("notices_percent") > FULL_NOTICES_PERCENT,
            "postgres-notices-full",
            Severity::Warning,
            format!(
                "the queue of notices is {} % full",
                number("notices_percent")
            ),
            "when it is full, waiting clients only check again after some time",
            "Find the session that listens and stays in one transaction",
        ),
        (
            (1..60).contains(&idle),
            "postgres-idle-session-timeout",
            Severity::Critical,
            format!("idle_session_timeout is {idle} s"),
            "the watchdog's connection is closed between two renewals",
            "ALTER ROLE ... SET idle_session_timeout = 0",
        ),
    ])
}

/// Whether the hazard exists, its name and severity, what was found, what it endangers, and the fix.
type Check = (
    bool,
    &'static str,
    Severity,
    String,
    &'static str,
    &'static str,
);

fn found<const N: usize>(checks: [Check; N]) -> Vec<Hazard> {
    let found = checks.into_iter().filter(|(is_there, ..)| *is_there);
    found
        .map(|(_, id, severity, what, endangers, fix)| {
            Hazard::new(id, severity, what, endangers, fix)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings of a server without hazards.
    fn sound() -> Findings {
        let settings = [
            ("synchronous_commit", "on"),
            ("fsync", "on"),
            ("full_page_writes", "on"),
            ("encoding", "UTF8"),
            ("isolation", "read committed"),
            ("autovacuum", "on"),
            ("synchronous_standbys", ""),
        ];
        let numbers = [
            ("max_connections", 100),
            ("connections", 5),
            ("clock_us", 7_000_000),
            ("bytes", 8_192),
            ("live", 10),
        ];
        Findings {
            settings: settings.map(|(name, value)| (name, value.into())).into(),
            numbers: numbers.into(),
            tells_origin: true,
            ..Findings::default()
        }
    }

    fn told(facts: &Findings) -> String {
        let hazards = judge(facts, 7_000_000).into_iter();
        hazards.map(|hazard| hazard.to_string()).collect()
    }

    #[test]
    fn a_sound_server_has_none() {
        assert_eq!(told(&sound()), "");
    }

    #[test]
    fn each_weak_setting_is_told() {
        for (setting, value, word) in [
            ("synchronous_commit", "off", "synchronous_commit is off"),
            ("fsync", "off", "fsync"),
            ("full_page_writes", "off", "full_page_writes"),
            ("encoding", "SQL_ASCII", "ENCODING UTF8"),
            ("isolation", "serializable", "40001"),
            ("autovacuum", "off", "autovacuum"),
        ] {
            let mut facts = sound();
            facts.settings.insert(setting, value.into());
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
            ("idle_slots", 1, "pg_drop_replication_slot"),
            ("connections", 95, "max_connections"),
            ("notices_percent", 11, "queue of notices"),
            ("dead", 10_001, "dead rows"),
            ("bytes", 1 << 21, "VACUUM FULL"),
            ("idle_session_s", 30, "idle_session_timeout"),
            ("clock_us", 9_500_000, "2.5s ahead of"),
        ] {
            let mut facts = sound();
            facts.numbers.insert(what, value);
            assert!(told(&facts).contains(word), "{what}: {}", told(&facts));
        }
    }

    #[test]
    fn what_a_failover_would_cost_is_told() {
        let mut facts = sound();
        facts.tells_origin = false;
        assert!(told(&facts).contains("timeline"), "{}", told(&facts));
        facts.is_standby = true;
        facts.is_unlogged = true;
        assert!(told(&facts).contains("is a standby"), "{}", told(&facts));
        assert!(told(&facts).contains("init --unlogged"), "{}", told(&facts));
        facts.tells_crash = true;
        assert!(told(&facts).contains("or accept this"), "{}", told(&facts));
    }
}
