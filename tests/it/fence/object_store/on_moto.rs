//! On a real server. Its conformance takes a minute, and is in `faults::object_store`.

use std::sync::Arc;

use leasehold::fence::object_store::Fence;
use leasehold::store::memory::Memory;
use leasehold::{Client, ErrorKind};
use object_store::{ObjectStore, ObjectStoreExt};

use super::{one_more, tag_alone};
use crate::fence::pass;
use crate::harness::bucket_server::{BucketServer, bucket};

async fn moto_bucket() -> Arc<dyn ObjectStore> {
    BucketServer::shared().await.bucket()
}

#[tokio::test]
async fn a_token_in_the_metadata_does_not_fence_and_the_guard_does() {
    tag_alone::compare("moto", moto_bucket().await).await;
}

#[tokio::test]
async fn a_server_that_compares_is_found_fit() {
    Fence::try_out(&*moto_bucket().await).await.expect("fit");
}

#[tokio::test]
async fn tasks_with_one_pass_lose_no_commit() {
    let store = moto_bucket().await;
    let path = format!("many/{:x}", fastrand::u64(..));
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let fence = Fence::new(store.clone(), path.clone()).expect("valid");
        writers.spawn(async move {
            for _ in 0..5 {
                fence.commit(&pass(1, 1), one_more).await.expect("written");
            }
        });
    }
    writers.join_all().await;
    let fence = Fence::new(store, path).expect("valid");
    let object = fence.read().await.expect("read").expect("written");
    assert_eq!(object.content, "20");
}

#[tokio::test]
async fn a_missing_bucket_is_named() {
    let url = BucketServer::shared().await.url() + "-missing";
    let fence = Fence::new(bucket(&url), "ledger").expect("valid");
    let error = fence.raise(&pass(1, 1)).await.expect_err("no bucket");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(error.to_string().contains("bucket is missing"), "{error}");
}

/// The whole way of a batch job: parts first, then the object that names them.
#[tokio::test]
async fn a_successor_sees_the_parts_that_were_committed_and_no_others() {
    let client = Client::builder()
        .store(Memory::new())
        .build()
        .await
        .unwrap();
    let store = moto_bucket().await;
    let path = format!("report/{:x}", fastrand::u64(..));
    let fence = || Fence::new(store.clone(), path.clone()).expect("valid");
    for turn in ["first", "second"] {
        let lease = client.acquire("report").await.unwrap();
        let fence = fence();
        let before = fence.raise(&lease).await.unwrap();
        let part = fence.object(&lease, turn).unwrap();
        store.put(&part, turn.into()).await.unwrap();
        assert_eq!(fence.read().await.unwrap().unwrap().content, before.content);
        fence.commit(&lease, |_| part.to_string()).await.unwrap();
        lease.release().await;
    }
    let named = fence().read().await.unwrap().unwrap().content;
    let part = String::from_utf8(named.to_vec()).unwrap();
    let part = object_store::path::Path::parse(part).unwrap();
    let bytes = store.get(&part).await.unwrap().bytes().await.unwrap();
    assert_eq!(bytes, "second");
}
