//! Notices from watches: one task for each followed topic.
//!
//! ```text
//!   read the name --> watch the few nodes whose end matters --> tell what is new --> wait for a watch
//! ```
//!
//! A watch is for the *children* of a node, and ends with the node. A client without a place in the queue watches those
//! of the name. One in the queue watches the two places before its own, and only the first two clients watch the node
//! of the lease, so a release wakes few clients, however many wait; such nodes never have children, and renewals, which
//! write the data of the lease, fire no watch.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Zookeeper;
use super::connection::session::Watches;
use super::failure::Failure;
use super::protocol::reading::NameReading;
use super::protocol::tree::{Children, Kind, token_node};
use crate::store::kit::budget::Budget;
use crate::store::kit::subscription::{Subscription, Teller, Wanted};
use crate::store::{Notice, Topic};

/// Time limit for one request of a subscription.
const LIMIT: Duration = Duration::from_secs(2);
/// The pause before a name without a node is read again, or after a failure.
const PAUSE: Duration = Duration::from_millis(200);

/// State that the tasks of a subscription share.
struct Follower {
    /// A handle on the session with the client's places.
    waiting: Zookeeper,
    teller: Teller,
}

/// The state that one task keeps of its topic.
struct FollowedTopic {
    topic: Topic,
    /// The latest change that was seen. It is marked as changed once the client has joined the queue.
    seen: watch::Receiver<i64>,
    /// The session of the last read, and the node that its notice was about, if there was one to give. `None` before
    /// the first read.
    told: Option<(i64, Option<String>)>,
    watches: Watches,
}

/// The state of a topic that a reading of a name shows.
#[derive(Debug, Default, PartialEq, Eq)]
struct View {
    /// The notice to give, and the node that it is about: it is new if it is about another one than the last notice.
    notice: Option<(String, Notice)>,
    /// The other nodes whose end would change it.
    watched: Vec<String>,
}

/// Begins to follow topics, through the session of this handle. The tasks are on the thread that has the session, so
/// that no read of a name wakes another client.
pub(super) async fn subscribe(waiting: Zookeeper) -> Result<Subscription, Failure> {
    let runtime = waiting.shared.driver.handle()?;
    let started = Subscription::start(async |wanted| {
        let follower = Follower {
            waiting,
            teller: wanted.teller.clone(),
        };
        Ok(runtime
            .spawn(listen(Arc::new(follower), wanted))
            .abort_handle())
    });
    started.await
}

/// Keeps a task for each topic that is followed. They end with this one.
async fn listen(follower: Arc<Follower>, mut wanted: Wanted) {
    // A task ends when its set is dropped.
    let mut followed = HashMap::new();
    loop {
        wanted.changed().await;
        let changed = wanted.take_changes();
        for topic in changed.new {
            let mut task = JoinSet::new();
            task.spawn(follow(follower.clone(), topic.clone()));
            followed.insert(topic, task);
        }
        for topic in changed.old {
            followed.remove(&topic);
        }
    }
}

/// Follows one topic until the task is aborted.
async fn follow(follower: Arc<Follower>, topic: Topic) {
    let mut followed = FollowedTopic {
        seen: (follower.waiting.shared.remembered.lock()).follow(topic.name()),
        topic,
        told: None,
        watches: Watches::new(),
    };
    loop {
        let is_watched = match follower.read(&mut followed).await {
            Ok(is_watched) => is_watched,
            // A node ended between the read and the watch.
            Err(Failure::NoNode) => continue,
            Err(failure) => {
                tracing::debug!(topic = ?followed.topic, %failure, "name not watched");
                false
            }
        };
        tokio::select! {
            () = change(&mut followed.watches) => {}
            _ = followed.seen.changed() => {}
            () = sleep(PAUSE), if !is_watched => {}
        }
    }
}

/// Waits until one of these watches has fired.
async fn change(watches: &mut Watches) {
    if watches.is_empty() {
        return std::future::pending().await;
    }
    let _ = select_all(watches.values_mut()).await;
    // All together: those of one transaction, or of a connection that was lost, fire at once.
    watches.retain(|_, changed| changed.try_recv() == Err(oneshot::error::TryRecvError::Empty));
}

