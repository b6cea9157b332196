//! A standby takes over, or a dump: what it may have missed is not granted again too early.

use std::process::Command;
use std::time::Duration;

use leasehold::store::{self, Held, HeldState, MemberState, Outcome, Queued};
use leasehold::{ErrorKind, Token};

use crate::harness::asking::{asked, claim, granted, held, released, renewed};
use crate::harness::postgres_server::{Database, PostgresServer, programs};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{now, until};
use crate::postgres::{open, with_max_ttl};

/// The longest ttl: for that long nothing is granted after a failover.
const MAX_TTL: Duration = Duration::from_secs(4);
/// A lease that the standby misses.
const TTL: Duration = Duration::from_secs(3);

async fn primary() -> (PostgresServer, Database) {
    let server = PostgresServer::start(&["fsync=off", "wal_level=replica"]).await;
    let database = server.database_named("postgres");
    let made = store::init(&database.url(), with_max_ttl(MAX_TTL), LIMIT).await;
    made.expect("made");
    (server, database)
}

async fn seen(database: &Database, sql: &str) {
    let client = database.connect().await;
    until("the standby to catch up", async || {
        client.query_one(sql, &[]).await.ok()
    })
    .await;
}

async fn execute_all(database: &Database, sql: &str) {
    let client = database.connect().await;
    for sql in sql.split(';') {
        client.batch_execute(sql).await.expect(sql);
    }
}

fn is_kept_out(held: &Held) -> bool {
    held.state == HeldState::KeepOut
        && held
            .remaining
            .is_some_and(|left| left <= MAX_TTL && !left.is_zero())
}

#[tokio::test]
async fn what_a_lagging_standby_missed_is_not_granted_again_before_its_end() {
    let (primary, database) = primary().await;
    let standby = primary.standby(&["fsync=off"]).await;
    let both = format!(
        "postgres:///postgres?user=postgres&host={},{}",
        database.folder().display(),
        standby.database_named("postgres").folder().display()
    );
    let store = open(&both);
    let known = claim("known", MAX_TTL);
    granted(&*store, &known).await;
    let behind = standby.database_named("postgres");
    seen(
        &behind,
        "SELECT 1 / count(*) FROM leasehold.lease WHERE name = 'known'",
    )
    .await;
    execute_all(
        &behind,
        "ALTER SYSTEM SET primary_conninfo = ''; SELECT pg_reload_conf()",
    )
    .await;
    let alone = database.connect().await;
    until("the standby to be cut off", async || {
        let row = alone
            .query_one("SELECT count(*) FROM pg_stat_replication", &[])
            .await;
        (row.expect("answered").get::<_, i64>(0) == 0).then_some(())
    })
    .await;
    let missed = claim("missed", TTL);
    let sent_at = now();
    let token: Token = granted(&*store, &missed).await;
    primary.end("QUIT").await;
    // Two servers, none of which takes writes.
    let answer = asked(&*store, &claim("missed", TTL), LIMIT).await;
    assert_eq!(
        answer.expect_err("no primary").kind(),
        ErrorKind::Unavailable
    );
    standby.promote().await;
    let rival = claim("missed", TTL);
    let kept_out = held(&*store, &rival).await;
    assert!(is_kept_out(&kept_out), "{kept_out:?}");
    assert!(
        now() < sent_at.after(TTL),
        "the machine is too slow for this test"
    );
    assert!(matches!(renewed(&*store, &known).await, Outcome::Renewed));
    let renewal = renewed(&*store, &missed).await;
    assert!(matches!(renewal, Outcome::Refused), "{renewal:?}");
    let next = until("the end of the quiet time", async || {
        match asked(&*store, &rival, LIMIT).await.expect("answered") {
            leasehold::store::Answer::Granted(grant) => Some(grant.token),
            _ => None,
        }
    })
    .await;
    assert!(
        now() >= sent_at.after(TTL),
        "granted before the lost lease was over"
    );
    assert!(next > token, "{next} after {token}");
}

/// In the middle of a hand-off: the standby has the holder and the client that waits, and missed that the name was passed
/// on. A release that is sent again is the first that it hears.
#[tokio::test]
async fn a_release_at_a_standby_that_took_over_passes_no_name_on() {
    let (primary, database) = primary().await;
    let standby = primary.standby(&["fsync=off"]).await;
    let behind = standby.database_named("postgres");
    let both = format!(
        "postgres:///postgres?user=postgres&host={},{}",
        database.folder().display(),
        behind.folder().display()
    );
    let store = open(&both);
    let (first, mut next) = (claim("a", MAX_TTL), claim("a", MAX_TTL));
    let mut in_turn = Queued::new(MAX_TTL);
    in_turn.term = MAX_TTL * 10;
    next.ask.queued = Some(in_turn);
    granted(&*store, &first).await;
    held(&*store, &next).await;
    seen(&behind, "SELECT 1 / count(*) FROM leasehold.queue").await;
    execute_all(
        &behind,
        "ALTER SYSTEM SET primary_conninfo = ''; SELECT pg_reload_conf()",
    )
    .await;
    let alone = database.connect().await;
    until("the standby to be cut off", async || {
        let sql = "SELECT 1 / (1 - count(*)) FROM pg_stat_replication";
        alone.query_one(sql, &[]).await.ok()
    })
    .await;
    released(&*store, &first).await;
    let missed = store.inspect(&first.name, LIMIT).await.expect("answered");
    assert_eq!(missed.expect("passed on").by, Some(next.holder));
    primary.end("QUIT").await;
    standby.promote().await;
    // The lease that it knows of may be over by now.
    until("the standby to answer", async || {
        let again = store.release(&first.name, first.holder, None, LIMIT).await;
        again.ok()
    })
    .await;
    let after = store.inspect(&first.name, LIMIT).await.expect("answered");
    assert!(after.is_none(), "{after:?}");
    assert!(is_kept_out(&held(&*store, &next).await));
}

