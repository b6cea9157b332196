//! What a forked child can do with a client that it inherited: nothing.
//!
//! The child of a real fork cannot be had without `unsafe`, so the client is told that it is in one. The campaign forks its
//! workers with a library in C.

use leasehold::internals::pretend_forked;
use leasehold::store::Store;
use leasehold::{ErrorKind, ReleaseOutcome};

use crate::harness::faulty_store::FaultyStore;
use crate::harness::leases::{client, renewed_times, take};
use crate::harness::times::PATIENCE;

#[tokio::test]
async fn a_forked_client_grants_nothing() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let lease = take(&client, "a").await;
    pretend_forked(&client, true);
    let error = client.try_acquire("b").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    let error = client.acquire("a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert!(client.shutdown(PATIENCE).await);
    pretend_forked(&client, false);
    lease.check().unwrap();
}

/// The parent may have released the lease: its copy in the child does not hear of that.
#[tokio::test]
async fn a_forked_lease_draws_no_pass() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let lease = take(&client, "a").await;
    pretend_forked(&client, true);
    let error = lease.pass().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert!(error.to_string().contains("name=a"), "{error}");
    pretend_forked(&client, false);
    lease.pass().unwrap();
}

#[tokio::test]
async fn a_forked_lease_is_not_released_in_the_store() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let (dropped, released) = (
        take(&client, "dropped").await,
        take(&client, "released").await,
    );
    let names = [dropped.name().clone(), released.name().clone()];
    pretend_forked(&client, true);
    drop(dropped);
    assert_eq!(released.release().await, ReleaseOutcome::Unknown);
    pretend_forked(&client, false);
    let other = take(&client, "other").await;
    renewed_times(&other, 2).await;
    for name in names {
        assert!(
            store.inspect(&name, PATIENCE).await.unwrap().is_some(),
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_forked_client_that_is_dropped_leaves_its_parents_renewals_alone() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let lease = take(&client, "a").await;
    pretend_forked(&client, true);
    drop(client.clone());
    pretend_forked(&client, false);
    renewed_times(&lease, 2).await;
    take(&client, "b").await.check().unwrap();
}
