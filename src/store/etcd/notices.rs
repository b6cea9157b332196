//! A watch of each awaited name: the servers report when its record is gone.

use std::sync::Arc;

use super::Etcd;
use super::connection::Ended;
use super::messages::{WatchCreateRequest, WatchRequest, WatchResponse};
use crate::store::Topic;
use crate::store::kit::subscription::Teller;

const PATH: &str = "/etcdserverpb.Watch/Watch";
/// Leaves out everything but deletions. A record that is renewed or evicted stays.
const WITHOUT_PUTS: i32 = 0;

/// Watches the record of a name until its server goes, or is cut off.
pub(super) async fn watch(leases: Arc<Etcd>, topic: Topic, teller: Teller) -> Result<(), Ended> {
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
