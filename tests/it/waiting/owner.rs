//! Owners that acquire again what they hold, and several names at once.

use std::time::Duration;

use leasehold::{Attempt, Client, ErrorKind, LossReason, ReleaseOutcome};

use crate::harness::faulty_store::FaultyStore;
use crate::harness::leases::{client, take};
use crate::harness::times::TTL;
use crate::harness::wait::{soon, until_so};

async fn is_free(client: &Client, name: &str) -> bool {
    matches!(
        client.try_acquire(name).await.unwrap(),
        Attempt::Acquired(_)
    )
}

#[tokio::test]
async fn an_owner_acquires_again_what_it_holds_without_asking_the_store() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let owner = client.owner();
    let first = owner.acquire("a").await.unwrap();
    let claims = store.claims();
    let second = owner.clone().acquire("a").await.unwrap();
    assert_eq!(second.token(), first.token());
    assert_eq!(second.holder(), first.holder());
    assert_eq!(store.claims(), claims);
    assert_eq!(first.release().await, None);
    assert!(!is_free(&client, "a").await);
    second.check().unwrap();
    assert_eq!(second.release().await, Some(ReleaseOutcome::Released));
    assert!(is_free(&client, "a").await);
}

#[tokio::test]
async fn the_last_hold_that_is_dropped_frees_the_name() {
    let store = FaultyStore::new();
    let owner = client(&store).await.owner();
    let first = owner.acquire("a").await.unwrap();
    let second = owner.acquire("a").await.unwrap();
    let token = first.token();
    drop((first, second));
    until_so("the release", async || store.held("a").await.is_none()).await;
    let again = owner.acquire("a").await.unwrap();
    assert!(again.token() > token);
}

#[tokio::test]
async fn two_owners_of_one_client_are_rivals() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let (one, other) = (client.owner(), client.owner());
    let hold = one.acquire("a").await.unwrap();
    let error = other.acquire_within("a", TTL / 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    drop(hold);
    drop(soon(other.acquire("a")).await.unwrap());
}

#[tokio::test]
async fn two_tasks_of_an_owner_that_wait_share_what_one_of_them_gets() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let owner = client.owner();
    let lease = take(&client, "a").await;
    let wait = || {
        let owner = owner.clone();
        tokio::spawn(async move { owner.acquire("a").await.unwrap() })
    };
    let (one, other) = (wait(), wait());
    let error = owner.acquire_within("a", TTL / 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    drop(lease);
    let (one, other) = (soon(one).await.unwrap(), soon(other).await.unwrap());
    assert_eq!(one.token(), other.token());
}

#[tokio::test]
async fn a_lost_lease_is_not_acquired_again_until_its_holds_are_gone() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let owner = client.owner();
    let hold = owner.acquire("a").await.unwrap();
    leasehold::store::Store::evict(&store, hold.name(), leasehold::store::Eviction::Now, TTL)
        .await
        .unwrap();
    assert_eq!(soon(hold.lost()).await, LossReason::Refused);
    let error = owner.acquire("a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    drop(hold);
    let again = owner.acquire("a").await.unwrap();
    again.check().unwrap();
}

#[tokio::test]
async fn several_names_come_in_byte_order_and_each_once() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let leases = client.acquire_all(["b", "a", "b", "B"]).await.unwrap();
    let names: Vec<_> = leases.iter().map(|lease| lease.name().as_str()).collect();
    assert_eq!(names, ["B", "a", "b"]);
    for lease in leases.iter() {
        lease.check().unwrap();
    }
}

#[tokio::test]
async fn one_of_several_names_can_be_released_alone() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let mut shares = client.acquire_all(["a", "b"]).await.unwrap().into_iter();
    shares.next().unwrap().release().await;
    assert!(store.held("a").await.is_none());
    shares.next().unwrap().check().unwrap();
}

#[tokio::test]
async fn when_one_of_several_names_is_not_to_be_had_none_is_kept() {
    let store = FaultyStore::new();
    let (other, client) = (client(&store).await, client(&store).await);
    let lease = take(&other, "c").await;
    let taking = client.acquire_all_within(["a", "b", "c", "d"], TTL / 4);
    let error = taking.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    for name in ["a", "b", "d"] {
        until_so("the partial grants to go", async || {
            store.held(name).await.is_none()
        })
        .await;
    }
    lease.check().unwrap();
}