impl Follower {
    /// Reads the name, watches it and gives a notice of what is new. Returns false if there is no node to watch.
    async fn read(&self, followed: &mut FollowedTopic) -> Result<bool, Failure> {
        let call = self.waiting.call(Budget::new(LIMIT)).await?;
        let name = followed.topic.name().clone();
        let is_queued = matches!(followed.topic, Topic::Queue(..));
        let watches = Some(&mut followed.watches).filter(|_| !is_queued);
        let found = call.children_of(&name, watches).await?;
        let (is_there, (children, stat)) = (found.is_some(), found.unwrap_or_default());
        let View { notice, watched } = view(&children, &followed.topic);
        let path = call.shared.tree.name(&name);
        for node in watched {
            let node = format!("{path}/{node}");
            if !followed.watches.contains_key(&node) {
                call.children(&node, Some(&mut followed.watches)).await?;
            }
        }
        let is_free =
            children.token.is_some() && children.unknown.is_none() && children.taken.is_none();
        if is_queued && notice.is_some() && is_free {
            // Its claim need not read again.
            let turn = NameReading::untaken(path, Some(stat), children);
            call.shared.remembered.lock().know(&name, turn);
        }
        let (about, notice) = notice.unzip();
        let session = call.line.id;
        let new = match followed.told.replace((session, about.clone())) {
            Some((told_in, before)) if told_in == session => notice.filter(|_| before != about),
            // The server listens from now on: the name may have been freed before, and with the session before this one
            // the client's place has ended.
            _ => Some(followed.topic.first_notice()),
        };
        if let Some(notice) = new {
            self.teller.tell(notice);
        }
        Ok(is_there)
    }
}

/// Returns what the children of a name show for this topic.
///
/// A client in the queue watches the two places before it and, if it is among the first two, the node that keeps the
/// name taken. One without a place has its name read again once it has joined.
fn view(children: &Children, topic: &Topic) -> View {
    let name = topic.name().clone();
    let taken = children.taken;
    let taken = taken.map(|(kind, holder)| (kind, kind.node(holder)));
    let Topic::Queue(_, client) = topic else {
        let about = match taken {
            // If the token changes, the name was taken and freed in between.
            None => Some(children.token.map_or_else(String::new, token_node)),
            Some((kind, node)) => Some(node).filter(|_| kind == Kind::Kept),
        };
        let notice = about.map(|node| (node, Notice::Freed(name)));
        return View {
            notice,
            ..View::default()
        };
    };
    let Some(place) = children.place(*client) else {
        return View::default();
    };
    let node = |place: usize| children.queue[place].nodes[0].clone();
    let notice = match (&taken, place) {
        (None, 0) => Some((node(0), Notice::Freed(name))),
        // It hears when the name is no longer kept.
        (Some((Kind::Kept, kept)), 0) => Some((kept.clone(), Notice::Freed(name))),
        _ => None,
    };
    let before = place.saturating_sub(2)..place;
    let taken = taken.filter(|_| place <= 1).map(|(_, node)| node);
    let watched = before.map(node).chain(taken).collect();
    View { notice, watched }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::{ClientId, Holder};
    use crate::name::Name;

    fn client(number: u128) -> ClientId {
        ClientId::from_u128(number)
    }

    fn place(number: u128) -> String {
        format!("q-{}-{number:010}", client(number))
    }

    fn lease() -> String {
        format!("h-{}", Holder::new(client(99), 1))
    }

    fn notice(nodes: &[String], topic: &Topic) -> Option<(String, Notice)> {
        view(&Children::read(nodes), topic).notice
    }

    fn name() -> Name {
        Name::new("a").expect("a name")
    }

    #[test]
    fn in_the_queue_only_few_watch_the_lease() {
        let mut nodes: Vec<_> = (1..=5).map(place).collect();
        nodes.push(lease());
        let watched = |number| {
            let view = view(
                &Children::read(&nodes),
                &Topic::Queue(name(), client(number)),
            );
            assert_eq!(view.notice, None);
            view.watched
        };
        assert_eq!(watched(1), [lease()]);
        assert_eq!(watched(2), [place(1), lease()]);
        assert_eq!(watched(4), [place(2), place(3)]);
    }

    #[test]
    fn only_the_first_hears_of_its_turn() {
        let nodes: Vec<_> = (1..=3).map(place).collect();
        let notice = |number| notice(&nodes, &Topic::Queue(name(), client(number)));
        assert_eq!(notice(1), Some((place(1), Notice::Freed(name()))));
        assert_eq!(notice(2), None);
    }

    #[test]
    fn a_name_that_was_taken_and_freed_between_two_readings_was_freed() {
        let freed = |token: &str| notice(&[token.into()], &Topic::Freed(name()));
        assert_ne!(freed("t-0000000000000001"), freed("t-0000000000000002"));
    }

    #[test]
    fn without_a_place_only_the_name_is_watched() {
        let topic = Topic::Freed(name());
        let view = |nodes: &[String]| view(&Children::read(nodes), &topic);
        assert_eq!(view(&[lease()]).notice, None);
        assert!(view(&[]).notice.is_some());
        for nodes in [&[lease()][..], &[]] {
            assert!(view(nodes).watched.is_empty());
        }
    }
}
