//! A watch of each object that is waited for: the API server tells when it changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::AsyncBufReadExt as _;
use http::Request;
use serde::Deserialize;
use tokio::task::{AbortHandle, JoinSet};

use super::Kubernetes;
use super::object::{Object, object_name};
use crate::clock::{Boottime, Clock as _};
use crate::store::kit::subscription::{Teller, Wanted};
use crate::store::record::Failure;
use crate::store::{HeldState, Topic};

/// The pause before a watch that ended is begun again.
const PAUSE: Duration = Duration::from_millis(500);
/// The time after which the API server ends a watch.
const WATCH_SECONDS: u64 = 280;

/// A line of a watch.
#[derive(Debug, Deserialize)]
struct Event {
    object: serde_json::Value,
    r#type: String,
}

/// Keeps a watch for each topic that is followed.
pub(super) async fn listen(leases: Arc<Kubernetes>, mut wanted: Wanted) {
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

/// Watches an object for as long as it is waited for.
async fn watch(leases: Arc<Kubernetes>, topic: Topic, teller: Teller) {
    loop {
        // What ends it is a server that goes, or the end of its time: the next one begins with a hint.
        let _ = watch_once(&leases, &topic, &teller).await;
        Boottime.nap_until(Boottime.now().after(PAUSE)).await;
    }
}

async fn watch_once(leases: &Kubernetes, topic: &Topic, teller: &Teller) -> Result<(), Failure> {
    let key = topic.name().as_str();
    let path = format!(
        "{}?watch=1&timeoutSeconds={WATCH_SECONDS}&fieldSelector=metadata.name%3D{}",
        leases.path(""),
        object_name(key)
    );
    let request = Request::get(path)
        .body(Vec::new())
        .expect("a path in order");
    let client = leases.connection.client()?;
    let stream = client.request_stream(request).await;
    let stream = stream.map_err(super::failure::of_silence)?;
    teller.tell(topic.first_notice());
    let mut lines = stream.lines();
    while let Some(Ok(line)) = futures_util::StreamExt::next(&mut lines).await {
        let Ok(event) = serde_json::from_str::<Event>(&line) else {
            return Ok(());
        };
        if event.r#type == "ERROR" {
            return Ok(());
        }
        let object: Option<Object> = serde_json::from_value(event.object).ok();
        let record = object.and_then(|object| object.versioned(key).ok());
        let is_leased = record.is_some_and(|seen| seen.record.state == Some(HeldState::Leased));
        if event.r#type == "DELETED" || !is_leased {
            teller.tell(topic.first_notice());
        }
    }
    Ok(())
}
