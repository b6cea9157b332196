//! What is released of a claim that brought no lease: whatever may have been carried out, and nothing else.

use std::time::Duration;

use leasehold::{Attempt, Client, ErrorKind, Token};

use super::wire::{lease_key, token_at};
use crate::harness::leases::{client_at, take};
use crate::harness::proxy::{Fault, Request};
use crate::harness::redis_server::RedisServer;
use crate::harness::times::LONG;
use crate::harness::wait::until;

/// A client whose watchdog runs and whose scripts are loaded.
async fn warm_client(url: &str, ttl: Duration) -> Client {
    let client = client_at(url, ttl).await;
    take(&client, "warm").await.release().await;
    client
}

async fn is_taken(server: &RedisServer, name: &str) -> bool {
    server.told(&format!("EXISTS {}", lease_key(name))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_answer_cannot_be_read_is_taken_back() {
    for garbage in ["*1\r\n$4\r\nelse\r\n", "+OK\r\n", "?what\r\n"] {
        let server = RedisServer::start().await;
        let proxy = server.proxy().await;
        let client = warm_client(&proxy.url(), LONG).await;
        proxy.once(Request::is_script, Fault::GarbleReply(garbage));
        let error = client.try_acquire("a").await.expect_err("it is unreadable");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        until("the release", async || {
            (!is_taken(&server, "a").await).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tries_that_were_never_sent_leave_nothing_to_release() {
    let mut server = RedisServer::start().await;
    let client = warm_client(&server.url(), Duration::from_secs(4)).await;
    server.kill();
    for index in 0..40 {
        let tried = client.try_acquire(format!("a{index}")).await;
        let error = tried.expect_err("nobody is there");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    }
    server.start_again().await;
    assert!(client.shutdown(LONG).await);
    // The end of the connection may be noticed by the first of them: then that one may have been carried out.
    let calls = script_calls(&server).await;
    assert!(calls < 20, "{calls} releases of claims that nobody saw");
}

/// How often scripts were called since the server was started.
async fn script_calls(server: &RedisServer) -> u64 {
    let told: String = server.told("INFO commandstats").await;
    let calls = told.split("cmdstat_evalsha:calls=").nth(1);
    let calls = calls.and_then(|rest| rest.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_floor_that_rises_before_the_answer_comes_lifts_the_grant() {
    let server = RedisServer::start().await;
    let proxy = server.proxy().await;
    let client = warm_client(&proxy.url(), LONG).await;
    let reply = Fault::DelayReply(Duration::from_millis(500));
    proxy.once(Request::is_script, reply);
    let raised = async {
        until("the grant", async || {
            is_taken(&server, "a").await.then_some(())
        })
        .await;
        let token = token_at(&server, "a").await;
        let floor = Token::new(token + 3_600_000_000).expect("an hour ahead");
        client.raise_min_token("a", floor).expect("a valid name");
        floor
    };
    match tokio::join!(client.try_acquire("a"), raised) {
        (Ok(Attempt::Acquired(lease)), floor) => assert!(lease.token() > floor),
        (other, _) => panic!("expected a lease, got {other:?}"),
    }
}
