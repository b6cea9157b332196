//! Leases in a real API server of Kubernetes.

mod exchanges;
mod neighbours;
mod objects;
mod outages;
mod refusals;
mod rights;
mod tool;
mod watching;
mod work;

use std::sync::Arc;

use leasehold::store::{self, Store};

use crate::conformance::check_at;
use crate::harness::kubernetes_server::Namespace;

async fn open(url: &str) -> Arc<dyn Store> {
    store::open(url).await.expect("a URL in order")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_keeps_the_contract() {
    check_at(Namespace::make().await.url()).await;
}
