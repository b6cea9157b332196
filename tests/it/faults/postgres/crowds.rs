//! The crowds of `postgres::crowds`, at the size that once lost leases and granted no name.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::OutagePolicy;
use tokio::task::JoinSet;

use crate::harness::leases::{client_at, take};
use crate::harness::postgres_server::{Database, PostgresServer};
use crate::harness::relay::Relay;
use crate::harness::wait::now;
use crate::postgres::crowds::{dropped_guards_of_locked_rows, outlive_restarts};
use crate::postgres::{own_server, set_up};

#[tokio::test(flavor = "multi_thread")]
async fn forty_holders_and_a_hundred_waiting_clients_lose_no_lease_at_a_restart() {
    outlive_restarts(100, 40, 100, Duration::from_secs(20)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_clients_of_a_server_with_a_hundred_connections_are_served() {
    let server = PostgresServer::start(&["fsync=off", "max_connections=100"]).await;
    let database = server.database_named("postgres");
    set_up(&database.url()).await;
    let grants = async |clients: usize| {
        let served = Arc::new(AtomicUsize::new(0));
        let mut crowd = JoinSet::new();
        for index in 0..clients {
            let (url, served) = (database.url(), served.clone());
            crowd.spawn(async move {
                let client = client_at(&url, Duration::from_secs(20)).await;
                let name = format!("name/{index}");
                loop {
                    let request = client.request(&*name).on_outage(OutagePolicy::WaitOut);
                    let lease = request.acquire().await.expect("granted in the end");
                    served.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    lease.check().expect("held");
                    drop(lease);
                }
            });
        }
        let end = now().after(Duration::from_secs(25));
        while now() < end {
            tokio::select! {
                ended = crowd.join_next() => panic!("{ended:?}"),
                () = tokio::time::sleep(end.since(now())) => {}
            }
        }
        crowd.shutdown().await;
        served.load(Ordering::Relaxed)
    };
    let few = grants(45).await;
    assert!(few >= 150, "the control: {few} grants");
    let many = grants(300).await;
    println!("{few} grants to 45 clients, {many} to 300");
    assert!(many >= 150, "{many} grants");
}

/// Returns whether a lease of three seconds outlives so many clients that join the queue of this name at once.
async fn outlives_a_crowd_that_joins(database: &Database, name: &'static str) -> bool {
    let holder = client_at(&database.url(), Duration::from_secs(3)).await;
    let lease = take(&holder, "held").await;
    let other = client_at(&database.url(), Duration::from_secs(60)).await;
    let _other = match name {
        "held" => None,
        name => Some(take(&other, name).await),
    };
    let begun = now();
    let mut crowd = JoinSet::new();
    for _ in 0..200 {
        // Connections are few; it is the joins that are many.
        let client =
            leasehold::Client::builder().shared_store(crate::postgres::open(&database.url()));
        let client = client.build().await.expect("settings in order");
        crowd.spawn(async move {
            let request = client.request(name);
            let waited = request.on_outage(OutagePolicy::WaitOut);
            let _ = waited.acquire_within(Duration::from_secs(12)).await;
        });
    }
    tokio::time::sleep(Duration::from_secs(9)).await;
    let lives = lease.check().is_ok();
    println!(
        "beside joins of {name}: held={lives} {:?}",
        now().since(begun)
    );
    crowd.shutdown().await;
    lease.release().await;
    lives
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_clients_that_join_a_queue_cost_its_holder_nothing() {
    // Each commit takes at least 30 ms, as with a standby in another zone.
    let settings = [
        "max_connections=700",
        "commit_delay=30000",
        "commit_siblings=0",
    ];
    let server = PostgresServer::start(&settings).await;
    let database = server.database_named("postgres");
    set_up(&database.url()).await;
    assert!(
        outlives_a_crowd_that_joins(&database, "other").await,
        "the control: they join the queue of another name"
    );
    assert!(outlives_a_crowd_that_joins(&database, "held").await);
}

#[tokio::test]
async fn twenty_dropped_guards_of_locked_rows_cost_none_of_twenty_others() {
    dropped_guards_of_locked_rows(20, 20).await;
}

/// As a proxy that hangs: its kernel still takes what is sent, so no connection is seen to end.
#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_forgets_the_connections_four_times_a_minute_costs_no_lease() {
    let (_server, database) = own_server().await;
    let relay = Relay::before(&database.socket()).await;
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", relay.port());
    let client = client_at(&url, Duration::from_secs(6)).await;
    let mut leases = Vec::new();
    for index in 0..20 {
        leases.push(take(&client, &format!("held/{index}")).await);
    }
    let lost = || leases.iter().filter(|lease| lease.check().is_err()).count();
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(lost(), 0, "without a fault");
    for time in 1..=4 {
        relay.forget();
        tokio::time::sleep(Duration::from_secs(12)).await;
        assert_eq!(lost(), 0, "of twenty, after {time} times");
    }
}
