//! Objects that the fenced one names.

use std::sync::Arc;
use std::time::Duration;

use leasehold::fence::object_store::Fence;
use leasehold::{ErrorKind, fence::Pass};
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use object_store::path::Path;

use super::faulty::{Fault, Faulty};
use super::fence;
use crate::fence::pass;
use crate::harness::wait::until_so;

/// The paths that a content names, one a line.
fn named(content: &[u8]) -> Vec<Path> {
    let text = std::str::from_utf8(content).expect("text");
    let paths = text.lines().map(|line| Path::parse(line).expect("a path"));
    paths.collect()
}

async fn put(store: &InMemory, fence: &Fence, pass: &Pass, name: &str) -> Path {
    let path = fence.object(pass, name).expect("a path");
    store.put(&path, name.to_owned().into()).await.expect("put");
    path
}

async fn is_there(store: &InMemory, path: &Path) -> bool {
    store.head(path).await.is_ok()
}

#[tokio::test]
async fn each_holder_has_paths_of_its_own_that_are_listed_by_token() {
    let fence = fence(&Arc::default());
    let paths = [pass(1, 9), pass(2, 9), pass(1, 10), pass(1, 1 << 52)];
    let paths = paths.map(|pass| fence.object(&pass, "a/part %0").expect("a path"));
    assert!(paths.is_sorted(), "{paths:?}");
    let mut ones = paths.to_vec();
    ones.dedup();
    assert_eq!(ones.len(), paths.len());
    let error = fence.object(&pass(1, 1), "").expect_err("no name");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    for path in &paths {
        assert!(path.as_ref().starts_with("ledger/total.parts/"), "{path}");
        assert!(path.as_ref().ends_with("/a/part %250"), "{path}");
    }
}

#[tokio::test]
async fn a_sweep_removes_what_earlier_holders_left_and_nothing_that_can_be_committed() {
    let store = Arc::new(InMemory::new());
    let fence = fence(&store);
    let (older, holder, next) = (pass(1, 1), pass(2, 2), pass(3, 3));
    fence.raise(&older).await.expect("raised");
    let kept = put(&store, &fence, &older, "named").await;
    let left = put(&store, &fence, &older, "left").await;
    let own = put(&store, &fence, &holder, "not yet named").await;
    let ahead = put(&store, &fence, &next, "ahead of its raise").await;
    let strange = Path::from("ledger/total.parts/notes/strange");
    store.put(&strange, "a".into()).await.expect("put");
    let elsewhere = Path::from("ledger/totals");
    store.put(&elsewhere, "a".into()).await.expect("put");

    fence
        .commit(&older, |_| kept.to_string())
        .await
        .expect("named");
    assert_eq!(
        sweep(&fence, Duration::ZERO).await,
        [],
        "the holder may still commit"
    );

    fence.raise(&holder).await.expect("raised");
    assert_eq!(
        sweep(&fence, Duration::from_secs(60)).await,
        [],
        "readers are at work"
    );
    assert_eq!(
        sweep(&fence, Duration::ZERO).await,
        std::slice::from_ref(&left)
    );
    assert!(!is_there(&store, &left).await);
    for path in [&kept, &own, &ahead, &strange, &elsewhere, fence.path()] {
        assert!(is_there(&store, path).await, "{path}");
    }
}

async fn sweep(fence: &Fence, older_than: Duration) -> Vec<Path> {
    fence.sweep(older_than, named).await.expect("swept")
}

#[tokio::test]
async fn a_sweep_counts_the_age_up_to_the_last_write_by_the_stores_clock() {
    let store = Arc::new(InMemory::new());
    let fence = fence(&store);
    let (older, holder) = (pass(1, 1), pass(2, 2));
    fence.raise(&older).await.expect("raised");
    let left = put(&store, &fence, &older, "left").await;
    let age = Duration::from_millis(50);
    // However late it is called, the last write is what counts.
    fence.raise(&holder).await.expect("raised");
    until_so("a later write", async || {
        fence
            .commit(&holder, <[u8]>::to_vec)
            .await
            .expect("written");
        let removed = sweep(&fence, age).await;
        assert!(removed.is_empty() || removed == [left.clone()]);
        !is_there(&store, &left).await
    })
    .await;
}

/// The holder takes over what its predecessor left unnamed.
#[tokio::test]
async fn a_sweep_beside_a_commit_removes_nothing_that_the_commit_names() {
    let store = Faulty::with(Fault::None);
    let fence = Fence::new(store.clone(), "ledger/total").expect("valid");
    let (older, holder) = (pass(1, 1), pass(2, 2));
    fence.raise(&older).await.expect("raised");
    let left = put(&store.inner, &fence, &older, "left").await;
    fence.raise(&holder).await.expect("raised");
    let (other, taken_over) = (fence.clone(), left.clone());
    store.at_the_next_list(async move {
        let named = other.commit(&holder, |_| taken_over.to_string()).await;
        named.expect("written");
    });
    assert_eq!(sweep(&fence, Duration::ZERO).await, []);
    assert!(is_there(&store.inner, &left).await);
}

#[tokio::test]
async fn a_sweep_without_a_fenced_object_removes_nothing() {
    let store = Arc::new(InMemory::new());
    let fence = fence(&store);
    let left = put(&store, &fence, &pass(1, 1), "left").await;
    assert_eq!(sweep(&fence, Duration::ZERO).await, []);
    assert!(is_there(&store, &left).await);
}
