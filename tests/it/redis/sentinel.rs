//! The master of a group that Sentinels watch, through everything that makes another server the master.

use std::sync::Arc;

use leasehold::store::conformance;
use leasehold::store::redis::Redis;

use crate::harness::redis_group::RedisGroup;

#[tokio::test]
async fn sentinels_keep_the_contract() {
    let group = RedisGroup::start().await;
    let store = Redis::open(&group.url()).expect("a URL in order");
    conformance::check(Arc::new(store)).await;
    group.servers[0].assert_all_keys_run_out().await;
}
