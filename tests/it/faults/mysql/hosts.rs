//! Several hosts in one URL, and what replicates.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::store::{MemberState, Outcome};

use crate::harness::asking::{claim, granted, next_token, refused, renewed};
use crate::harness::mysql_server::{MysqlServer, set_up};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::until;
use crate::mysql::open;

/// A user who may not write while a server is read-only.
const USER: &str = "jobs";

/// The URL of both servers for this user.
fn url_of(servers: &[MysqlServer; 2], login: &str) -> String {
    let [one, other] = servers.each_ref().map(MysqlServer::port);
    format!("mysql://{login}@127.0.0.1:{one},127.0.0.1:{other}/leases")
}

async fn two() -> [MysqlServer; 2] {
    let servers = [MysqlServer::start().await, MysqlServer::start().await];
    for server in &servers {
        let user = format!("CREATE USER {USER}@127.0.0.1");
        let right = format!("GRANT SELECT, INSERT, UPDATE, DELETE ON leases.* TO {USER}@127.0.0.1");
        server.sql(&["CREATE DATABASE leases", &user, &right]).await;
        set_up(&server.url_as("root", "leases")).await;
    }
    servers
}

async fn write(servers: &[MysqlServer; 2], writable: usize) {
    for (index, server) in servers.iter().enumerate() {
        let is_read_only = u8::from(index != writable);
        let set = format!("SET GLOBAL read_only = {is_read_only}");
        server.sql(&[&set]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_servers_the_first_that_takes_writes_is_used() {
    let servers = two().await;
    for login in ["root", USER] {
        let url = url_of(&servers, login);
        let mut last = None;
        for (writable, states) in [
            (1, [MemberState::Standby, MemberState::Up]),
            (0, [MemberState::Up, MemberState::Standby]),
        ] {
            write(&servers, writable).await;
            let store = open(&url).await;
            let token = next_token(&*store, "a").await;
            assert!(Some(token) > last);
            last = Some(token);
            let members = store.members(LIMIT).await.expect("answered");
            let seen: Vec<_> = members.iter().map(|member| member.state).collect();
            assert_eq!(seen, states);
            let version = members[0].version.as_deref().unwrap_or_default();
            assert!(version.starts_with("MariaDB "), "{version}");
        }
        write(&servers, 2).await;
        refused(&url, ErrorKind::Unavailable, "the server is read-only").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_becomes_read_only_is_left_also_by_a_user_who_may_write_there() {
    let servers = two().await;
    for login in ["root", USER] {
        write(&servers, 0).await;
        let store = open(&url_of(&servers, login)).await;
        let lease = claim(login, LONG);
        let token = granted(&*store, &lease).await;
        let version = "SELECT HEX(version) FROM leases.leasehold_record ORDER BY name";
        let before: Vec<String> = servers[0].ask(version).await;
        write(&servers, 1).await;
        // The second server has no record of the lease: its holder must hear of that, and not renew where nobody else reads.
        let denied = async || match renewed(&*store, &lease).await {
            Outcome::Refused => Some(()),
            Outcome::Unknown(_) => None,
            other => panic!("{login}: {other:?}"),
        };
        until("the denial of the renewal", denied).await;
        let after: Vec<String> = servers[0].ask(version).await;
        assert_eq!(before, after, "{login}");
        let next = next_token(&*store, login).await;
        assert!(next > token, "{next} after {token}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_server_that_is_silent_or_gone_keeps_no_client_from_the_second() {
    let mut servers = two().await;
    let url = url_of(&servers, USER);
    servers[0].pause();
    next_token(&*open(&url).await, "a").await;
    servers[0].kill();
    let store = open(&url).await;
    next_token(&*store, "a").await;
    let members = store.members(LIMIT).await.expect("answered");
    let seen: Vec<_> = members.iter().map(|member| member.state).collect();
    assert_eq!(seen, [MemberState::Down, MemberState::Up]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_and_what_is_not_flushed_are_told() {
    let primary = MysqlServer::start_with(&["--log-bin=b", "--server-id=1"]).await;
    let url = primary.url().await;
    let ids = async |url: &str| {
        let hazards = open(url).await.hazards(LIMIT).await.expect("answered");
        let ids: Vec<_> = hazards.iter().map(|hazard| hazard.id).collect();
        ids
    };
    assert_eq!(ids(&url).await, ["mysql-no-sync-binlog"]);
    let replica = MysqlServer::start_with(&["--server-id=2"]).await;
    let follow = format!(
        "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, MASTER_USER = 'root'",
        primary.port()
    );
    replica.sql(&[&follow, "START SLAVE"]).await;
    // Also by a user who does not see the connections of others.
    let login = "CREATE USER jobs@127.0.0.1";
    let right = "GRANT SELECT, INSERT, UPDATE, DELETE ON *.* TO jobs@127.0.0.1";
    let faults = [
        "SET GLOBAL sync_binlog = 1, innodb_flush_log_at_trx_commit = 2",
        login,
        right,
    ];
    primary.sql(&faults).await;
    let expected = ["mysql-no-flush", "mysql-replicas"];
    for url in [&url, &url.replace("root", "jobs")] {
        until("both", async || (ids(url).await == expected).then_some(())).await;
    }
    let token = next_token(&*open(&url).await, "a").await;
    let count =
        "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_NAME = 'leasehold_record'";
    until("the table at the replica", async || {
        let tables: Vec<u64> = replica.ask(count).await;
        (tables == [1]).then_some(())
    })
    .await;
    let replicated = url.replace(&primary.port().to_string(), &replica.port().to_string());
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(next_token(&*open(&replicated).await, "a").await > token);
    let engine = url.rsplit_once('/').expect("a database").1;
    let engine = format!("ALTER TABLE {engine}.leasehold_record ENGINE = MyISAM");
    primary.sql(&[&engine]).await;
    assert!(ids(&url).await.contains(&"mysql-engine"));
}
