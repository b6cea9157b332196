//! While any member is stopped, hung, out, or has a clock anywhere: claims, renewals, releases and notices go on.

use std::time::Duration;

use leasehold::store::{Outcome, Release};
use leasehold::{Client, Lease};

use crate::harness::asking::{claim, granted, released, renewed};
use crate::harness::redis_quorum::{MAX_TTL, RedisQuorum};
use crate::harness::redis_server::Setup;
use crate::harness::times::LONG;
use crate::harness::wait::{at, now, soon, until_so};

/// Claims, renews and releases, and hands a name to a client that waits for it.
async fn goes_on(quorum: &RedisQuorum, what: &str) {
    let store = quorum.open();
    let lease = claim(&format!("{what} a"), LONG);
    granted(&store, &lease).await;
    until_so("a renewal", async || {
        matches!(renewed(&store, &lease).await, Outcome::Renewed)
    })
    .await;
    assert_eq!(released(&store, &lease).await, Release::Released, "{what}");
    let client = async || {
        let client = Client::builder().store(quorum.open()).build();
        client.await.expect("a client")
    };
    let (one, other) = (client().await, client().await);
    let name = format!("{what} b");
    let first = one.acquire(name.as_str()).await.expect("it is free");
    let waiting = tokio::spawn(async move { other.acquire(name).await.expect("it is freed") });
    at(now().after(Duration::from_millis(300))).await;
    let (token, begun) = (first.token(), now());
    first.release().await;
    let next: Lease = soon(waiting).await.expect("no panic");
    // By a notice: it would ask by itself much later.
    let took = now().since(begun);
    assert!(took < Duration::from_secs(2), "{what}: {took:?}");
    assert!(next.token() > token, "{what}");
    next.release().await;
}

#[tokio::test]
async fn all_goes_on_while_any_member_is_stopped() {
    for member in 0..3 {
        let mut quorum = RedisQuorum::start(3).await;
        quorum.servers[member].kill();
        goes_on(&quorum, &format!("stopped {member}")).await;
    }
}

#[tokio::test]
async fn all_goes_on_while_any_member_hangs() {
    let quorum = RedisQuorum::start(3).await;
    for member in 0..3 {
        quorum.servers[member].pause();
        goes_on(&quorum, &format!("hung {member}")).await;
        quorum.servers[member].resume();
    }
}

#[tokio::test]
async fn all_goes_on_while_any_member_is_out() {
    for member in 0..3 {
        let mut quorum = RedisQuorum::start(3).await;
        quorum.servers[member].restart_empty().await;
        goes_on(&quorum, &format!("away {member}")).await;
    }
}

#[tokio::test]
async fn all_goes_on_while_the_clock_of_any_member_is_anywhere() {
    const HOUR: i64 = 3_600_000;
    let quorum = RedisQuorum::with(3, || Setup::default().with_clock(), MAX_TTL).await;
    for (member, step) in [(0, 30 * HOUR), (1, -30 * HOUR), (2, 5_000), (2, -5_000)] {
        quorum.servers[member].step_clock(step).await;
        goes_on(&quorum, &format!("{step} {member}")).await;
        quorum.servers[member].step_clock(-step).await;
    }
}
