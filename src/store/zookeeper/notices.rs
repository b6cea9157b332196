//! Hints from watches: one task for each followed topic.
//!
//! ```text
//!   look at the name --> watch the few nodes whose end matters --> tell what is new --> wait for a watch
//! ```
//!
//! A *child* watch on the node of a lease, which never has children, reports its end: renewals, which write its data,
//! do not fire it. In the queue a client watches the two places before its own, and only the first two clients watch
//! the lease, so a release wakes few clients, however many wait. A client without a place watches nothing: the name is
//! looked at again when the client itself has joined the queue.

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Shared;
use super::connection::session::Session;
use super::failure::Failure;
use super::look::read_millis;
use super::protocol::tree::{Children, Kind};
use crate::name::Name;
use crate::store::budget::Budget;
use crate::store::connection::Unconnected;
use crate::store::subscription::{Subscription, Teller, Wanted};
use crate::store::{Notice, Queued, Topic};
use crate::token::Token;

/// The longest time that one request of a subscription may take.
const LIMIT: Duration = Duration::from_secs(2);
/// The pause before a name is looked at again after a failure.
const PAUSE: Duration = Duration::from_millis(200);

/// State that the tasks of a subscription share.
struct Follower {
    shared: Arc<Shared>,
    teller: Teller,
    /// The session in which the client's places are; 0 before the first one.
    session: AtomicI64,
}

/// A followed name, for as long as the task of its topic lives.
struct FollowedName {
    shared: Arc<Shared>,
    name: Name,
    /// The latest change that was seen. It is marked as changed once the client has joined the queue.
    seen: watch::Receiver<i64>,
}

/// The state of a name for one topic.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
enum Stage {
    /// There is no hint to give.
    #[default]
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

/// Says which state a name is in for a topic, and which nodes to watch.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    stage: Stage,
    nodes: Vec<String>,
    /// Says whether to watch the name itself, for new children.
    watches_name: bool,
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

impl FollowedName {
    fn new(shared: &Arc<Shared>, name: &Name) -> Self {
        Self {
            seen: shared.remembered().follow(name),
            shared: shared.clone(),
            name: name.clone(),
        }
    }
}

impl Drop for FollowedName {
    fn drop(&mut self) {
        self.shared.remembered().unfollow(&self.name);
    }
}

type Watch = Pin<Box<dyn Future<Output = String> + Send>>;

/// The state that one task keeps of its topic.
#[derive(Default)]
struct Watching {
    /// The state of the name at the last look.
    stage: Option<Stage>,
    watches: FuturesUnordered<Watch>,
    watched: HashSet<String>,
}

/// Follows one topic until the task is aborted.
async fn follow(follower: Arc<Follower>, topic: Topic) {
    let mut name = FollowedName::new(&follower.shared, topic.name());
    let mut watching = Watching::default();
    loop {
        match follower.look(&topic, &mut watching).await {
            Ok(true) => {}
            // The name changed between the look and the watch.
            Ok(false) => continue,
            Err(failure) => {
                tracing::debug!(name = %name.name, %failure, "name not watched");
                sleep(PAUSE).await;
                continue;
            }
        }
        tokio::select! {
            Some(path) = watching.watches.next() => {
                watching.watched.remove(&path);
                // One look for all: they fire together when the connection is lost.
                while let Some(Some(path)) = watching.watches.next().now_or_never() {
                    watching.watched.remove(&path);
                }
            }
            _ = name.seen.changed() => {}
        }
    }
}

impl Follower {
    /// Looks at the name, watches it and gives the hint for what is new. Returns whether nothing changed in between.
    async fn look(&self, topic: &Topic, watching: &mut Watching) -> Result<bool, Failure> {
        let session = self.shared.waiting.session(Budget::new(LIMIT)).await?;
        self.adopt(&session);
        let path = self.shared.tree.name(topic.name());
        let at_least = self.shared.remembered().seen(topic.name());
        let stage = match session.children_since(&path, at_least).await? {
            Some((nodes, stat)) => {
                self.shared.remembered().saw(topic.name(), stat.zxid);
                let plan = plan(&Children::read(&nodes), topic);
                if !watching.watch(&session, &path, &plan, stat.zxid).await? {
                    return Ok(false);
                }
                plan.stage
            }
            // It waits for its first grant.
            None => {
                if !watching.watched.contains(&path) {
                    let (is_there, watch) = session.watch_presence(&path).await?;
                    watching.add(path.clone(), watch);
                    if is_there {
                        return Ok(false);
                    }
                }
                Stage::Quiet
            }
        };
        let before = watching.stage.replace(stage.clone());
        self.tell(&session, &path, topic, stage, before).await;
        Ok(true)
    }

    /// Has all names looked at again in another session: with the one before, the client's places have ended.
    fn adopt(&self, session: &Session) {
        let before = self.session.swap(session.id(), Ordering::Relaxed);
        if before != 0 && before != session.id() {
            self.shared.remembered().forget_changes();
            self.teller.tell(Notice::Reconnected);
        }
    }

