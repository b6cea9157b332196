//! The store in MySQL without a server of it. `faults::mysql` has one, and the contract.

use std::sync::Arc;

use leasehold::ErrorKind::Unavailable;
use leasehold::store::{self, Sent, Store};

use crate::harness::asking::refused;
use crate::harness::fake_server::FakeServer;

pub(crate) async fn open(url: &str) -> Arc<dyn Store> {
    store::open(url).await.expect("a URL in order")
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