#[tokio::test]
async fn a_loss_while_the_others_are_waited_for_ends_the_wait() {
    let store = FaultyStore::new();
    let (other, client) = (client(&store).await, client(&store).await);
    let _lease = take(&other, "b").await;
    let taking = tokio::spawn(async move { client.acquire_all(["a", "b"]).await });
    until_so("the first name", async || store.held("a").await.is_some()).await;
    let name = leasehold::Name::new("a").unwrap();
    let evicting = leasehold::store::Eviction::Now;
    leasehold::store::Store::evict(&store, &name, evicting, TTL)
        .await
        .unwrap();
    let error = soon(taking).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn an_owner_is_refused_a_name_before_one_that_it_holds() {
    let store = FaultyStore::new();
    let owner = client(&store).await.owner();
    let _held = owner.acquire_all(["b", "d"]).await.unwrap();
    let claims = store.claims();
    let error = owner.acquire_all(["e", "c"]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let message = error.to_string();
    assert!(
        message.contains("name=c") && message.contains("held=d"),
        "{message}"
    );
    assert_eq!(store.claims(), claims);
    // What it holds already, and what comes after, it may take.
    let more = owner.acquire_all(["b", "d", "e"]).await.unwrap();
    assert_eq!(more.len(), 3);
}

#[tokio::test]
async fn two_that_take_the_same_names_in_any_order_do_not_wait_for_each_other() {
    let store = FaultyStore::new();
    let mut tasks = tokio::task::JoinSet::new();
    for names in [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]] {
        let client = client(&store).await;
        tasks.spawn(async move {
            for _ in 0..20 {
                drop(client.acquire_all(names).await.unwrap());
                tokio::time::sleep(Duration::from_micros(50)).await;
            }
        });
    }
    soon(tasks.join_all()).await;
}

#[tokio::test]
async fn a_set_is_checked_and_lost_and_released_as_one() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let set = client.acquire_all(["a", "b", "c"]).await.unwrap();
    set.check().unwrap();
    let passes = set.passes().unwrap();
    let names: Vec<_> = passes.iter().map(|pass| pass.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let evicting = leasehold::store::Eviction::Now;
    leasehold::store::Store::evict(&store, set[1].name(), evicting, TTL)
        .await
        .unwrap();
    let error = soon(set.lost()).await;
    assert!(error.to_string().contains("name=b"), "{error}");
    assert_eq!(set.check().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(set.passes().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(set.release().await, leasehold::ReleaseOutcome::AlreadyLost);
    for name in ["a", "b", "c"] {
        assert!(store.held(name).await.is_none(), "{name}");
    }
}

/// By a permit of its own it would wait for the writer, which waits for the outer share.
#[tokio::test]
async fn a_share_within_a_share_of_one_owner_is_the_same_while_a_writer_waits() {
    let store = FaultyStore::new();
    let (client, other) = (client(&store).await, client(&store).await);
    let owner = client.owner();
    let outer = owner.acquire_shared("config").await.unwrap();
    let writing = tokio::spawn(other.exclusive("config").acquire());
    until_so("the writer to have the door", async || {
        store.held("config").await.is_some()
    })
    .await;
    let inner = soon(owner.acquire_shared("config")).await.unwrap();
    assert_eq!(inner.name(), outer.name());
    assert_eq!(inner.token(), outer.token());
    let another = client.owner();
    let stranger = tokio::spawn(async move { another.acquire_shared("config").await });
    assert_eq!(outer.release().await, None);
    inner.check().unwrap();
    assert!(!writing.is_finished() && !stranger.is_finished());
    assert_eq!(inner.release().await, Some(ReleaseOutcome::Released));
    let writer = soon(writing).await.unwrap().unwrap();
    assert!(!stranger.is_finished(), "a reader beside a writer");
    writer.release().await;
    drop(soon(stranger).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_share_of_a_name_that_its_owner_has_is_refused() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let owner = client.owner();
    let _whole = owner.acquire("b").await.unwrap();
    let refused = owner.acquire_shared("b").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert!(refused.to_string().contains("name=b"), "{refused}");
    let _share = owner.acquire_shared("a").await.unwrap();
    let early = owner.acquire_all(["a", "b"]).await.unwrap_err();
    assert_eq!(
        early.kind(),
        ErrorKind::Invalid,
        "a share of it is not the name"
    );
}
