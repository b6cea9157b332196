//! Lists of a cluster whose slots move meanwhile.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join;
use leasehold::store::Store;

use crate::harness::asking::{claim, granted};
use crate::harness::redis_cluster::RedisCluster;
use crate::harness::times::{LIMIT, LONG};
use crate::redis::open;

const NAMES: usize = 60;

/// Lists until this is set, and once more. Returns how often all names were listed.
async fn lists_until(store: &dyn Store, is_over: &AtomicBool) -> usize {
    let mut lists = 0;
    loop {
        let is_last = is_over.load(Ordering::SeqCst);
        // Names whose slot is half moved cannot be read for a moment. A list fails then rather than leave them out.
        if let Ok(listed) = store.list("list-", LIMIT).await {
            let names: BTreeSet<_> = listed.iter().map(|held| &held.name).collect();
            assert_eq!((names.len(), listed.len()), (NAMES, NAMES), "{names:?}");
            lists += 1;
        }
        if is_last {
            return lists;
        }
    }
}

#[tokio::test]
async fn a_list_has_each_held_name_once_while_slots_move_either_way() {
    let cluster = RedisCluster::start().await;
    let store = open(&cluster.url()).await;
    let names: Vec<_> = (0..NAMES).map(|index| format!("list-{index}")).collect();
    for name in &names {
        granted(&*store, &claim(name, LONG)).await;
    }
    let slots: BTreeSet<_> = cluster.slots_of(names).await.into_values().collect();
    let of_last = |slot: &u16| *slot >= 10_923;
    let slots: Vec<_> = slots.into_iter().filter(of_last).collect();
    assert!(slots.len() > NAMES / 6, "{slots:?}");
    // The nodes are scanned one after the other: one of these ways a name moves to where the scan has been.
    for (from, to) in [(2, 0), (0, 2)] {
        let is_over = AtomicBool::new(false);
        let moving = async {
            cluster.move_slots(&slots, from, to).await;
            is_over.store(true, Ordering::SeqCst);
        };
        let (lists, ()) = join(lists_until(&*store, &is_over), moving).await;
        assert!(lists > 1, "{lists}");
    }
}
