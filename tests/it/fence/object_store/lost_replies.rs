//! The put was carried out, and its answer never came.

use std::sync::Arc;

use leasehold::ErrorKind;
use leasehold::fence::object_store::Fence;
use object_store::ObjectStore;

use super::faulty::{Fault, Faulty};
use super::{fence, one_more};
use crate::fence::pass;
use crate::harness::bucket_server::{self, BucketServer};
use crate::harness::relay::{Passing, Relay};
use crate::harness::wait::{soon, until_so};

const PATH: &str = "ledger/total";

/// A store whose object has the content 1, and a fence that remembers it.
async fn begun() -> (Arc<Faulty>, Fence) {
    let store = Faulty::with(Fault::None);
    let fence = Fence::new(store.clone(), PATH).expect("valid");
    fence.commit(&pass(1, 1), one_more).await.expect("written");
    (store, fence)
}

async fn total(fence: &Fence) -> String {
    let object = fence.read().await.expect("read").expect("written");
    String::from_utf8(object.content.to_vec()).expect("text")
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_found_and_not_repeated() {
    let (store, fence) = begun().await;
    store.lose_answer(PATH, async {});
    let written = fence.commit(&pass(1, 1), one_more).await;
    assert_eq!(written.expect("it was carried out").content, "2");
    assert_eq!(total(&fence).await, "2");
    assert_eq!(
        fence.commit(&pass(1, 1), one_more).await.unwrap().content,
        "3"
    );
}

#[tokio::test]
async fn a_commit_that_never_arrived_is_repeated_once() {
    let (store, fence) = begun().await;
    store.lose_request();
    let written = fence.commit(&pass(1, 1), one_more).await;
    assert_eq!(written.expect("repeated").content, "2");
    assert_eq!(total(&fence).await, "2");
}

/// It was carried out before the raise, so it is not refused: the successor has read it.
#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_found_under_a_successors_raise_and_commit() {
    for commits in [0, 1, 7] {
        let (store, fence) = begun().await;
        let successor = super::fence(&store.inner);
        store.lose_answer(PATH, async move {
            successor.raise(&pass(2, 2)).await.expect("raised");
            for _ in 0..commits {
                successor
                    .commit(&pass(2, 2), one_more)
                    .await
                    .expect("written");
            }
        });
        let written = fence.commit(&pass(1, 1), one_more).await;
        written.expect("it was carried out");
        assert_eq!(total(&fence).await, (2 + commits).to_string());
        let error = fence.commit(&pass(1, 1), one_more).await;
        assert_eq!(error.expect_err("stale").kind(), ErrorKind::Stale);
    }
}

#[tokio::test]
async fn a_commit_that_cannot_be_found_any_more_is_unknown_and_not_stale() {
    let (store, fence) = begun().await;
    let successor = super::fence(&store.inner);
    store.lose_answer(PATH, async move {
        for _ in 0..9 {
            successor
                .commit(&pass(2, 2), one_more)
                .await
                .expect("written");
        }
    });
    let error = fence.commit(&pass(1, 1), one_more).await;
    let error = error.expect_err("unknown");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:#}");
}

#[tokio::test]
async fn a_commit_that_never_arrived_before_a_raise_is_refused() {
    let (store, fence) = begun().await;
    super::fence(&store.inner)
        .raise(&pass(2, 2))
        .await
        .expect("raised");
    store.lose_request();
    let error = fence.commit(&pass(1, 1), one_more).await;
    assert_eq!(error.expect_err("stale").kind(), ErrorKind::Stale);
    assert_eq!(total(&fence).await, "1");
}

#[tokio::test]
async fn a_raise_whose_answer_was_lost_is_found() {
    for is_new in [true, false] {
        let store = Faulty::with(Fault::None);
        if !is_new {
            fence(&store.inner)
                .raise(&pass(1, 1))
                .await
                .expect("raised");
        }
        let fence = Fence::new(store.clone(), PATH).expect("valid");
        store.lose_answer(PATH, async {});
        let raised = fence.raise(&pass(2, 2)).await.expect("raised");
        assert_eq!(raised.pass, pass(2, 2));
    }
}

/// Through the network: the server carries the put out, and the connection ends before the answer. With the crate's own
/// retries, which send the put again and are refused by what they wrote themselves, and without them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_to_a_server_whose_connection_ends_before_the_answer_counts_once() {
    let server = BucketServer::shared().await;
    let relay = Relay::before_port(server.port()).await;
    let url = bucket_server::url(relay.port());
    let clients = [
        bucket_server::bucket(&url),
        bucket_server::repeating_bucket(&url),
    ];
    for client in clients {
        let path = format!("lost/{:x}", fastrand::u64(..));
        let direct: Arc<dyn ObjectStore> = server.bucket();
        let direct = Fence::new(direct, path.clone()).expect("valid");
        let fence = Fence::new(client, path).expect("valid");
        fence.commit(&pass(1, 1), one_more).await.expect("written");
        relay.pass(Passing::Requests);
        let committing = {
            let fence = fence.clone();
            tokio::spawn(async move { fence.commit(&pass(1, 1), one_more).await })
        };
        until_so("the server to carry it out", async || {
            total(&direct).await == "2"
        })
        .await;
        relay.pass(Passing::All);
        relay.cut();
        let written = soon(committing).await.expect("no panic");
        assert_eq!(written.expect("found").content, "2");
        assert_eq!(total(&direct).await, "2");
    }
}
