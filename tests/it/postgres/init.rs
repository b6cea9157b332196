//! Making the tables, and what the store may do with the least of rights.

use std::time::Duration;

use leasehold::store::{self, Answer, HeldState, TableSettings};
use leasehold::{Client, ErrorKind};

use super::{open, set_up, with_max_ttl};
use crate::conformance::check_at;
use crate::harness::asking::{asked, chain, claim, granted, held, released};
use crate::harness::postgres_server::{PostgresServer, as_user, programs};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::until;

#[tokio::test]
async fn twelve_at_once_are_safe_and_a_second_time_changes_nothing() {
    let database = PostgresServer::database().await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let url = database.url();
        tasks.spawn(async move { set_up(&url).await });
    }
    tasks.join_all().await;
    let store = open(&database.url());
    let claim = claim("a", LONG);
    granted(&*store, &claim).await;
    set_up(&database.url()).await;
    assert_eq!(
        held(&*store, &self::claim("a", LONG)).await.by,
        Some(claim.holder)
    );
}

#[tokio::test]
async fn the_longest_ttl_is_kept_until_another_is_named() {
    let database = PostgresServer::database().await;
    let url = database.url();
    let init = async |max_ttl| store::init(&url, with_max_ttl(max_ttl), LIMIT).await;
    let long = Duration::from_secs(20);
    init(long).await.expect("made");
    set_up(&database.url()).await;
    let store = open(&database.url());
    granted(&*store, &claim("a", long)).await;
    let error = asked(&*store, &claim("b", LONG), LIMIT).await;
    let error = error.expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("max_ttl_ms=20000"), "{error}");
    // From then on it is known, and refused without a request.
    assert_eq!(store.facts().max_ttl, Some(long));
    let client = Client::builder().shared_store(store).build().await;
    let client = client.expect("a client");
    let refused = client.request("c").ttl(LONG).acquire().await;
    let error = refused.expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("at most 20s"), "{error}");
    let fresh = open(&database.url());
    assert_eq!(fresh.facts().max_ttl, None, "no server was asked");
    fresh.members(LIMIT).await.expect("answered");
    assert_eq!(fresh.facts().max_ttl, Some(long));
    let refused = init(Duration::ZERO).await.expect_err("it is no ttl");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(store::init_script(&url, with_max_ttl(Duration::ZERO)).is_err());
}

#[tokio::test]
async fn without_the_tables_the_error_names_the_command() {
    let database = PostgresServer::database().await;
    let store = open(&database.url());
    let answer = asked(&*store, &claim("a", LONG), LIMIT).await;
    let error = answer.expect_err("there are no tables");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.to_string().contains("leasehold init"), "{error}");
    // Nothing was made either.
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'leasehold'";
    let found = database.connect().await.query_one(schemas, &[]).await;
    assert_eq!(found.expect("answered").get::<_, i64>(0), 0);
}

#[tokio::test]
async fn two_schemas_of_one_database_have_nothing_to_do_with_each_other() {
    let database = PostgresServer::database().await;
    let url = |schema: &str| format!("{}&schema={schema}", database.url());
    for schema in ["one", "o%22d%27d"] {
        set_up(&url(schema)).await;
        granted(&*open(&url(schema)), &claim("a", LONG)).await;
    }
}

