//! A watch of each awaited object: the API server reports its changes.

use std::pin::pin;
use std::sync::Arc;

use futures_util::TryStreamExt as _;
use http::Request;
use kube_client::core::WatchEvent;

use super::Kubernetes;
use super::object::{LeaseObject, object_name};
use crate::store::kit::subscription::Teller;
use crate::store::record::Failure;
use crate::store::{HeldState, Topic};

/// The time after which the API server ends a watch.
const WATCH_SECONDS: u64 = 280;

/// Watches the object of a name until its server goes, or the time of the watch is over.
pub(super) async fn watch(
    leases: Arc<Kubernetes>,
    topic: Topic,
    teller: Teller,
) -> Result<(), Failure> {
    let key = topic.name().as_str();
    let path = format!(
        "{}?watch=1&timeoutSeconds={WATCH_SECONDS}&fieldSelector=metadata.name%3D{}",
        leases.path(""),
        object_name(key)
    );
    let request = Request::get(path)
        .body(Vec::new())
        .expect("a path in order");
    let client = leases.connection.client().await?;
    let events = client.request_events(request).await;
    let mut events = pin!(events.map_err(super::failure::of_silence)?);
    teller.tell(topic.first_notice());
    while let Ok(Some(event)) = events.try_next().await {
        match is_notice(event, key) {
            Some(true) => teller.tell(topic.first_notice()),
            Some(false) => {}
            None => return Ok(()),
        }
    }
    Ok(())
}

/// Returns whether an event of a watch can mean that this key was freed. `None`: the watch has ended.
fn is_notice(event: WatchEvent<LeaseObject>, key: &str) -> Option<bool> {
    match event {
        WatchEvent::Error(_) => None,
        WatchEvent::Deleted(_) => Some(true),
        WatchEvent::Bookmark(_) => Some(false),
        WatchEvent::Added(object) | WatchEvent::Modified(object) => {
            let seen = object.versioned(key).ok();
            let state = seen.and_then(|seen| seen.record.state);
            Some(state != Some(HeldState::Leased))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_but_a_renewal_can_mean_that_the_name_was_freed() {
        let event = |kind: &str, holder: &str| {
            let object = json!({
                "metadata": { "name": "a", "resourceVersion": "7" },
                "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15 },
            });
            let event = json!({ "type": kind, "object": object });
            serde_json::from_value(event).expect("an event")
        };
        for (kind, holder, expected) in [
            ("ADDED", "pod-1", Some(false)),
            ("MODIFIED", "pod-1", Some(false)),
            ("MODIFIED", "", Some(true)),
            ("DELETED", "pod-1", Some(true)),
        ] {
            assert_eq!(
                is_notice(event(kind, holder), "a"),
                expected,
                "{kind} {holder:?}"
            );
        }
        let ended = json!({ "type": "ERROR", "object": { "kind": "Status", "code": 410 } });
        let ended = serde_json::from_value(ended).expect("an event");
        assert_eq!(is_notice(ended, "a"), None);
    }
}
