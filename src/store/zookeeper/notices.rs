//! Hints from watches: one task for each followed topic.
//!
//! ```text
//!   look at the name --> watch the few nodes whose end matters --> tell what is new --> wait for a watch
//! ```
//!
//! A watch is for the *children* of a node, and ends with the node. A client without a place in the queue watches those
//! of the name. One in the queue watches the two places before its own, and only the first two clients watch the node
//! of the lease, so a release wakes few clients, however many wait; such nodes never have children, and renewals, which
//! write the data of the lease, fire no watch.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::select_all;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Shared;
use super::connection::NodeWatch;
use super::connection::session::Session;
use super::failure::Failure;
use super::look::read_millis;
use super::protocol::reading::NameReading;
use super::protocol::tree::{Children, Kind};
use crate::store::budget::Budget;
use crate::store::connection::Unconnected;
use crate::store::subscription::{Subscription, Teller, Wanted};
use crate::store::{Notice, Queued, Topic};
use crate::token::Token;

/// The longest time that one request of a subscription may take.
const LIMIT: Duration = Duration::from_secs(2);
/// The pause before a name is looked at again that is not there, or after a failure.
const PAUSE: Duration = Duration::from_millis(200);

/// State that the tasks of a subscription share.
struct Follower {
    shared: Arc<Shared>,
    teller: Teller,
    /// The session in which the client's places are; 0 before the first one.
    session: AtomicI64,
}

/// The state that one task keeps of its topic.
struct FollowedTopic {
    topic: Topic,
    /// The latest change that was seen. It is marked as changed once the client has joined the queue.
    seen: watch::Receiver<i64>,
    /// The state of the name at the last look.
    stage: Option<Stage>,
    /// Each watched node, with what hears of its change.
    watches: HashMap<String, oneshot::Receiver<()>>,
}

/// The state of a name for one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    /// There is no hint to give.
    Quiet,
    /// The name is free, and this is its last token: if the token changes, the name was taken and freed in between.
    Freed(Option<Token>),
    /// The name was released and is kept for a while, by this node.
    Kept(String),
    /// It is the turn of this client, which has this place.
    Turn(String),
    /// It is the turn of the client before this one, which has this place.
    Next(String),
}

/// Makes the session and begins to follow topics. The tasks are on the thread that has the session, so that no look at
/// a name wakes another one.
pub(super) async fn subscribe(shared: &Arc<Shared>) -> Result<Subscription, Failure> {
    let runtime = shared.driver.handle();
    let runtime = runtime.map_err(|_| Unconnected::NoThread)?;
    shared.waiting.session(Budget::new(LIMIT)).await?;
    let started = Subscription::start(async |wanted| {
        let follower = Follower {
            shared: shared.clone(),
            teller: wanted.teller(),
            session: AtomicI64::new(0),
        };
        Ok(runtime
            .spawn(listen(Arc::new(follower), wanted))
            .abort_handle())
    });
    started.await
}

/// Keeps a task for each topic that is followed. They end with this one.
async fn listen(follower: Arc<Follower>, mut wanted: Wanted) {
    let mut tasks = JoinSet::new();
    let mut followed = HashMap::new();
    loop {
        wanted.changed().await;
        let changed = wanted.take_changes();
        for topic in changed.new {
            let task = tasks.spawn(follow(follower.clone(), topic.clone()));
            followed.insert(topic, task);
        }
        for topic in changed.old {
            if let Some(task) = followed.remove(&topic) {
                task.abort();
            }
        }
        // Forgets the tasks that have ended.
        while tasks.try_join_next().is_some() {}
    }
}

