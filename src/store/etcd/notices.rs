//! A watch of each awaited name: the servers report when its record is gone.

use std::sync::Arc;

use super::Etcd;
use super::connection::Ended;
use super::messages::{WatchCreateRequest, WatchRequest, WatchResponse};
use crate::store::Topic;
use crate::store::kit::subscription::{Teller, Wanted};
use crate::store::kit::watches::watch_each;

const PATH: &str = "/etcdserverpb.Watch/Watch";
/// Leaves out everything but deletions. A record that is renewed or evicted stays.
const WITHOUT_PUTS: i32 = 0;

/// Watches the record of each name that is followed.
pub(super) async fn listen(leases: Arc<Etcd>, wanted: Wanted) {
    let watch = move |topic: Topic, teller: Teller| {
        let leases = leases.clone();
        async move {
            // Its server went, or was cut off.
            let _ = watch_once(&leases, &topic, &teller).await;
        }
    };
    watch_each(wanted, watch).await;
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
