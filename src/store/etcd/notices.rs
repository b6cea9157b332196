//! A watch of each awaited name: the servers report when its record is gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};

use super::Etcd;
use super::connection::Ended;
use super::messages::{WatchCreateRequest, WatchRequest, WatchResponse};
use crate::clock::{Boottime, Clock as _};
use crate::store::Topic;
use crate::store::kit::subscription::{Teller, Wanted};

/// The pause before a watch that ended is begun again.
const PAUSE: Duration = Duration::from_millis(500);
const PATH: &str = "/etcdserverpb.Watch/Watch";
/// Leaves out everything but deletions. A record that is renewed or evicted stays.
const WITHOUT_PUTS: i32 = 0;

/// Keeps a watch for each topic that is followed.
pub(super) async fn listen(leases: Arc<Etcd>, mut wanted: Wanted) {
    let mut watches = JoinSet::new();
    let mut running: BTreeMap<Topic, AbortHandle> = BTreeMap::new();
    loop {
        wanted.changed().await;
        let changed = wanted.take_changes();
        for topic in changed.old {
            if let Some(watch) = running.remove(&topic) {
                watch.abort();
            }
        }
        for topic in changed.new {
            let watching = watch(leases.clone(), topic.clone(), wanted.teller.clone());
            running.insert(topic, watches.spawn(watching));
        }
        while watches.try_join_next().is_some() {}
    }
}

/// Watches a name for as long as it is waited for.
async fn watch(leases: Arc<Etcd>, topic: Topic, teller: Teller) {
    loop {
        // What ends it is a server that goes, or is cut off: the next one begins with a notice.
        let _ = watch_once(&leases, &topic, &teller).await;
        Boottime.nap_until(Boottime.now().after(PAUSE)).await;
    }
}

async fn watch_once(leases: &Etcd, topic: &Topic, teller: &Teller) -> Result<(), Ended> {
    let create = WatchCreateRequest {
        key: leases.keys.held(topic.name().as_str()),
        filters: vec![WITHOUT_PUTS],
    };
    let create = Some(create);
    let mut answers = leases
        .connection
        .stream(PATH, &WatchRequest { create })
        .await?;
    while let Ok(Some(told)) = answers.next::<WatchResponse>().await
        && !told.canceled
    {
        if told.created || !told.events.is_empty() {
            teller.tell(topic.first_notice());
        }
    }
    leases.connection.leave(&answers);
    Ok(())
}
