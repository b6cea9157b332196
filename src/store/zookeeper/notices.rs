//! Hints from watches: one task for each followed name.
//!
//! ```text
//!   look at the name --> watch the few nodes whose end matters --> tell what is new --> wait for a watch
//! ```
//!
//! A *child* watch on the node of a lease, which never has children, reports its end: renewals, which write its data,
//! do not fire it. In the queue a client watches the two places before its own, and only the first two clients watch
//! the lease, so a release wakes few clients, however many wait. A client without a place watches nothing: the name is
//! looked at again when the client itself has joined the queue.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Shared;
use super::connection::session::Session;
use super::failure::Failure;
use super::look::read_millis;
use super::protocol::tree::{Children, Kind};
use crate::name::Name;
use crate::store::budget::Budget;
use crate::store::hints::Teller;
use crate::store::subscription::{Subscription, Wanted};
use crate::store::{Notice, Queued, Topic};
use crate::token::Token;

/// The longest time that one request of a subscription may take.
const LIMIT: Duration = Duration::from_secs(2);
/// The pause before a name is looked at again after a failure.
const PAUSE: Duration = Duration::from_millis(200);

/// What the tasks of a subscription share.
struct Follower {
    shared: Arc<Shared>,
    teller: Teller,
    /// The session in which the client's places are; 0 before the first one.
    session: AtomicI64,
}

/// A followed name, for as long as its task lives.
struct FollowedName {
    shared: Arc<Shared>,
    name: Name,
    /// Has the name looked at again, because the client has joined its queue.
    joined: Arc<Notify>,
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

/// Says which hints to give, and which nodes to watch.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    stages: Vec<(Topic, Stage)>,
    nodes: BTreeSet<String>,
    /// Says whether to watch the name itself, for new children.
    watches_name: bool,
}

