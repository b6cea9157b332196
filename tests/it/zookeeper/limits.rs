//! Servers with a limit in the way: what the client does, and what it says.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::store::{Answer, Release};
use tokio::net::TcpListener;

use super::{node_of_a, open};
use crate::harness::asking::{asked, chain, claim, granted, released};
use crate::harness::leases::{client_at, take_waiting};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{at, now};
use crate::harness::zookeeper_server::{Wire, ZookeeperEnsemble, ZookeeperServer};

#[tokio::test]
async fn a_client_of_a_crowded_address_hears_of_the_limit_and_ends_no_lease() {
    let server = ZookeeperServer::start_with("maxClientCnxns=4\n", "").await;
    let holder = client_at(&server.url(""), Duration::from_secs(3)).await;
    let lease = take_waiting(&holder, "a").await;
    let rivals: Vec<_> = (0..8).map(|_| open(&server.url(""))).collect();
    for (index, rival) in rivals.iter().enumerate() {
        let answer = asked(&**rival, &claim("a", LONG), Duration::from_secs(2)).await;
        let error = match answer {
            Ok(Answer::Held(_)) if index < 4 => continue,
            answer => answer.expect_err("there is no room"),
        };
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:#}");
        assert!(
            chain(&error).contains("maxClientCnxns"),
            "{}",
            chain(&error)
        );
    }
    lease.check().expect("renewed beside them");
}

/// Otherwise those who only wait would be as quick as a holder that lost its connection.
#[tokio::test]
async fn a_client_whose_connections_are_closed_at_once_asks_at_growing_pauses() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let url = format!("zookeeper://{}", listener.local_addr().expect("bound"));
    let asked_for = Arc::new(AtomicUsize::new(0));
    let counted = asked_for.clone();
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let store = open(&url);
    let end = now().after(Duration::from_secs(12));
    while now() < end {
        let error = asked(&*store, &claim("a", LONG), Duration::from_secs(1)).await;
        error.expect_err("no server");
    }
    let times = asked_for.load(Ordering::Relaxed);
    assert!((4..=16).contains(&times), "{times} times");
}

#[tokio::test]
async fn a_queue_longer_than_the_servers_buffer_is_deleted_in_parts_before_a_grant() {
    let server = ZookeeperServer::start_with("", "-Djute.maxbuffer=65536").await;
    server.make("/app");
    let url = server.url("/app");
    let store = open(&url);
    let lease = claim("a", LONG);
    let token = granted(&*store, &lease).await;
    assert_eq!(released(&*store, &lease).await, Release::Released);
    let node = node_of_a(&url);
    let places = (0..1_200).map(|place| format!("q-{place:032x}-{place:010}"));
    let places: Vec<_> = places.collect();
    let places: Vec<_> = places.iter().map(String::as_str).collect();
    server.plant(&node, &places, b"");
    let mut wire = Wire::connect(&server);
    let tokens = wire.children(&node);
    let token_node = tokens.iter().find(|child| child.starts_with("t-"));
    wire.delete(&format!("{node}/{}", token_node.expect("it has one")));
    let other = open(&url);
    let next = claim("a", LONG);
    assert!(granted(&*other, &next).await > token);
}

/// As for a lease whose node an operator's program keeps: it cannot be deleted.
#[tokio::test]
async fn a_name_that_is_never_as_it_was_read_is_asked_for_at_a_pace() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    server.make("/app");
    let url = server.url("/app");
    let store = open(&url);
    let lease = claim("a", LONG * 10);
    granted(&*store, &lease).await;
    let node = format!("{}/h-{}", node_of_a(&url), lease.holder);
    server.plant(&node, &["child"], b"");
    let before = server.requests();
    let error = store
        .release(&lease.name, lease.holder, None, Duration::from_secs(1))
        .await;
    let error = error.expect_err("it cannot be deleted");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:#}");
    let asked = server.requests() - before;
    assert!(asked < 200, "{asked} requests in a second");
}

#[tokio::test]
async fn servers_with_local_sessions_that_are_not_upgraded_are_named() {
    let tick = Duration::from_millis(500);
    let ensemble = ZookeeperEnsemble::start_with(tick, "localSessionsEnabled=true").await;
    let store = open(&ensemble.url(""));
    let end = now().after(Duration::from_secs(30));
    let error = loop {
        let lease = claim("a", Duration::from_secs(3));
        match asked(&*store, &lease, LIMIT).await {
            Err(error) if error.kind() == ErrorKind::Misconfigured => break error,
            other => assert!(now() < end, "{other:?}"),
        }
        at(now().after(Duration::from_millis(100))).await;
    };
    let said = chain(&error);
    assert!(said.contains("localSessionsUpgradingEnabled"), "{said}");
}
