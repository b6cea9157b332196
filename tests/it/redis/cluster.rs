//! A cluster, through everything that moves slots and replaces primaries.

use std::sync::Arc;

use leasehold::store::conformance;
use leasehold::store::redis::Redis;

use crate::harness::redis_cluster::RedisCluster;

#[tokio::test]
async fn a_cluster_keeps_the_contract() {
    let cluster = RedisCluster::start().await;
    let store = Redis::open(&cluster.url()).expect("a URL in order");
    conformance::check(Arc::new(store)).await;
    for node in &cluster.nodes {
        node.assert_all_keys_run_out().await;
    }
}
