//! Notices from servers that watch one key at a time: a watch of each topic that is followed.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};

use super::subscription::{Teller, Wanted};
use crate::clock::{Boottime, Clock as _};
use crate::store::Topic;

/// The pause before a watch that ended is begun again.
const PAUSE: Duration = Duration::from_millis(500);

/// Listens by a watch of each topic that is followed. A watch ends when its server goes, or ends it; the next one begins
/// with a notice.
pub(crate) async fn watch_each<F>(
    mut wanted: Wanted,
    watch: impl Fn(Topic, Teller) -> F + Clone + Send + 'static,
) where
    F: Future<Output = ()> + Send,
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
            let (watch, watched, teller) = (watch.clone(), topic.clone(), wanted.teller.clone());
            let watching = async move {
                loop {
                    watch(watched.clone(), teller.clone()).await;
                    Boottime.nap_until(Boottime.now().after(PAUSE)).await;
                }
            };
            running.insert(topic, watches.spawn(watching));
        }
        while watches.try_join_next().is_some() {}
    }
}
