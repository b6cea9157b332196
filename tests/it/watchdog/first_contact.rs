//! The first leases of a client, which wait for its watchdog to start.

use std::future::Future as _;
use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::FutureExt as _;
use leasehold::{Client, ErrorKind};

use super::wakers::Gone;
use crate::harness::leases::{renewed_times, take};
use crate::harness::redis_server::RedisServer;
use crate::harness::times::PATIENCE;
use crate::harness::wait::{at, now};

/// A server that is silent, and a client that has not spoken to it yet.
async fn before_a_silent_server() -> (TcpListener, Client) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    (silent, Client::open(url).await.unwrap())
}

#[tokio::test]
async fn many_first_contacts_with_a_silent_server_end_within_their_limits() {
    let (_silent, client) = before_a_silent_server().await;
    let limit = Duration::from_millis(200);
    let started = now();
    let mut waiting = tokio::task::JoinSet::new();
    for index in 0..10 {
        let client = client.clone();
        waiting.spawn(async move { client.acquire_within(format!("a{index}"), limit).await });
    }
    for ended in waiting.join_all().await {
        let error = ended.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:?}");
    }
    // One start of the watchdog alone may take 2 s.
    let took = now().since(started);
    assert!(took < Duration::from_millis(1_500), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_contact_that_is_not_polled_holds_up_no_other() {
    let server = RedisServer::start().await;
    let proxy = server.proxy().await;
    proxy.stall();
    let client = Client::open(proxy.url()).await.unwrap();
    let mut idle = pin!(client.acquire("a"));
    assert!(idle.as_mut().now_or_never().is_none());
    proxy.flow();
    let lease = tokio::time::timeout(PATIENCE, take(&client, "b")).await;
    lease.expect("it waits for no caller").release().await;
    idle.await.unwrap().release().await;
}

/// The limit of a request is a sixth of the ttl; a first connection may take longer than that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_contact_may_take_longer_than_a_request() {
    let server = RedisServer::start().await;
    for is_try in [true, false] {
        let proxy = server.proxy().await;
        proxy.stall();
        let builder = Client::builder().store_url(proxy.url());
        let client = builder.ttl(Duration::from_secs(2)).build().await.unwrap();
        let acquiring = async {
            match is_try {
                true => take(&client, "a").await,
                false => client.acquire("a").await.unwrap(),
            }
        };
        let flowing = async {
            at(now().after(Duration::from_secs(1))).await;
            proxy.flow();
        };
        let (lease, ()) = tokio::join!(acquiring, flowing);
        lease.release().await;
    }
}

#[tokio::test]
async fn a_waker_that_panics_at_first_contact_harms_no_other_caller() {
    let server = RedisServer::start().await;
    let proxy = server.proxy().await;
    proxy.stall();
    let client = Client::open(proxy.url()).await.unwrap();
    let gone = Waker::from(Arc::new(Gone));
    let mut first = pin!(client.acquire("a"));
    let is_pending = first
        .as_mut()
        .poll(&mut Context::from_waker(&gone))
        .is_pending();
    assert!(is_pending);
    let second = tokio::spawn({
        let client = client.clone();
        async move { take(&client, "b").await }
    });
    tokio::task::yield_now().await;
    proxy.flow();
    let lease = tokio::time::timeout(PATIENCE, second).await;
    let lease = lease.expect("it waits for no other").expect("no panic");
    renewed_times(&lease, 1).await;
    take(&client, "c").await.check().unwrap();
}
