//! Subscriptions whose server fails or is demoted.

use std::time::Duration;

use leasehold::Name;
use leasehold::store::{Notice, Notices, Store, Topic};

use crate::harness::asking::{asked, claim};
use crate::harness::redis_cluster::RedisCluster;
use crate::harness::redis_group::RedisGroup;
use crate::harness::redis_server::RedisServer;
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{now, soon, until, until_so};
use crate::redis::open;

/// A listener that waited for its pulse instead of the new map would take ten seconds. On a quiet machine it takes less
/// than one.
const AGAIN_WITHIN: Duration = Duration::from_secs(5);

/// Follows a name, until the server knows.
async fn follow_freed(store: &dyn Store, name: &Name) -> Box<dyn Notices> {
    let notices = store.notices().await.expect("it can subscribe");
    let notices = notices.expect("this store has notices");
    notices.follow(&Topic::Freed(name.clone()));
    assert_eq!(soon(notices.next()).await, Notice::Freed(name.clone()));
    notices
}

/// Notices of this name come again soon after a call for a name of the server that failed succeeds, which is when the
/// store knows the new one.
async fn notices_come_again(
    store: &dyn Store,
    notices: &dyn Notices,
    name: &Name,
    on_failed: &str,
) {
    let of_failed = claim(on_failed, LONG);
    until_so("a call succeeds at the new server", async || {
        asked(store, &of_failed, LIMIT).await.is_ok()
    })
    .await;
    let known_at = now();
    assert_eq!(soon(notices.next()).await, Notice::Reconnected);
    let took = now().since(known_at);
    eprintln!("listener: connected again {took:?} after the new map");
    assert!(took < AGAIN_WITHIN, "{took:?}");
    until("a notice", async || {
        let claim = claim(name.as_str(), LONG);
        let _ = asked(store, &claim, LIMIT).await;
        let _ = store.release(name, claim.holder, None, LIMIT).await;
        let notice = tokio::time::timeout(Duration::from_secs(1), notices.next()).await;
        (notice.ok()? == Notice::Freed(name.clone())).then_some(())
    })
    .await;
}

fn followed() -> Name {
    Name::new("followed").expect("a valid name")
}

#[tokio::test]
async fn notices_come_again_after_the_master_is_stopped() {
    let group = RedisGroup::start().await;
    let store = open(&group.url()).await;
    let notices = follow_freed(&*store, &followed()).await;
    group.servers[0].pause();
    group.master_after(0).await;
    notices_come_again(&*store, &*notices, &followed(), "other").await;
}

#[tokio::test]
async fn notices_come_again_after_the_master_is_demoted() {
    let group = RedisGroup::start().await;
    let store = open(&group.url()).await;
    let notices = follow_freed(&*store, &followed()).await;
    group.fail_over().await;
    group.master_after(0).await;
    notices_come_again(&*store, &*notices, &followed(), "other").await;
}

/// Returns the index of the node to which the subscription was made.
async fn listened_to(nodes: &[RedisServer]) -> usize {
    for (index, node) in nodes.iter().enumerate() {
        let listeners: String = node.told("CLIENT LIST TYPE pubsub").await;
        if !listeners.trim().is_empty() {
            return index;
        }
    }
    panic!("no node has a listener");
}

#[tokio::test]
async fn notices_come_again_after_the_node_that_was_listened_to_is_stopped_or_demoted() {
    for is_stopped in [true, false] {
        let cluster = RedisCluster::with_replicas().await;
        let store = open(&cluster.url()).await;
        let notices = follow_freed(&*store, &followed()).await;
        let node = listened_to(&cluster.nodes[..3]).await;
        let of_node = cluster.name_on(node).await;
        if is_stopped {
            cluster.nodes[node].pause();
        } else {
            let () = cluster.nodes[node + 3].told("CLUSTER FAILOVER").await;
        }
        cluster.promoted(node + 3).await;
        notices_come_again(&*store, &*notices, &followed(), &of_node).await;
    }
}
