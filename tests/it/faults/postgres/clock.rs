//! The server's wall clock is stepped, forward and back.

use std::time::Duration;

use leasehold::store::Outcome;
use leasehold::{Client, LossReason};

use crate::harness::asking::{claim, granted, held, released, renewed};
use crate::harness::postgres_server::PostgresServer;
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::lost;
use crate::postgres::{open, set_up};

const HOUR_MS: i64 = 3_600_000;

#[tokio::test]
async fn a_step_forward_frees_names_early_and_one_back_keeps_them_for_one_ttl() {
    let (server, clock) = PostgresServer::start_with_clock(&["fsync=off"]).await;
    let database = server.database_named("postgres");
    set_up(&database.url()).await;
    let store = open(&database.url());
    let first = claim("a", LONG);
    let token = granted(&*store, &first).await;

    clock.step(HOUR_MS);
    let free = store.inspect(&first.name, LIMIT).await.expect("answered");
    assert!(free.is_none(), "{free:?}");
    let second = claim("a", LONG);
    let next = granted(&*store, &second).await;
    assert!(next > token, "{next} after {token}");
    let renewal = renewed(&*store, &first).await;
    assert!(matches!(renewal, Outcome::Refused), "{renewal:?}");

    clock.step(-2 * HOUR_MS);
    let third = claim("a", LONG);
    let left = held(&*store, &third).await.remaining;
    // And not for the two hours by which the end is ahead.
    assert!(left.is_some_and(|left| left <= LONG), "{left:?}");
    assert!(matches!(renewed(&*store, &second).await, Outcome::Renewed));
    let left = held(&*store, &third).await.remaining;
    assert!(left.is_some_and(|left| left <= LONG), "{left:?}");
    released(&*store, &second).await;
    let last = granted(&*store, &third).await;
    assert!(last > next, "{last} after {next}");
}

#[tokio::test]
async fn a_holder_whose_name_was_freed_by_a_step_hears_it_at_its_next_renewal() {
    let ttl = Duration::from_secs(6);
    let (server, clock) = PostgresServer::start_with_clock(&["fsync=off"]).await;
    let database = server.database_named("postgres");
    set_up(&database.url()).await;
    let store = open(&database.url());
    let client = Client::builder().shared_store(store).ttl(ttl).build().await;
    let client = client.expect("a client");
    let lease = client.acquire("a").await.expect("granted");
    clock.step(HOUR_MS);
    // Refused at the next renewal; on a machine too slow for that, cancelled at the deadline.
    let reason = lost(&lease).await;
    let reasons = [LossReason::Refused, LossReason::Deadline];
    assert!(reasons.contains(&reason), "{reason:?}");
    let next = client.acquire("a").await.expect("granted");
    assert!(next.token() > lease.token());
}
