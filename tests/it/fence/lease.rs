//! What a lease makes of a fence: it shows its pass, asks nothing when it knows better, and learns from a refusal.

use std::time::Duration;

use leasehold::fence::rusqlite::Fence;
use leasehold::fence::{Bearer, Refusal};
use leasehold::store::memory::Memory;
use leasehold::store::{Eviction, Store};
use leasehold::{Client, ErrorKind, Lease, Token};
use rusqlite::Connection;

use crate::harness::redis_server::Setup;
use crate::harness::times::LIMIT;

/// Storage that outlives whatever happens to the leases.
fn storage(fence: &Fence) -> Connection {
    let connection = Connection::open_in_memory().expect("memory");
    fence.create_table(&connection).expect("made");
    connection
}

fn fence() -> Fence {
    Fence::new("ledger").expect("valid")
}

fn write(
    fence: &Fence,
    connection: &mut Connection,
    lease: &Lease,
) -> Result<(), leasehold::Error> {
    let transaction = fence.begin(connection, lease)?;
    transaction.commit().expect("committed");
    Ok(())
}

#[tokio::test]
async fn a_lease_shows_its_own_pass() {
    let client = Client::builder()
        .store(Memory::new())
        .build()
        .await
        .unwrap();
    let lease = client.acquire("nightly").await.unwrap();
    let (fence, pass) = (fence(), lease.pass().unwrap());
    assert_eq!(
        (&pass.name, pass.holder, pass.token),
        (lease.name(), lease.holder(), lease.token())
    );
    let mut connection = storage(&fence);
    write(&fence, &mut connection, &lease).unwrap();
    write(&fence, &mut connection, &lease).unwrap();
    assert_eq!(fence.row(&connection).unwrap(), Some(pass));
}

#[tokio::test]
async fn a_lost_lease_does_not_even_ask_storage() {
    let store = Memory::new();
    let client = Client::builder()
        .store(store.clone())
        .ttl(Duration::from_millis(300))
        .margin(Duration::from_millis(30))
        .build()
        .await
        .unwrap();
    let lease = client.acquire("nightly").await.unwrap();
    store
        .evict(lease.name(), Eviction::Now, LIMIT)
        .await
        .unwrap();
    lease.lost().await;
    // Without its table, storage that was asked would say `Misconfigured`.
    let mut connection = Connection::open_in_memory().expect("memory");
    let error = write(&fence(), &mut connection, &lease).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn only_what_storage_knows_of_the_same_name_raises_the_floor() {
    let client = Client::builder()
        .store(Memory::new())
        .build()
        .await
        .unwrap();
    let lease = client.acquire("nightly").await.unwrap();
    let hour = 3_600_000_000;
    let mut stored = lease.pass().unwrap();
    stored.token = Token::new(lease.token().get() + hour).unwrap();
    stored.name = "weekly".try_into().unwrap();
    let fence = fence();
    let mut connection = storage(&fence);
    fence
        .begin(&mut connection, &stored)
        .unwrap()
        .commit()
        .unwrap();
    let error = write(&fence, &mut connection, &lease).unwrap_err();
    assert!(matches!(
        Refusal::of(&error),
        Some(Refusal::Conflict { .. })
    ));
    lease.release().await;
    let lease = client.acquire("nightly").await.unwrap();
    assert!(lease.token() < stored.token);
    lease.refused(&Refusal::Stale {
        stored: stored.token,
    });
    lease.release().await;
    let lease = client.acquire("nightly").await.unwrap();
    assert!(lease.token() > stored.token);
}

/// The store forgot its counter and its clock is behind, so that tokens fall; a fresh process has no memory of them.
#[tokio::test]
async fn a_stale_answer_lifts_the_next_grant_over_what_storage_has_seen() {
    let server = Setup::default().with_clock().start().await;
    let (fence, client) = (fence(), Client::open(server.url()).await.unwrap());
    let mut connection = storage(&fence);
    let lease = client.acquire("nightly").await.unwrap();
    write(&fence, &mut connection, &lease).unwrap();
    let seen = lease.token();
    lease.release().await;

    let () = server.told("FLUSHALL").await;
    server.step_clock(-3_600_000).await;
    let restarted = Client::open(server.url()).await.unwrap();
    let fallen = restarted.acquire("nightly").await.unwrap();
    assert!(fallen.token() < seen, "the token fell");
    let error = write(&fence, &mut connection, &fallen).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale);
    assert_eq!(Refusal::of(&error), Some(&Refusal::Stale { stored: seen }));
    fallen.release().await;

    let healed = restarted.acquire("nightly").await.unwrap();
    assert!(healed.token() > seen);
    write(&fence, &mut connection, &healed).unwrap();
}

/// A test wrote it, or a typing error: the operator deletes the row, and that has to be enough.
#[tokio::test]
async fn a_token_far_ahead_is_named_and_bars_no_client_once_its_row_is_gone() {
    let client = Client::builder().store(Memory::new()).build().await;
    let client = client.expect("built");
    let fence = fence();
    let mut connection = storage(&fence);
    for name in ["nightly", "weekly"] {
        let lease = client.acquire("nightly").await.expect("free");
        let mut planted = lease.pass().expect("held");
        planted.name = name.try_into().expect("valid");
        let day = 24 * 3_600_000_000;
        planted.token = Token::new(lease.token().get() + day + 60_000_000).expect("valid");
        let planting = fence.begin(&mut connection, &planted);
        planting.expect("raised").commit().expect("committed");
        let error = write(&fence, &mut connection, &lease).expect_err("superseded");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
        assert!(error.to_string().contains("ledger"), "{error}");
        assert!(Refusal::of(&error).is_some(), "{error:?}");
        lease.release().await;
        let deleted = connection.execute("DELETE FROM leasehold_fence", []);
        deleted.expect("deleted");
        let lease = client.acquire("nightly").await.expect("granted");
        write(&fence, &mut connection, &lease).expect("admitted");
        lease.release().await;
        connection
            .execute("DELETE FROM leasehold_fence", [])
            .expect("deleted");
    }
}
