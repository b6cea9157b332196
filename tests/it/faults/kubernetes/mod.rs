//! Leases in a real API server of Kubernetes.

use crate::conformance::check_at;
use crate::harness::kubernetes_server::Namespace;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_keeps_the_contract() {
    check_at(Namespace::make().await.url()).await;
}