/// Follows one topic until the task is aborted.
async fn follow(follower: Arc<Follower>, topic: Topic) {
    let mut followed = FollowedTopic {
        seen: follower.shared.remembered().follow(topic.name()),
        topic,
        stage: None,
        watches: HashMap::new(),
    };
    loop {
        let is_watched = match follower.look(&mut followed).await {
            Ok(is_watched) => is_watched,
            // A node ended between the look and the watch.
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
async fn change(watches: &mut HashMap<String, oneshot::Receiver<()>>) {
    if watches.is_empty() {
        return std::future::pending().await;
    }
    let _ = select_all(watches.values_mut()).await;
    // All together: those of one transaction, or of a connection that was lost, fire at once.
    watches.retain(|_, changed| changed.try_recv() == Err(oneshot::error::TryRecvError::Empty));
}

impl Follower {
    /// Looks at the name, watches it and gives the hint for what is new. Returns false if there is no node to watch.
    async fn look(&self, followed: &mut FollowedTopic) -> Result<bool, Failure> {
        let session = self.shared.waiting.session(Budget::new(LIMIT)).await?;
        self.adopt(&session);
        let name = followed.topic.name().clone();
        let path = self.shared.tree.name(&name);
        let at_least = self.shared.remembered().seen(&name);
        let is_queued = matches!(followed.topic, Topic::Turn(..));
        let (found, changed) = session.children_since(&path, at_least, !is_queued).await?;
        let is_there = found.is_some();
        let (nodes, stat) = found.unwrap_or_default();
        let children = Children::read(&nodes);
        let (stage, nodes) = plan(&children, &followed.topic);
        if is_there {
            self.shared.remembered().saw(&name, stat.zxid);
            let changed = changed.map(|changed| (path.clone(), changed));
            followed.watches.extend(changed);
        }
        for node in nodes {
            if let Entry::Vacant(unwatched) = followed.watches.entry(format!("{path}/{node}")) {
                let (watch, changed) = NodeWatch::of(unwatched.key());
                session.children(unwatched.key(), Some(watch)).await?;
                unwatched.insert(changed);
            }
        }
        let is_in_order = children.token.is_some() && children.unknown.is_none();
        if matches!(stage, Stage::Turn(_)) && is_in_order {
            // Its claim need not look again.
            let turn = NameReading::untaken(path.clone(), stat, children);
            self.shared.remembered().know(&name, turn);
        }
        let rest = match &stage {
            Stage::Kept(node) if is_queued => {
                let (data, _) = session.data(&format!("{path}/{node}")).await?;
                read_millis(&data)
            }
            _ => None,
        };
        let before = followed.stage.replace(stage.clone());
        if let Some(hint) = hint(&followed.topic, before, stage, rest) {
            self.teller.tell(hint);
        }
        Ok(is_there)
    }

    /// Has all names looked at again in another session: with the one before, the client's places have ended.
    fn adopt(&self, session: &Session) {
        let before = self.session.swap(session.id(), Ordering::Relaxed);
        if before != 0 && before != session.id() {
            self.shared.remembered().forget_changes();
            self.teller.tell(Notice::Reconnected);
        }
    }
}

/// Returns the hint for what is new about a topic, whose name is kept or offered for this long.
fn hint(
    topic: &Topic,
    before: Option<Stage>,
    now: Stage,
    rest: Option<Duration>,
) -> Option<Notice> {
    let name = topic.name().clone();
    match (now, topic) {
        // The server listens from now on, and the name may have been freed before.
        _ if before.is_none() => Some(topic.first_hint()),
        (now, _) if before.as_ref() == Some(&now) => None,
        (Stage::Quiet, _) => None,
        (Stage::Turn(_), _) => Some(Notice::Turn(name)),
        (Stage::Freed(_), _) | (Stage::Kept(_), Topic::Freed(_)) => Some(Notice::Freed(name)),
        (Stage::Next(_) | Stage::Kept(_), _) => {
            Some(Notice::Next(name, rest.unwrap_or(Queued::OFFER)))
        }
    }
}

/// Returns the state of a name for this topic, and the nodes besides the name whose end would change it.
///
/// A client in the queue watches the two places before it and, if it is among the first two, the node that keeps the
/// name taken. One without a place has its name looked at again once it has joined.
fn plan(children: &Children, topic: &Topic) -> (Stage, Vec<String>) {
    let taken = children.taken;
    let taken = taken.map(|(kind, holder)| (kind, kind.node(holder)));
    let Topic::Turn(_, client) = topic else {
        let stage = match taken {
            None => Stage::Freed(children.token),
            Some((Kind::Kept, node)) => Stage::Kept(node),
            Some(_) => Stage::Quiet,
        };
        return (stage, Vec::new());
    };
    let Some(place) = children.place(*client) else {
        return (Stage::Quiet, Vec::new());
    };
    let node = |place: usize| children.queue[place].nodes[0].clone();
    let before = place.saturating_sub(2)..place;
    let stage = match (&taken, place) {
        (None, 0) => Stage::Turn(node(0)),
        (None, 1) => Stage::Next(node(0)),
        (Some((Kind::Kept, kept)), 0) => Stage::Kept(kept.clone()),
        _ => Stage::Quiet,
    };
    let taken = taken.filter(|_| place <= 1).map(|(_, node)| node);
    (stage, before.map(node).chain(taken).collect())
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

    fn of(nodes: &[String], topic: &Topic) -> (Stage, Vec<String>) {
        plan(&Children::read(nodes), topic)
    }

    fn name() -> Name {
        Name::new("a").expect("a name")
    }

    #[test]
    fn in_the_queue_only_few_watch_the_lease() {
        let mut nodes: Vec<_> = (1..=5).map(place).collect();
        nodes.push(lease());
        let watched = |number| of(&nodes, &Topic::Turn(name(), client(number)));
        assert_eq!(watched(1), (Stage::Quiet, vec![lease()]));
        assert_eq!(watched(2), (Stage::Quiet, vec![place(1), lease()]));
        assert_eq!(watched(4), (Stage::Quiet, vec![place(2), place(3)]));
    }

    #[test]
    fn the_first_hears_of_its_turn_and_the_second_that_it_is_next() {
        let nodes: Vec<_> = (1..=3).map(place).collect();
        let stage = |number| of(&nodes, &Topic::Turn(name(), client(number))).0;
        assert_eq!(stage(1), Stage::Turn(place(1)));
        assert_eq!(stage(2), Stage::Next(place(1)));
        assert_eq!(stage(3), Stage::Quiet);
    }

    #[test]
    fn a_name_that_was_taken_and_freed_between_two_looks_was_freed() {
        let freed = |token: &str| of(&[token.into()], &Topic::Freed(name())).0;
        assert_ne!(freed("t-0000000000000001"), freed("t-0000000000000002"));
    }

    #[test]
    fn without_a_place_only_the_name_is_watched() {
        let topic = Topic::Freed(name());
        assert_eq!(of(&[lease()], &topic), (Stage::Quiet, Vec::new()));
        assert_eq!(of(&[], &topic), (Stage::Freed(None), Vec::new()));
    }
}
