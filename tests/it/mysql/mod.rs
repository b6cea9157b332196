//! The store in MySQL without a server of it. `faults::mysql` has one, and the contract.

use std::sync::Arc;

use leasehold::ErrorKind::{self, Unavailable};
use leasehold::store::{self, Sent, Store};

use crate::harness::asking::{chain, claim};
use crate::harness::fake_server::FakeServer;
use crate::harness::times::{LIMIT, LONG};

pub(crate) async fn open(url: &str) -> Arc<dyn Store> {
    store::open(url).await.expect("a URL in order")
}

/// Opens the store, claims the name `a` there, and expects an error of this kind with these words.
pub(crate) async fn refused(url: &str, kind: ErrorKind, words: &str) -> Sent {
    let store = open(url).await;
    let lease = claim("a", LONG);
    let failed = store.acquire(&lease, lease.ask, LIMIT).await;
    let failed = failed.expect_err(words);
    let said = chain(&failed.error);
    assert_eq!(failed.error.kind(), kind, "{words}: {said}");
    assert!(said.contains(words), "{words}: {said}");
    assert!(!said.contains("s3cret"), "{said}");
    failed.sent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_or_is_no_mysql_is_told_as_such() {
    let nobody = "mysql://me:s3cret@127.0.0.1:9/a";
    let sent = refused(nobody, Unavailable, "no server listens at 127.0.0.1:9").await;
    assert_eq!(sent, Sent::Never);
    let socket = "mysql://me:s3cret@/a?socket=/absent/s.sock";
    refused(socket, Unavailable, "there is no socket at /absent/s.sock").await;
    // One that says nothing of its own accord.
    let redis = FakeServer::answering(|_| (0, "+OK\r\n".into())).await;
    let redis = redis.host();
    let redis = format!("mysql://me:s3cret@{redis}/a");
    let sent = refused(&redis, Unavailable, "no answer from 127.0.0.1").await;
    assert_eq!(sent, Sent::Never);
}
