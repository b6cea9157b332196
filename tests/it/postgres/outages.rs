//! One death and one silence of the server; the others are among the long tests.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::store::Outcome;

use super::{database, open, set_up};
use crate::harness::asking::{asked, chain, claim, granted, held, next_token, renewed};
use crate::harness::postgres_server::PostgresServer;
use crate::harness::relay::{Passing, Relay};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{now, until};

#[tokio::test]
async fn leases_and_tokens_outlive_a_crash_of_the_server() {
    let server = PostgresServer::start(&["fsync=off", "synchronous_commit=off"]).await;
    let database = server.database_named("postgres");
    set_up(&database.url()).await;
    let store = open(&database.url());
    let token = next_token(&*store, "b").await;
    let claim = claim("a", LONG);
    granted(&*store, &claim).await;
    server.end("QUIT").await;
    let answer = asked(&*store, &self::claim("a", LONG), LIMIT).await;
    assert_eq!(answer.expect_err("down").kind(), ErrorKind::Unavailable);
    let renewal = renewed(&*store, &claim).await;
    assert!(matches!(renewal, Outcome::Unknown(_)), "{renewal:?}");
    server.start_again().await;
    // Found again by the next request, and nothing that was answered is lost.
    let before = held(&*store, &self::claim("a", LONG)).await;
    assert_eq!(before.by, Some(claim.holder));
    let renewal = renewed(&*store, &claim).await;
    assert!(matches!(renewal, Outcome::Renewed), "{renewal:?}");
    assert!(next_token(&*store, "b").await > token);
}

#[tokio::test]
async fn a_silent_server_ends_no_call_late_and_is_found_again() {
    let database = database().await;
    let relay = Relay::before(&database.socket()).await;
    let store = open(&format!(
        "postgres://postgres@127.0.0.1:{}/{}",
        relay.port(),
        database.name()
    ));
    let claim = claim("a", LONG);
    granted(&*store, &claim).await;
    let limit = Duration::from_millis(300);
    for passing in [Passing::Requests, Passing::Nothing] {
        relay.pass(passing);
        for _ in 0..3 {
            let begun = now();
            let answer = asked(&*store, &claim, limit).await;
            let error = answer.expect_err("nothing is heard");
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:#}");
            assert!(now().since(begun) < 3 * limit, "{:?}", now().since(begun));
        }
        relay.pass(Passing::All);
        // Some replies were lost: asked again, the holder has its lease.
        granted(&*store, &claim).await;
    }
    relay.cut();
    // The first one to be sent may find out.
    let _ = asked(&*store, &claim, LIMIT).await;
    granted(&*store, &claim).await;
}

/// As where a role wants no warnings: they are the only sign that a commit is on no standby.
#[tokio::test]
async fn a_commit_that_no_standby_has_is_no_grant_whatever_messages_the_role_wants() {
    let server = PostgresServer::start(&[]).await;
    let database = server.database_named("postgres");
    set_up(&database.url()).await;
    let administrator = database.connect().await;
    for level in ["warning", "error"] {
        for sql in [
            &*format!("ALTER DATABASE postgres SET client_min_messages = {level}"),
            "ALTER SYSTEM SET synchronous_standby_names = 'away'",
            "SELECT pg_reload_conf()",
        ] {
            administrator.batch_execute(sql).await.expect(sql);
        }
        let store = open(&database.url());
        let claim = claim(level, LONG);
        let (answer, ()) = tokio::join!(asked(&*store, &claim, LIMIT), async {
            until("the wait for the standby", async || {
                let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
                    WHERE wait_event = 'SyncRep'";
                let cancelled = administrator.query_one(cancel, &[]).await;
                let cancelled: i64 = cancelled.expect("answered").get(0);
                (cancelled > 0).then_some(())
            })
            .await;
        });
        let error = answer.expect_err("no standby has it");
        assert!(
            chain(&error).contains("standby"),
            "{level}: {}",
            chain(&error)
        );
        let reset = "ALTER SYSTEM RESET synchronous_standby_names";
        administrator.batch_execute(reset).await.expect("reset");
        let reload = "SELECT pg_reload_conf()";
        administrator.batch_execute(reload).await.expect("reset");
    }
}