    /// Gives the hint for what is new about a topic.
    async fn tell(
        &self,
        session: &Session,
        path: &str,
        topic: &Topic,
        stage: Stage,
        before: Option<Stage>,
    ) {
        let Some(before) = before else {
            // The server listens from now on, and the name may have been freed before.
            return self.teller.tell(topic.first_hint());
        };
        if before == stage {
            return;
        }
        let name = topic.name().clone();
        match (stage, topic) {
            (Stage::Quiet, _) => {}
            (Stage::Turn(_), _) => self.teller.tell(Notice::Turn(name)),
            (Stage::Next(_), _) => self.teller.tell(Notice::Next(name, Queued::OFFER)),
            (Stage::Freed(_), _) | (Stage::Kept(_), Topic::Freed(_)) => {
                self.teller.tell(Notice::Freed(name));
            }
            (Stage::Kept(node), Topic::Turn(..)) => {
                let kept = session.data(&format!("{path}/{node}")).await;
                if let Some(rest) = kept.ok().and_then(|(data, _)| read_millis(&data)) {
                    self.teller.tell(Notice::Next(name, rest));
                }
            }
        }
    }
}

impl Watching {
    /// Watches what the plan names, and the name itself as it was at this change. Returns false if it has changed
    /// since.
    async fn watch(
        &mut self,
        session: &Session,
        path: &str,
        plan: &Plan,
        zxid: i64,
    ) -> Result<bool, Failure> {
        for node in &plan.nodes {
            let path = format!("{path}/{node}");
            if !self.watched.contains(&path) {
                match session.watch_children(&path).await {
                    Ok((_, watch)) => self.add(path, watch),
                    Err(Failure::NoNode) => return Ok(false),
                    Err(failure) => return Err(failure),
                }
            }
        }
        if plan.watches_name && !self.watched.contains(path) {
            let (now, watch) = session.watch_children(path).await?;
            self.add(path.to_owned(), watch);
            return Ok(now.zxid == zxid);
        }
        Ok(true)
    }

    fn add(&mut self, path: String, watch: impl Future<Output = ()> + Send + 'static) {
        self.watched.insert(path.clone());
        self.watches.push(Box::pin(async move {
            watch.await;
            path
        }));
    }
}

/// Returns the state of a name for this topic, and the nodes whose change would change it.
///
/// A client in the queue watches the two places before it and, if it is among the first two, the node that keeps the
/// name taken.
fn plan(children: &Children, topic: &Topic) -> Plan {
    let taken = children.taken;
    let taken = taken.map(|(kind, holder)| (kind, kind.node(holder)));
    match topic {
        Topic::Freed(_) => Plan {
            stage: match &taken {
                None => Stage::Freed(children.token),
                Some((Kind::Kept, node)) => Stage::Kept(node.clone()),
                Some(_) => Stage::Quiet,
            },
            watches_name: taken.is_none(),
            nodes: taken.into_iter().map(|(_, node)| node).collect(),
        },
        Topic::Turn(_, client) => {
            // A client without a place has its name looked at again once it has joined.
            let Some(place) = children.place(*client) else {
                return Plan::default();
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
            Plan {
                stage,
                nodes: before.map(node).chain(taken).collect(),
                watches_name: false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::{ClientId, Holder};

    fn client(number: u128) -> ClientId {
        ClientId::from_u128(number)
    }

    fn place(number: u128) -> String {
        format!("q-{}-{number:010}", client(number))
    }

    fn lease() -> String {
        format!("h-{}", Holder::new(client(99), 1))
    }

    fn of(nodes: &[String], topic: &Topic) -> (Stage, Vec<String>, bool) {
        let plan = plan(&Children::read(nodes), topic);
        (plan.stage, plan.nodes, plan.watches_name)
    }

    fn name() -> Name {
        Name::new("a").expect("a name")
    }

    #[test]
    fn in_the_queue_only_few_watch_the_lease() {
        let mut nodes: Vec<_> = (1..=5).map(place).collect();
        nodes.push(lease());
        let watched = |number| of(&nodes, &Topic::Turn(name(), client(number)));
        assert_eq!(watched(1), (Stage::Quiet, vec![lease()], false));
        assert_eq!(watched(2), (Stage::Quiet, vec![place(1), lease()], false));
        assert_eq!(watched(4), (Stage::Quiet, vec![place(2), place(3)], false));
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
    fn without_a_place_the_lease_is_watched_while_it_is_there_and_else_the_name() {
        let topic = Topic::Freed(name());
        let lease = lease();
        assert_eq!(
            of(std::slice::from_ref(&lease), &topic),
            (Stage::Quiet, vec![lease], false)
        );
        assert_eq!(of(&[], &topic), (Stage::Freed(None), Vec::new(), true));
    }
}
