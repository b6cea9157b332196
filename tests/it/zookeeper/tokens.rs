//! Tokens rise, whatever becomes of the data.

use std::time::Duration;

use leasehold::store::Store;
use leasehold::store::redis::Redis;
use leasehold::{LossReason, Token};

use super::{open, store_in_chroot};
use crate::harness::asking::{claim, granted, next_token};
use crate::harness::leases::{client_at, take_waiting};
use crate::harness::redis_server::RedisServer;
use crate::harness::times::{LONG, STORED_TTL};
use crate::harness::wait::{at, lost, now};
use crate::harness::zookeeper_server::{Wire, ZookeeperServer};

#[tokio::test]
async fn tokens_rise_though_an_operator_removed_the_names() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let store = open(&server.url(""));
    let mut last = next_token(&*store, "a").await;
    for root in ["/leasehold/2c/a", "/leasehold"] {
        Wire::connect(&server).delete_all(root);
        let next = next_token(&*store, "a").await;
        assert!(next > last, "{next} after {last}");
        last = next;
    }
}

#[tokio::test]
async fn tokens_rise_though_the_server_lost_its_data() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let before = next_token(&*open(&server.url("")), "a").await;
    server.kill();
    server.empty();
    server.run();
    server.serving().await;
    let after = next_token(&*open(&server.url("")), "a").await;
    assert!(after > before, "{after} after {before}");
}

/// The restored server does not know the last grants: only its clock keeps the tokens rising, and only the fence protects.
#[tokio::test]
async fn tokens_rise_though_the_server_was_restored_from_a_snapshot() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let url = server.url("");
    let known = next_token(&*open(&url), "a").await;
    server.kill();
    let snapshot = server.snapshot();
    server.run();
    server.serving().await;
    let client = client_at(&url, STORED_TTL).await;
    let lease = take_waiting(&client, "a").await;
    assert!(lease.token() > known);
    server.kill();
    server.restore(&snapshot);
    server.run();
    server.serving().await;
    let restored_at = now();
    let after = next_token(&*open(&url), "a").await;
    let granted = now().since(restored_at);
    assert!(after > lease.token(), "{after} after {}", lease.token());
    let reason = lost(&lease).await;
    let told = now().since(restored_at);
    eprintln!(
        "case=restored snapshot granted_after={granted:.1?} told_after={told:.1?} {reason:?}"
    );
    assert!(
        [LossReason::Refused, LossReason::Deadline].contains(&reason),
        "{reason:?}"
    );
}

#[tokio::test]
async fn tokens_rise_through_a_move_from_redis_and_back() {
    let (zookeeper, server) = (store_in_chroot().await, RedisServer::start().await);
    let redis = Redis::open(&server.url()).expect("a URL in order");
    let mut last: Option<Token> = None;
    let mut longest = Duration::from_millis(100);
    for _ in 0..3 {
        for store in [&redis as &dyn Store, &*zookeeper] {
            let asked_at = now();
            let next = next_token(store, "a").await;
            longest = longest.max(now().since(asked_at));
            assert!(Some(next) > last, "{next} after {last:?}");
            last = Some(next);
            // The leader's stamps are whole milliseconds, and as old as their way took when they arrive.
            at(now().after(longest)).await;
        }
    }
}

#[tokio::test]
async fn a_floor_ahead_of_the_clock_is_kept_by_the_next_tokens() {
    let store = store_in_chroot().await;
    let first = next_token(&*store, "a").await;
    let floor = Token::new(first.get() + 3_600_000_000).expect("an hour ahead");
    let lifted = claim("a", LONG).with_floor(floor);
    let token = granted(&*store, &lifted).await;
    assert!(token > floor);
    let released = store.release(&lifted.name, lifted.holder, None, LONG).await;
    released.expect("answered");
    assert!(next_token(&*store, "a").await > token);
}