#[tokio::test]
async fn each_server_of_the_url_is_shown_with_its_part() {
    let (primary, database) = primary().await;
    // So that the quiet time after the promotion is not over before it was seen.
    execute_all(&database, "UPDATE leasehold.lineage SET max_ttl_ms = 60000").await;
    let standby = primary.standby(&["fsync=off"]).await;
    let behind = standby.database_named("postgres");
    seen(
        &behind,
        "SELECT 1 / count(*) FROM leasehold.lineage WHERE max_ttl_ms = 60000",
    )
    .await;
    let both = format!(
        "postgres:///postgres?user=postgres&host={},{}",
        database.folder().display(),
        behind.folder().display()
    );
    let store = open(&both);
    let states = async || {
        let members = store.members(LIMIT).await.expect("answered");
        let states: Vec<_> = members.iter().map(|member| member.state).collect();
        <[MemberState; 2]>::try_from(states).expect("one for each server")
    };
    let before = states().await;
    assert_eq!(before, [MemberState::Up, MemberState::Standby]);
    let alone = open(&behind.url());
    let members = alone.members(LIMIT).await.expect("answered");
    assert_eq!(members[0].state, MemberState::Standby);
    let hazards = alone.hazards(LIMIT).await.expect("answered");
    assert!(
        hazards.iter().any(|hazard| hazard.id == "postgres-standby"),
        "{hazards:?}"
    );
    // A client of the standby alone is told that it asks a standby, which may be promoted.
    let refused = asked(&*alone, &claim("a", TTL), LIMIT).await;
    let error = refused.expect_err("a standby grants nothing");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("standby"), "{error}");
    primary.end("QUIT").await;
    let after = states().await;
    assert_eq!(after, [MemberState::Down, MemberState::Standby]);
    standby.promote().await;
    // The first claim finds the new timeline.
    let kept_out = held(&*store, &claim("a", TTL)).await;
    assert_eq!(kept_out.state, HeldState::KeepOut);
    let hazards = store.hazards(LIMIT).await.expect("answered");
    assert!(
        hazards
            .iter()
            .any(|hazard| hazard.id == "postgres-keep-out"),
        "{hazards:?}"
    );
    let promoted = states().await;
    assert!(
        matches!(promoted, [MemberState::Down, MemberState::Away { .. }]),
        "{promoted:?}"
    );
}

#[tokio::test]
async fn a_dump_in_another_server_grants_nothing_for_the_longest_ttl() {
    let (_first, database) = primary().await;
    granted(&*open(&database.url()), &claim("a", LONG.min(MAX_TTL))).await;
    let dump = Command::new(programs().join("pg_dump"))
        .args(["--username=postgres", "--host"])
        .arg(database.folder())
        .arg("postgres")
        .output()
        .expect("pg_dump starts");
    assert!(dump.status.success(), "{dump:?}");
    let second = PostgresServer::start(&["fsync=off"]).await;
    let restored = second.database_named("postgres");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("dump.sql");
    std::fs::write(&file, dump.stdout).expect("written");
    let loaded = Command::new(programs().join("psql"))
        .args([
            "--username=postgres",
            "--quiet",
            "--set=ON_ERROR_STOP=1",
            "--host",
        ])
        .arg(restored.folder())
        .arg("--file")
        .arg(&file)
        .arg("postgres")
        .output()
        .expect("psql starts");
    assert!(loaded.status.success(), "{loaded:?}");
    let store = open(&restored.url());
    let kept_out = held(&*store, &claim("b", TTL)).await;
    assert!(is_kept_out(&kept_out), "{kept_out:?}");
}

#[tokio::test]
async fn nothing_is_granted_that_the_synchronous_standby_lacks() {
    let (primary, database) = primary().await;
    let standby = primary.standby(&["fsync=off"]).await;
    execute_all(
        &database,
        "ALTER SYSTEM SET synchronous_standby_names = '*'; SELECT pg_reload_conf()",
    )
    .await;
    let store = open(&database.url());
    let first = claim("a", TTL);
    granted(&*store, &first).await;
    standby.end("INT").await;
    let limit = Duration::from_millis(600);
    let waiting = claim("b", TTL);
    let answer = asked(&*store, &waiting, limit).await;
    assert_eq!(answer.expect_err("no standby").kind(), ErrorKind::TimedOut);
    // An operator who ends the wait commits without the standby: that is no grant.
    let ending = async {
        let administrator = database.connect().await;
        administrator
            .batch_execute("SET synchronous_commit = local")
            .await
            .expect("set");
        until("a wait for the standby", async || {
            let sql = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
                WHERE wait_event = 'SyncRep' AND query LIKE '%acquire_1%'";
            let row = administrator.query_one(sql, &[]).await.expect("answered");
            (row.get::<_, i64>(0) > 0).then_some(())
        })
        .await;
        // Whatever waits now is ended as well, for as long as the claim is under way.
        for _ in 0..20 {
            let sql = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
            administrator.query_one(sql, &[]).await.expect("answered");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let other = claim("c", TTL);
    let (answer, ()) = tokio::join!(asked(&*store, &other, LIMIT), ending);
    let error = answer.expect_err("no standby has it");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:#}");
    standby.start_again().await;
    granted(&*store, &claim("d", TTL)).await;
}
