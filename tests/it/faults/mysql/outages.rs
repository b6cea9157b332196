//! Servers that end, fall silent, or keep what is wanted locked.

use std::time::Duration;

use leasehold::store::{Outcome, Sent};
use leasehold::{ErrorKind, LossReason};

use crate::harness::asking::{asked, claim, granted, held, next_token, refused, renewed};
use crate::harness::leases::{client_at, renewed_times, take};
use crate::harness::mysql_server::{MysqlServer, set_up, url_by};
use crate::harness::relay::{Passing, Relay};
use crate::harness::times::{LIMIT, LONG, UNANSWERED};
use crate::harness::wait::{lost, now, pause, until};
use crate::mysql::open;

/// The time without use after which a connection is doubted.
const DOUBTED: Duration = Duration::from_millis(1_500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_is_told_in_time_when_the_server_falls_silent() {
    let server = MysqlServer::start().await;
    let client = client_at(&server.url().await, Duration::from_secs(3)).await;
    let lease = take(&client, "a").await;
    server.pause();
    assert_eq!(lost(&lease).await, LossReason::Deadline);
    server.resume();
    drop(lease);
    let again = client.request("a").acquire_within(Duration::from_secs(30));
    drop(again.await.expect("it answers again"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_outlive_a_server_that_is_killed_and_started_again() {
    let mut server = MysqlServer::start().await;
    let url = server.url().await;
    let client = client_at(&url, Duration::from_secs(12)).await;
    let lease = take(&client, "a").await;
    for _ in 0..2 {
        server.kill();
        server.run();
        assert!(server.is_ready().await);
        // The renewal after the next: the one under way may end with the server.
        renewed_times(&lease, 2).await;
        assert!(lease.check().is_ok());
        held(&*open(&url).await, &claim("a", LONG)).await;
    }
    let token = lease.token();
    lease.release().await;
    assert!(next_token(&*open(&url).await, "a").await > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_the_server_has_ended_cost_no_request() {
    let server = MysqlServer::start().await;
    server.sql(&["SET GLOBAL wait_timeout = 1"]).await;
    let store = open(&server.url().await).await;
    let lease = claim("a", LONG);
    granted(&*store, &lease).await;
    let count = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE HOST LIKE '%:%'";
    until("the end of each connection", async || {
        let connected: Vec<u64> = server.ask(count).await;
        (connected == [0]).then_some(())
    })
    .await;
    pause(DOUBTED).await;
    assert!(matches!(renewed(&*store, &lease).await, Outcome::Renewed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_answer_is_lost_is_of_unknown_outcome_and_is_granted_when_asked_again() {
    let server = MysqlServer::start().await;
    let database = server.database().await;
    set_up(&server.url_as("root", &database)).await;
    let relay = Relay::before_port(server.port()).await;
    let store = open(&url_by(relay.port(), "root", &database)).await;
    // So that the next claim is a put alone.
    let first = next_token(&*store, "a").await;
    let lease = claim("a", LONG);
    relay.pass(Passing::Requests);
    let failed = store.acquire(&lease, lease.ask, UNANSWERED).await;
    let failed = failed.expect_err("no answer comes");
    assert_eq!(failed.sent, Sent::Perhaps, "{}", failed.error);
    relay.pass(Passing::All);
    held(
        &*open(&server.url_as("root", &database)).await,
        &claim("a", LONG),
    )
    .await;
    let token = granted(&*store, &lease).await;
    assert!(token > first, "{token} after {first}");
    assert!(matches!(renewed(&*store, &lease).await, Outcome::Renewed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_of_another_session_is_waited_for_a_second_and_told() {
    let server = MysqlServer::start().await;
    let database = server.database().await;
    let url = server.url_as("root", &database);
    set_up(&url).await;
    let store = open(&url).await;
    next_token(&*store, "a").await;
    for (lock, unlock) in [
        (
            ["BEGIN", "SELECT * FROM leasehold_record FOR UPDATE"],
            "ROLLBACK",
        ),
        // As a backup does.
        (["DO 1", "FLUSH TABLES WITH READ LOCK"], "UNLOCK TABLES"),
        (
            ["DO 1", "LOCK TABLES leasehold_record WRITE"],
            "UNLOCK TABLES",
        ),
    ] {
        let mut other = server.session(&database).await;
        other.sql(&lock).await;
        let begun = now();
        let words = "another transaction keeps the row or the table locked";
        refused(&url, ErrorKind::TimedOut, words).await;
        let took = now().since(begun);
        assert!(took < Duration::from_millis(2_500), "{lock:?}: {took:?}");
        other.sql(&[unlock]).await;
        next_token(&*store, "a").await;
    }
}

/// A trigger answers as the server would.
async fn answering(server: &MysqlServer, url: &str, code: u16, times: usize) {
    let database = url.rsplit_once('/').expect("a database").1;
    let statements = [
        // Its rows stay when the statement is taken back.
        "CREATE TABLE tries (at INT) ENGINE = Aria TRANSACTIONAL = 0",
        &format!(
            "CREATE TRIGGER answers BEFORE UPDATE ON leasehold_record FOR EACH ROW BEGIN \
             INSERT INTO tries VALUES (1); \
             IF (SELECT COUNT(*) FROM tries) <= {times} THEN \
             SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = 'as told'; END IF; END"
        ),
    ];
    server.session(database).await.sql(&statements).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_deadlock_took_back_is_sent_again_a_few_times() {
    let server = MysqlServer::shared().await;
    for (code, times, is_done) in [(1213, 3, true), (1213, 4, false), (1053, 1, false)] {
        let url = server.url().await;
        let store = open(&url).await;
        next_token(&*store, "a").await;
        answering(server, &url, code, times).await;
        let lease = claim("a", LONG);
        let answer = store.acquire(&lease, lease.ask, LIMIT).await;
        match answer {
            Ok(_) => assert!(is_done, "{code} {times}"),
            Err(failed) => {
                assert!(!is_done, "{code} {times}: {}", failed.error);
                let sent = match code {
                    1213 => Sent::Answered,
                    _ => Sent::Perhaps,
                };
                assert_eq!(failed.sent, sent, "{code} {times}");
                assert_eq!(failed.error.kind(), ErrorKind::Unavailable);
                asked(&*store, &lease, LIMIT)
                    .await
                    .expect("the next one is done");
            }
        }
    }
}