/// Makes the session and begins to follow names. The tasks are on the thread that has the session, so that no look at a
/// name wakes another one.
pub(super) async fn subscribe(shared: &Arc<Shared>) -> Result<Subscription, Failure> {
    let runtime = shared.driver.handle().map_err(|_| Failure::NoThread)?;
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

/// Keeps a task for each name that is followed. They end with this one.
async fn listen(follower: Arc<Follower>, mut wanted: Wanted) {
    let mut tasks = JoinSet::new();
    let mut names: HashMap<Name, watch::Sender<BTreeSet<Topic>>> = HashMap::new();
    loop {
        tokio::select! {
            () = wanted.changed() => {}
            Some(_) = tasks.join_next() => continue,
        }
        let changed = wanted.take_changes();
        for topic in changed.new {
            let name = topic.name().clone();
            let topics = names.entry(name).or_insert_with_key(|name| {
                let topics = watch::Sender::new(BTreeSet::new());
                tasks.spawn(follow(follower.clone(), name.clone(), topics.subscribe()));
                topics
            });
            topics.send_modify(|topics| {
                topics.insert(topic);
            });
        }
        for topic in changed.old {
            let Some(topics) = names.get(topic.name()) else {
                continue;
            };
            topics.send_modify(|topics| {
                topics.remove(&topic);
            });
            if topics.borrow().is_empty() {
                names.remove(topic.name());
            }
        }
    }
}

impl FollowedName {
    fn new(shared: &Arc<Shared>, name: &Name) -> Self {
        let joined = Arc::<Notify>::default();
        shared.remembered().follow(name, joined.clone());
        Self {
            shared: shared.clone(),
            name: name.clone(),
            joined,
        }
    }
}

impl Drop for FollowedName {
    fn drop(&mut self) {
        self.shared.remembered().unfollow(&self.name, &self.joined);
    }
}

type Watch = Pin<Box<dyn Future<Output = String> + Send>>;

/// The state that one task keeps of its name.
#[derive(Default)]
struct Watching {
    stages: BTreeMap<Topic, Stage>,
    watches: FuturesUnordered<Watch>,
    watched: HashSet<String>,
}

/// Follows one name for as long as it has topics.
async fn follow(follower: Arc<Follower>, name: Name, mut topics: watch::Receiver<BTreeSet<Topic>>) {
    let followed = FollowedName::new(&follower.shared, &name);
    let mut watching = Watching::default();
    while topics.has_changed().is_ok() {
        let now = topics.borrow_and_update().clone();
        match follower.look(&name, &now, &mut watching).await {
            Ok(true) => {}
            // The name changed between the look and the watch.
            Ok(false) => continue,
            Err(failure) => {
                tracing::debug!(%name, %failure, "name not watched");
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
            _ = topics.changed() => {}
            () = followed.joined.notified() => {}
        }
    }
}

impl Follower {
    /// Looks at the name, watches it and gives the new hints. Returns whether nothing changed in between.
    async fn look(
        &self,
        name: &Name,
        topics: &BTreeSet<Topic>,
        watching: &mut Watching,
    ) -> Result<bool, Failure> {
        let session = self.shared.waiting.session(Budget::new(LIMIT)).await?;
        self.adopt(&session);
        let path = self.shared.tree.name(name);
        let at_least = self.shared.remembered().seen(name);
        let plan = match session.children_since(&path, at_least).await? {
            Some((nodes, stat)) => {
                self.shared.remembered().saw(name, stat.zxid);
                let plan = plan(&Children::read(&nodes), topics);
                if !watching.watch(&session, &path, &plan, stat.zxid).await? {
                    return Ok(false);
                }
                plan
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
                Plan::quiet(topics)
            }
        };
        for (topic, stage) in plan.stages {
            self.tell(&session, &path, topic, stage, watching).await;
        }
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
        topic: Topic,
        stage: Stage,
        watching: &mut Watching,
    ) {
        let before = watching.stages.insert(topic.clone(), stage.clone());
        let Some(before) = before else {
            // The server listens from now on, and the name may have been freed before.
            return self.teller.tell(topic.first_hint());
        };
        if before == stage {
            return;
        }
        let name = topic.name().clone();
        match (stage, &topic) {
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

impl Plan {
    /// Plans for a name that was never granted.
    fn quiet(topics: &BTreeSet<Topic>) -> Self {
        let stages = topics.iter().map(|topic| (topic.clone(), Stage::Quiet));
        Self {
            stages: stages.collect(),
            ..Self::default()
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

/// Returns the state of a name for these topics, and the nodes whose change would change it.
fn plan(children: &Children, topics: &BTreeSet<Topic>) -> Plan {
    let mut plan = Plan::default();
    let taken = children
        .taken
        .map(|(kind, holder)| (kind, kind.node(holder)));
    for topic in topics {
        let stage = match topic {
            Topic::Freed(_) => {
                match &taken {
                    Some((_, node)) => drop(plan.nodes.insert(node.clone())),
                    None => plan.watches_name = true,
                }
                match &taken {
                    None => Stage::Freed(children.token),
                    Some((Kind::Kept, node)) => Stage::Kept(node.clone()),
                    Some(_) => Stage::Quiet,
                }
            }
            Topic::Turn(_, client) => match children.place(*client) {
                // The client has no place yet. Its join is followed by another look.
                None => Stage::Quiet,
                Some(place) => {
                    watch_before(&mut plan, children, place, taken.as_ref());
                    let node = |place: usize| children.queue[place].nodes[0].clone();
                    match (&taken, place) {
                        (None, 0) => Stage::Turn(node(0)),
                        (None, 1) => Stage::Next(node(0)),
                        (Some((Kind::Kept, kept)), 0) => Stage::Kept(kept.clone()),
                        _ => Stage::Quiet,
                    }
                }
            },
        };
        plan.stages.push((topic.clone(), stage));
    }
    // The client whose turn it is gets its hint before the client behind it.
    plan.stages
        .sort_by_key(|(_, stage)| matches!(stage, Stage::Next(_)));
    plan
}

/// Returns what a client in this place watches: the two places before it and, if it is among the first two, the node
/// that keeps the name taken.
fn watch_before(
    plan: &mut Plan,
    children: &Children,
    place: usize,
    taken: Option<&(Kind, String)>,
) {
    for before in place.saturating_sub(2)..place {
        plan.nodes.insert(children.queue[before].nodes[0].clone());
    }
    if place <= 1
        && let Some((_, node)) = taken
    {
        plan.nodes.insert(node.clone());
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

    fn of(nodes: &[String], topic: &Topic) -> (Stage, BTreeSet<String>, bool) {
        let plan = plan(&Children::read(nodes), &BTreeSet::from([topic.clone()]));
        let (_, stage) = plan.stages[0].clone();
        (stage, plan.nodes, plan.watches_name)
    }

    fn name() -> Name {
        Name::new("a").expect("a name")
    }

    #[test]
    fn in_the_queue_only_few_watch_the_lease() {
        let mut nodes: Vec<_> = (1..=5).map(place).collect();
        nodes.push(lease());
        let watched = |number| of(&nodes, &Topic::Turn(name(), client(number)));
        let set = |nodes: &[String]| nodes.iter().cloned().collect();
        assert_eq!(watched(1), (Stage::Quiet, set(&[lease()]), false));
        assert_eq!(watched(2), (Stage::Quiet, set(&[lease(), place(1)]), false));
        assert_eq!(
            watched(4),
            (Stage::Quiet, set(&[place(2), place(3)]), false)
        );
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
    fn the_one_whose_turn_it_is_hears_it_first() {
        // The first is the one with the greater identity.
        let nodes = [(2, 0), (1, 1)].map(|(of, count)| format!("q-{}-{count:010}", client(of)));
        let topics = BTreeSet::from([1, 2].map(|number| Topic::Turn(name(), client(number))));
        let plan = plan(&Children::read(&nodes), &topics);
        assert!(matches!(plan.stages[0].1, Stage::Turn(_)), "{plan:?}");
        assert!(matches!(plan.stages[1].1, Stage::Next(_)), "{plan:?}");
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
            (Stage::Quiet, BTreeSet::from([lease]), false)
        );
        assert_eq!(of(&[], &topic), (Stage::Freed(None), BTreeSet::new(), true));
    }
}
