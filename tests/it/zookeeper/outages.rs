//! One death and one silence of the server; the others are among the long tests.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::store::Outcome;

use super::open;
use crate::harness::asking::{asked, claim, granted, held, next_token, renewed};
use crate::harness::relay::{Passing, Relay};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{now, until};
use crate::harness::zookeeper_server::ZookeeperServer;

#[tokio::test]
async fn leases_and_tokens_outlive_a_crash_of_the_server() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let store = open(&server.url(""));
    let token = next_token(&*store, "b").await;
    let lease = claim("a", LONG);
    granted(&*store, &lease).await;
    server.kill();
    let limit = Duration::from_millis(500);
    let error = asked(&*store, &claim("a", LONG), limit).await;
    let error = error.expect_err("down");
    assert!(error.is_transient(), "{error:#}");
    server.run();
    server.serving().await;
    let before = until("the server", async || {
        let answer = asked(&*store, &claim("a", LONG), LIMIT).await.ok()?;
        Some(answer)
    })
    .await;
    assert!(
        matches!(&before, leasehold::store::Answer::Held(held) if held.by == Some(lease.holder)),
        "{before:?}"
    );
    assert!(matches!(renewed(&*store, &lease).await, Outcome::Renewed));
    assert!(next_token(&*store, "b").await > token);
    held(&*store, &claim("a", LONG)).await;
}

#[tokio::test]
async fn a_silent_server_ends_no_call_late_and_is_found_again() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let relay = Relay::before_port(server.port()).await;
    // A silent server is given up after a tenth of this.
    let store = open(&format!(
        "zookeeper://127.0.0.1:{}?session=10s",
        relay.port()
    ));
    let lease = claim("a", LONG);
    let token = granted(&*store, &lease).await;
    let limit = Duration::from_millis(300);
    for passing in [Passing::Requests, Passing::Nothing] {
        relay.pass(passing);
        for _ in 0..3 {
            let begun = now();
            let error = asked(&*store, &lease, limit).await;
            let error = error.expect_err("nothing is heard");
            let kinds = [ErrorKind::TimedOut, ErrorKind::Unavailable];
            assert!(kinds.contains(&error.kind()), "{error:#}");
            assert!(now().since(begun) < 3 * limit, "{:?}", now().since(begun));
        }
        relay.pass(Passing::All);
        relay.cut();
        // Some replies were lost: asked again, the holder has its lease.
        let again = until("the server", async || {
            asked(&*store, &lease, LIMIT).await.ok()
        })
        .await;
        assert!(
            matches!(&again, leasehold::store::Answer::Granted(grant) if grant.token == token),
            "{again:?}"
        );
    }
}