#[tokio::test]
async fn a_role_with_the_least_of_rights_keeps_the_contract() {
    let database = PostgresServer::database().await;
    set_up(&database.url()).await;
    let role = format!("least_{}", database.name());
    let rights = format!(
        "CREATE ROLE {role} LOGIN;
        GRANT USAGE ON SCHEMA leasehold TO {role};
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leasehold TO {role};
        GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA leasehold TO {role};"
    );
    let administrator = database.connect().await;
    administrator.batch_execute(&rights).await.expect("granted");
    check_at(database.url_as(&role)).await;
    // It may make nothing.
    let other = format!("{}&schema=other", database.url_as(&role));
    let refused = store::init(&other, TableSettings::default(), LIMIT).await;
    let error = refused.expect_err("it lacks the right");
    assert_eq!(error.kind(), ErrorKind::Denied, "{}", chain(&error));
    let revoke = format!("REVOKE INSERT ON leasehold.lease FROM {role}");
    administrator.batch_execute(&revoke).await.expect("revoked");
    let store = open(&database.url_as(&role));
    let refused = asked(&*store, &claim("a", LONG), LIMIT).await;
    assert_eq!(refused.expect_err("denied").kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn leases_survive_a_repair_of_the_tables() {
    let database = PostgresServer::database().await;
    set_up(&database.url()).await;
    let store = open(&database.url());
    let claim = claim("a", LONG);
    granted(&*store, &claim).await;
    // The column is one that tables of an earlier version lack.
    let damage = "DROP FUNCTION leasehold.release_1(text, text, bigint);
        ALTER TABLE leasehold.lineage DROP COLUMN started";
    database
        .connect()
        .await
        .batch_execute(damage)
        .await
        .expect("dropped");
    let failed = store.release(&claim.name, claim.holder, None, LIMIT).await;
    assert_eq!(failed.expect_err("gone").kind(), ErrorKind::Misconfigured);
    set_up(&database.url()).await;
    released(&*store, &claim).await;
    granted(&*store, &claim).await;
}

#[tokio::test]
async fn an_init_that_meets_a_lock_gives_up_and_leaves_nothing_that_waits() {
    let database = PostgresServer::database().await;
    set_up(&database.url()).await;
    let stranger = database.connect().await;
    stranger
        .batch_execute("BEGIN; LOCK TABLE leasehold.lineage")
        .await
        .expect("locked");
    let limit = Duration::from_millis(1_500);
    let error = store::init(&database.url(), TableSettings::default(), limit).await;
    let error = error.expect_err("it is locked");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{}", chain(&error));
    until("the end of its wait", async || {
        let sql = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let row = stranger.query_one(sql, &[]).await.expect("answered");
        (row.get::<_, i64>(0) == 0).then_some(())
    })
    .await;
    stranger.batch_execute("COMMIT").await.expect("let go");
    set_up(&database.url()).await;
}

#[tokio::test]
async fn a_role_that_takes_the_lock_of_init_stops_no_run() {
    let database = PostgresServer::database().await;
    let stranger = database.connect().await;
    let lock = "SELECT pg_advisory_lock(7810773120193241)";
    stranger.batch_execute(lock).await.expect("locked");
    // The first run makes the tables, the second one repairs them.
    for run in ["first", "second"] {
        let made = store::init(&database.url(), TableSettings::default(), LIMIT).await;
        made.unwrap_or_else(|error| panic!("the {run} run: {}", chain(&error)));
    }
}

#[tokio::test]
async fn a_database_in_another_encoding_is_refused_by_name() {
    let database = PostgresServer::database().await;
    let latin = format!("{}_latin", database.name());
    let make = format!("CREATE DATABASE {latin} ENCODING LATIN1 TEMPLATE template0");
    database
        .connect()
        .await
        .batch_execute(&make)
        .await
        .expect("made");
    let url = database.url().replace(database.name(), &latin);
    let refused = store::init(&url, TableSettings::default(), LIMIT).await;
    let error = refused.expect_err("it is not in UTF8");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{}", chain(&error));
    assert!(chain(&error).contains("LATIN1"), "{}", chain(&error));
}

/// As on a server that was hardened: only its administrator sees the timeline.
#[tokio::test]
async fn a_role_that_may_not_read_the_timeline_claims_all_the_same() {
    let database = PostgresServer::database().await;
    let role = format!("hardened_{}", database.name());
    let administrator = database.connect().await;
    let harden = "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC";
    administrator.batch_execute(harden).await.expect("hardened");
    set_up(&database.url()).await;
    let rights = format!(
        "CREATE ROLE {role} LOGIN;
        GRANT USAGE ON SCHEMA leasehold TO {role};
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leasehold TO {role}"
    );
    administrator.batch_execute(&rights).await.expect("granted");
    let store = open(&database.url_as(&role));
    granted(&*store, &claim("a", LONG)).await;
    let ids = async |store: &dyn leasehold::store::Store| {
        let hazards = store.hazards(LIMIT).await.expect("answered").into_iter();
        hazards.map(|hazard| hazard.id).collect::<Vec<_>>()
    };
    assert!(!ids(&*store).await.contains(&"postgres-no-timeline"));
    // Made by a role that may not read it either, after it was known.
    let give = format!(
        "GRANT CREATE ON DATABASE {name} TO {role};
        CREATE SCHEMA own AUTHORIZATION {role}",
        name = database.name()
    );
    administrator.batch_execute(&give).await.expect("given");
    let own = format!("{}&schema=own", database.url_as(&role));
    set_up(&own).await;
    let known = "UPDATE own.lineage SET origin = 'it was known', started = NULL";
    administrator.batch_execute(known).await.expect("known");
    let store = open(&own);
    granted(&*store, &claim("a", LONG)).await;
    assert!(ids(&*store).await.contains(&"postgres-no-timeline"));
}

/// As after `pg_dump --clean` into the server that it is from.
#[tokio::test]
async fn nothing_is_granted_after_a_dump_was_restored_in_place() {
    let database = PostgresServer::database().await;
    set_up(&database.url()).await;
    let store = open(&database.url());
    granted(&*store, &claim("before", LONG)).await;
    let dump = as_user(&programs().join("pg_dump"))
        .args([
            "--clean",
            "--inserts",
            "--schema=leasehold",
            "--username=postgres",
        ])
        .arg(format!("--host={}", database.folder().display()))
        .args(["--port=5432", database.name()])
        .output()
        .expect("pg_dump starts");
    assert!(dump.status.success(), "{dump:?}");
    let dump = String::from_utf8(dump.stdout).expect("text");
    // Its orders to `psql` aside.
    let dump: Vec<_> = dump
        .lines()
        .filter(|line| !line.starts_with('\\'))
        .collect();
    let first = claim("a", LONG);
    granted(&*store, &first).await;
    let control = asked(&*store, &claim("a", LONG), LIMIT)
        .await
        .expect("answered");
    assert!(matches!(control, Answer::Held(_)), "{control:?}");
    let restored = database
        .connect()
        .await
        .batch_execute(&dump.join("\n"))
        .await;
    restored.expect("restored");
    for _ in 0..2 {
        let held = held(&*store, &claim("a", LONG)).await;
        assert_eq!(held.state, HeldState::KeepOut, "{held:?}");
    }
}
