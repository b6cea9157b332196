//! Notices from servers that watch one key at a time: a watch of each topic that is followed.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};

use super::subscription::{Subscription, Teller, Wanted};
use crate::clock::{Boottime, Clock as _};
use crate::store::Topic;

/// The pause before a watch that ended is begun again.
const PAUSE: Duration = Duration::from_millis(500);

/// Begins a subscription that keeps a `watch` of each topic that is followed. A watch ends when its server goes, or ends
/// it; the next one begins with a notice.
pub(crate) async fn subscribe<S, F>(
    store: Arc<S>,
    watch: impl Fn(Arc<S>, Topic, Teller) -> F + Copy + Send + 'static,
) -> Subscription
where
    S: Send + Sync + 'static,
    F: Future + Send + 'static,
{
    let listen = async |wanted| {
        Ok::<_, Infallible>(tokio::spawn(watch_each(store, wanted, watch)).abort_handle())
    };
    let Ok(subscription) = Subscription::start(listen).await;
    subscription
}

async fn watch_each<S, F>(
    store: Arc<S>,
    mut wanted: Wanted,
    watch: impl Fn(Arc<S>, Topic, Teller) -> F + Copy + Send + 'static,
) where
    S: Send + Sync + 'static,
    F: Future + Send + 'static,
{
    let mut watches = JoinSet::new();
    let mut running: BTreeMap<Topic, AbortHandle> = BTreeMap::new();
    loop {
        wanted.changed().await;
        let changed = wanted.take_changes();
        for topic in changed.old {
            if let Some(watching) = running.remove(&topic) {
                watching.abort();
            }
        }
        for topic in changed.new {
            let (store, watched, teller) = (store.clone(), topic.clone(), wanted.teller.clone());
            let watching = async move {
                loop {
                    watch(store.clone(), watched.clone(), teller.clone()).await;
                    Boottime.nap_until(Boottime.now().after(PAUSE)).await;
                }
            };
            running.insert(topic, watches.spawn(watching));
        }
        while watches.try_join_next().is_some() {}
    }
}
