//! What weakens leases in MySQL and MariaDB, as a table over what the server says of itself.

use super::Mysql;
use super::connection::{Variables, is_on};
use super::statements::{STATUS, SURVEY, VARIABLES};
use crate::store::Hazard;
use crate::store::Severity::{Critical, Unknown, Warning};
use crate::store::kit::check::{Check, found, judge};
use crate::store::record::{Failure, clock_apart};

/// What was read of the server.
#[derive(Debug, Default)]
struct SetUp {
    says: Variables,
    /// Number of the replicas that read its log, as far as the user may see them.
    replicas: u64,
    sees_replicas: bool,
    /// The engine of the table; `None` without one.
    engine: Option<String>,
    is_open_login: bool,
}

impl SetUp {
    fn word(&self, name: &str) -> &str {
        self.says.get(name).map_or("", String::as_str)
    }

    fn is_on(&self, name: &str) -> bool {
        is_on(&self.says, name)
    }
}

const CHECKS: &[Check<SetUp>] = &[
    Check::new(
        Critical,
        "mysql-no-flush",
        |it| {
            let value = it.word("innodb_flush_log_at_trx_commit");
            let what = format!("innodb_flush_log_at_trx_commit is {value}");
            found(value != "1", what)
        },
        "A crash of the machine loses the grants of the last second: two holders are possible, and only a fence protects",
        "Set it to 1",
    ),
    Check::new(
        Critical,
        "mysql-engine",
        |it| {
            let engine = it.engine.as_deref().unwrap_or("InnoDB");
            let what = format!("the engine of the table leasehold_record is {engine}");
            found(!engine.eq_ignore_ascii_case("InnoDB"), what)
        },
        "A crash of the server can lose every lease",
        "ALTER TABLE leasehold_record ENGINE = InnoDB",
    ),
    Check::new(
        Warning,
        "mysql-no-sync-binlog",
        |it| {
            let value = it.word("sync_binlog");
            let what = format!("the server has a binary log, and sync_binlog is {value}");
            found(it.is_on("log_bin") && value != "1", what)
        },
        "After a crash of the machine its replicas have other grants than it has",
        "Set it to 1",
    ),
    Check::new(
        Warning,
        "mysql-replicas",
        |it| {
            let semi = [
                "rpl_semi_sync_source_enabled",
                "rpl_semi_sync_master_enabled",
            ];
            let how = match semi.iter().any(|name| it.is_on(name)) {
                true => "semi-synchronous, until one is slow",
                false => "asynchronous",
            };
            let what = format!(
                "{} replicas read its log, and replication is {how}",
                it.replicas
            );
            found(it.replicas > 0, what)
        },
        "A failover can lose grants: two holders are possible, and only a fence protects",
        "Fence what the leases guard, or fail over by hand after the longest ttl",
    ),
    Check::new(
        Unknown,
        "mysql-replicas-unseen",
        |it| {
            let what = "the user does not see whether replicas read the binary log";
            found(it.is_on("log_bin") && !it.sees_replicas, what)
        },
        "A failover to a replica can lose grants, and is not reported here",
        "GRANT PROCESS to the user, or run the doctor as another one",
    ),
    Check::new(
        Warning,
        "mysql-galera",
        |it| found(it.is_on("wsrep_on"), "the server is a node of Galera"),
        "A lease is over by the clock of whichever node serves, and each grant waits for all nodes",
        "Run a time daemon on each node, and set skew= in the URL to the most by which they differ",
    ),
    Check::new(
        Warning,
        "mysql-plaintext-login",
        |it| found(it.is_open_login, "the connection has no TLS"),
        "Who reads the network can take any name",
        "Use sslmode=require",
    ),
];

pub(super) async fn all(mysql: &Mysql) -> Result<Vec<Hazard>, Failure> {
    let connections = &mysql.connections;
    let says: Variables = connections
        .ask(VARIABLES)
        .await?
        .columns()?
        .into_iter()
        .collect();
    let status: Vec<(String, u64)> = connections.ask(STATUS).await?.columns()?;
    let survey = connections.ask(SURVEY).await?;
    let (dumping, may_see, engine): (u64, u64, Option<String>) = survey.first()?;
    let connected = status.first().map(|(_, count)| *count);
    let set_up = SetUp {
        says,
        replicas: dumping.max(connected.unwrap_or_default()),
        sees_replicas: may_see > 0 || connected.is_some(),
        engine,
        is_open_login: mysql.address.is_open(),
    };
    let mut found = judge(CHECKS, &set_up);
    found.extend(clock_apart(mysql, "mysql-clock").await?);
    Ok(found)
}

/// Returns the kind of server, and its version.
pub(super) fn version(says: &Variables) -> Option<String> {
    let version = says.get("version")?;
    let kind = match version.contains("MariaDB") {
        true => "MariaDB",
        false => "MySQL",
    };
    let number = version.split('-').next().unwrap_or_default();
    Some(format!("{kind} {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(variables: &[(&str, &str)], set_up: SetUp) -> Vec<&'static str> {
        let sound = [
            ("innodb_flush_log_at_trx_commit", "1"),
            ("log_bin", "ON"),
            ("sync_binlog", "1"),
        ];
        let says = sound.iter().chain(variables);
        let says = says.map(|(name, value)| ((*name).into(), (*value).into()));
        let set_up = SetUp {
            says: says.collect(),
            ..set_up
        };
        let found = judge(CHECKS, &set_up);
        found.iter().map(|hazard| hazard.id).collect()
    }

    fn seen() -> SetUp {
        SetUp {
            sees_replicas: true,
            ..SetUp::default()
        }
    }

    #[test]
    fn what_a_crash_or_a_failover_loses_is_told() {
        assert_eq!(ids(&[], seen()), [""; 0]);
        for (name, value, id) in [
            ("innodb_flush_log_at_trx_commit", "2", "mysql-no-flush"),
            ("innodb_flush_log_at_trx_commit", "0", "mysql-no-flush"),
            ("sync_binlog", "0", "mysql-no-sync-binlog"),
            ("wsrep_on", "ON", "mysql-galera"),
        ] {
            assert_eq!(ids(&[(name, value)], seen()), [id], "{name}={value}");
        }
        assert_eq!(
            ids(&[("log_bin", "OFF"), ("sync_binlog", "0")], seen()),
            [""; 0]
        );
        let replicated = SetUp {
            replicas: 2,
            ..seen()
        };
        assert_eq!(ids(&[], replicated), ["mysql-replicas"]);
        assert_eq!(ids(&[], SetUp::default()), ["mysql-replicas-unseen"]);
        assert_eq!(ids(&[("log_bin", "OFF")], SetUp::default()), [""; 0]);
    }

    #[test]
    fn another_engine_and_an_open_login_are_told() {
        let engine = Some("MyISAM".into());
        assert_eq!(ids(&[], SetUp { engine, ..seen() }), ["mysql-engine"]);
        let open = SetUp {
            is_open_login: true,
            ..seen()
        };
        assert_eq!(ids(&[], open), ["mysql-plaintext-login"]);
    }

    #[test]
    fn the_kind_and_the_number_of_a_version_are_read() {
        for (version, shown) in [
            ("10.11.19-MariaDB-0+deb12u1-log", "MariaDB 10.11.19"),
            ("9.7.4", "MySQL 9.7.4"),
            ("8.0.36-28", "MySQL 8.0.36"),
        ] {
            let says = [("version".to_owned(), version.to_owned())].into();
            assert_eq!(super::version(&says).as_deref(), Some(shown));
        }
    }
}
