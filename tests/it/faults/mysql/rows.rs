//! What is in the table, and what is read of it.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::ErrorKind;
use leasehold::store::{Answer, Outcome, Release};

use crate::harness::asking::{
    asked, begin, claim, granted, held, next_token, refused, released, renewed,
};
use crate::harness::mysql_server::{MysqlServer, set_up};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{now, until};
use crate::mysql::open;
use crate::recorded::assert_read;

const ROW: &str = "SELECT LOWER(HEX(version)), CONVERT(record USING utf8mb4), written_us FROM";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_write_has_another_version_and_the_servers_time() {
    let server = MysqlServer::shared().await;
    let database = server.database().await;
    let url = server.url_as("root", &database);
    set_up(&url).await;
    let row = async || {
        let sql = format!("{ROW} {database}.leasehold_record WHERE name = 'a'");
        let rows: Vec<(String, String, u64)> = server.ask(&sql).await;
        let [row] = rows.try_into().expect("a row");
        row
    };
    let store = open(&url).await;
    let lease = claim("a", LONG);
    let token = granted(&*store, &lease).await;
    let first = row().await;
    assert!(
        first.1.contains(&format!("\"token\":{token},")),
        "{first:?}"
    );
    assert!(matches!(renewed(&*store, &lease).await, Outcome::Renewed));
    let second = row().await;
    assert!(
        second.0 != first.0 && second.2 > first.2,
        "{first:?} {second:?}"
    );
    let now: Vec<i64> = server.ask("SELECT UNIX_TIMESTAMP()").await;
    let ago = now[0].unsigned_abs().abs_diff(second.2 / 1_000_000);
    assert!(ago < 10, "{ago}");
    assert_eq!(released(&*store, &lease).await, Release::Released);
    assert!(row().await.1.contains("\"state\":\"free\""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_holders_name_is_free_after_its_ttl_for_a_process_that_never_saw_it() {
    let url = MysqlServer::shared().await.url().await;
    let ttl = Duration::from_secs(2);
    let dead = claim("a", ttl);
    let begun = now();
    let token = granted(&*open(&url).await, &dead).await;
    let next = claim("a", LONG);
    until("the end of the dead holder's lease", async || {
        // Each time as a process that was not there before.
        let answer = asked(&*open(&url).await, &next, LIMIT).await;
        matches!(answer.expect("answered"), Answer::Granted(_)).then_some(())
    })
    .await;
    let after = now().since(begun);
    eprintln!("case=a dead holder's name on MariaDB: after={after:.1?}");
    // The ttl, and the skew of a second.
    assert!(after >= ttl + Duration::from_secs(1), "{after:?}");
    assert!(next.renewal().token > token);
}

/// As after a failover to a replica that missed a grant: the holder must hear of it, and not take the row of the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_grant_was_lost_does_not_renew_into_the_row_of_the_next_one() {
    let server = MysqlServer::shared().await;
    let database = server.database().await;
    let url = server.url_as("root", &database);
    set_up(&url).await;
    let table = format!("{database}.leasehold_record");
    let [one, other] = [open(&url).await, open(&url).await];
    next_token(&*one, "a").await;
    let copy = format!("CREATE TABLE {database}.copy SELECT * FROM {table}");
    server.sql(&[&copy]).await;
    let [lost, next] = [claim("a", LONG), claim("a", LONG)];
    granted(&*one, &lost).await;
    let restore = format!("REPLACE INTO {table} SELECT * FROM {database}.copy");
    server.sql(&[&restore]).await;
    granted(&*other, &next).await;
    assert!(matches!(renewed(&*one, &lost).await, Outcome::Refused));
    assert!(matches!(renewed(&*other, &next).await, Outcome::Renewed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_record_and_a_record_of_a_later_version_are_refused() {
    let server = MysqlServer::shared().await;
    for (record, words) in [
        ("hello", "is no record"),
        (
            r#"{"v":2,"state":"leased"}"#,
            "older than the one that wrote it",
        ),
    ] {
        let database = server.database().await;
        let url = server.url_as("root", &database);
        set_up(&url).await;
        let table = format!("{database}.leasehold_record");
        let insert = format!("INSERT INTO {table} VALUES ('a', '', '{record}', 0)");
        server.sql(&[&insert]).await;
        refused(&url, ErrorKind::Misconfigured, words).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_rows_are_read() {
    let server = MysqlServer::shared().await;
    let database = server.database().await;
    let recorded = include_str!("../../recorded/mysql.sql").trim_end();
    let statements: Vec<_> = recorded.split_terminator(";\n").collect();
    server.session(&database).await.sql(&statements).await;
    assert_read(&*open(&server.url_as("root", &database)).await).await;
}

#[tokio::test]
async fn requests_that_nobody_polls_keep_no_connection_from_the_others() {
    let store = open(&MysqlServer::shared().await.url().await).await;
    let lease = claim("a", LONG);
    granted(&*store, &lease).await;
    let mut unpolled: Vec<_> = (0..64)
        .map(|_| store.inspect(&lease.claim.name, LIMIT))
        .collect();
    for read in &mut unpolled {
        begin(read).await;
    }
    let begun = now();
    assert!(matches!(renewed(&*store, &lease).await, Outcome::Renewed));
    let took = now().since(begun);
    assert!(took < LIMIT / 2, "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_claims_at_once_than_connections_are_answered_over_ten() {
    let server = MysqlServer::start().await;
    let store = open(&server.url().await).await;
    let leases: Vec<_> = (0..256)
        .map(|index| claim(&format!("n{index}"), LONG))
        .collect();
    join_all(leases.iter().map(|lease| granted(&*store, lease))).await;
    let renewals: Vec<_> = leases.iter().map(|lease| lease.renewal()).collect();
    let outcomes = store.renew(&renewals, LIMIT).await.outcomes;
    assert!(
        outcomes
            .iter()
            .all(|outcome| matches!(outcome, Outcome::Renewed))
    );
    let count = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE HOST LIKE '%:%'";
    let connected: Vec<u64> = server.ask(count).await;
    assert_eq!(connected, [10]);
    held(&*store, &claim("n0", LONG)).await;
}
