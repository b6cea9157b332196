//! What real servers refuse: the kind and the words of each.

use leasehold::ErrorKind::{Denied, Misconfigured, Unavailable};
use leasehold::store::{Sent, TableSettings, init};

use crate::harness::asking::{chain, claim, granted, held, next_token, refused, released};
use crate::harness::mysql_server::{MysqlServer, set_up};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::tls::{Authority, Certificate};
use crate::mysql::open;

async fn user(server: &MysqlServer, name: &str, database: &str, rights: &str) {
    let made = format!("CREATE USER {name}@127.0.0.1 IDENTIFIED BY '{name}'");
    let grant = format!("GRANT {rights} ON {database}.* TO {name}@127.0.0.1");
    server.sql(&[&made, &grant]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_rights_on_the_table_are_enough() {
    let server = MysqlServer::start().await;
    let database = server.database().await;
    set_up(&server.url_as("root", &database)).await;
    let made = "CREATE USER jobs@127.0.0.1 IDENTIFIED BY 'jobs'";
    let rights = "SELECT, INSERT, UPDATE, DELETE";
    let grant = format!("GRANT {rights} ON {database}.leasehold_record TO jobs@127.0.0.1");
    server.sql(&[made, &grant]).await;
    let store = open(&server.url_as("jobs:jobs", &database)).await;
    let lease = claim("a", LONG);
    granted(&*store, &lease).await;
    held(&*store, &claim("a", LONG)).await;
    assert_eq!(store.list("", LIMIT).await.expect("answered").len(), 1);
    released(&*store, &lease).await;
    assert_eq!(store.hazards(LIMIT).await.expect("answered"), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_is_told_why() {
    let server = MysqlServer::start().await;
    let database = server.database().await;
    set_up(&server.url_as("root", &database)).await;
    user(&server, "reader", &database, "SELECT").await;
    user(&server, "blocked", &database, "ALL").await;
    server
        .sql(&["ALTER USER blocked@127.0.0.1 ACCOUNT LOCK"])
        .await;
    let rights = "the user needs SELECT, INSERT, UPDATE and DELETE on the table leasehold_record";
    let wrong = "the user or the password is wrong";
    for (login, database, words) in [
        ("reader:s3cret", &*database, wrong),
        ("nobody:s3cret", &database, wrong),
        ("reader", &database, wrong),
        ("reader:reader", "mysql", rights),
        ("reader:reader", &database, rights),
        ("blocked:blocked", &database, "account is locked"),
    ] {
        refused(&server.url_as(login, database), Denied, words).await;
    }
    let reader = server.url_as("reader:reader", &database);
    let made = init(&reader, TableSettings::default(), LIMIT).await;
    let error = made.expect_err("it may not");
    assert!(
        chain(&error).contains("CREATE for `leasehold init`"),
        "{}",
        chain(&error)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_missing_or_of_another_form_is_told() {
    let server = MysqlServer::start().await;
    let absent = server.url_as("root", "absent");
    let sent = refused(&absent, Misconfigured, "the database does not exist").await;
    assert_eq!(sent, Sent::Never);
    let database = server.database().await;
    let url = server.url_as("root", &database);
    refused(&url, Misconfigured, "run `leasehold init --store URL`").await;
    let other = "CREATE TABLE leasehold_record (name VARBINARY(512) PRIMARY KEY, version INT)";
    server.session(&database).await.sql(&[other]).await;
    let words = "is not the one that `leasehold init` makes";
    refused(&url, Misconfigured, words).await;
    let made = init(&url, TableSettings::default(), LIMIT).await;
    let error = made.expect_err("the table is another one");
    assert!(chain(&error).contains(words), "{}", chain(&error));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_its_own_defaults_serves_and_one_that_logs_statements_is_told() {
    let server = MysqlServer::start_with(&[
        "--autocommit=0",
        "--transaction-isolation=SERIALIZABLE",
        "--transaction-read-only=1",
        "--sql-mode=ANSI_QUOTES,ORACLE",
        "--character-set-server=utf16",
        "--default-time-zone=+05:00",
        "--sysdate-is-now",
        "--log-bin=b",
        "--binlog-format=MIXED",
    ])
    .await;
    server
        .sql(&[
            "SET SESSION TRANSACTION READ WRITE",
            "SET GLOBAL tx_read_only = 0",
        ])
        .await;
    let url = server.url().await;
    server.sql(&["SET GLOBAL tx_read_only = 1"]).await;
    let lease = claim("a", LONG);
    granted(&*open(&url).await, &lease).await;
    held(&*open(&url).await, &claim("a", LONG)).await;
    server.sql(&["SET GLOBAL binlog_format = STATEMENT"]).await;
    let words = "binlog_format is STATEMENT: set it to ROW or MIXED";
    let store = open(&url).await;
    let lease = claim("b", LONG);
    let failed = store
        .acquire(&lease, lease.ask, LIMIT)
        .await
        .expect_err(words);
    assert!(
        chain(&failed.error).contains(words),
        "{}",
        chain(&failed.error)
    );
    assert_eq!(
        (failed.error.kind(), failed.sent),
        (Misconfigured, Sent::Answered)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_room_is_an_outage() {
    let server = MysqlServer::start().await;
    let database = server.database().await;
    set_up(&server.url_as("root", &database)).await;
    user(&server, "jobs", &database, "ALL").await;
    server
        .sql(&["GRANT USAGE ON *.* TO jobs@127.0.0.1 WITH MAX_USER_CONNECTIONS 1"])
        .await;
    let url = server.url_as("jobs:jobs", &database);
    let first = open(&url).await;
    next_token(&*first, "a").await;
    let sent = refused(&url, Unavailable, "no room left, or no connection").await;
    assert_eq!(sent, Sent::Never);
    first.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_trusted_by_its_authority_and_its_name_and_shown_a_certificate() {
    let authority = Authority::new();
    // Its files are read for each connection.
    let certificate = authority.issue("127.0.0.1");
    let server = MysqlServer::start_behind(&certificate).await;
    let database = server.database().await;
    set_up(&server.url_as("root", &database)).await;
    user(&server, "jobs", &database, "ALL").await;
    server
        .sql(&["ALTER USER jobs@127.0.0.1 REQUIRE X509"])
        .await;
    let url = format!("{}?sslmode=require", server.url_as("jobs:jobs", &database));
    let client = authority.issue("client");
    let ca = format!("{url}&ca={}", authority.path().display());
    let whole = format!("{ca}&{}", client.shown());
    next_token(&*open(&whole).await, "a").await;
    refused(&ca, Denied, "the user or the password is wrong").await;
    refused(&url, Misconfigured, "TLS failed").await;
    let stranger = Certificate::new();
    let strangers = format!(
        "{url}&ca={}&{}",
        stranger.authority().display(),
        client.shown()
    );
    refused(&strangers, Misconfigured, "TLS failed").await;
    let other_name = format!("{whole}&server_name=elsewhere");
    refused(&other_name, Misconfigured, "TLS failed").await;
    let plain = server.url_as("jobs:jobs", &database);
    refused(&plain, Denied, "the user or the password is wrong").await;
    let without = MysqlServer::shared().await.url_as("jobs:s3cret", "a");
    let without = format!("{without}?sslmode=require");
    refused(&without, Misconfigured, "the server has no TLS").await;
}
