//! Who listens for which hints.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::future::BoxFuture;
use crate::holder::ClientId;
use crate::name::Name;
use crate::store::{Notice, Notices};

/// What one listener follows and has not taken yet.
#[derive(Debug, Default)]
pub(super) struct Ear {
    topics: Mutex<Topics>,
    heard: Notify,
}

#[derive(Debug, Default)]
struct Topics {
    /// Names, and with a client the turns of that client.
    followed: BTreeSet<(Name, Option<ClientId>)>,
    /// At most once each: two hints tell no more than one.
    heard: VecDeque<Notice>,
}

/// The listener's end.
#[derive(Debug)]
pub(super) struct Listening(pub(super) Arc<Ear>);

impl Ear {
    fn topics(&self) -> MutexGuard<'_, Topics> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears a hint about this name, if it follows it; one about a turn, if it follows the turns of that client.
    pub(super) fn hear(&self, name: &Name, turn_of: Option<ClientId>, notice: Notice) {
        let mut topics = self.topics();
        let topic = (name.clone(), turn_of);
        if topics.followed.contains(&topic) && !topics.heard.contains(&notice) {
            topics.heard.push_back(notice);
            self.heard.notify_one();
        }
    }

    fn follow(&self, name: &Name, turn_of: Option<ClientId>) {
        self.topics().followed.insert((name.clone(), turn_of));
        let hint = match turn_of {
            None => Notice::Freed(name.clone()),
            Some(_) => Notice::Turn(name.clone()),
        };
        self.hear(name, turn_of, hint);
    }

    fn unfollow(&self, name: &Name, turn_of: Option<ClientId>) {
        self.topics().followed.remove(&(name.clone(), turn_of));
    }
}

impl Notices for Listening {
    fn follow(&self, name: &Name) {
        self.0.follow(name, None);
    }

    fn unfollow(&self, name: &Name) {
        self.0.unfollow(name, None);
    }

    fn follow_turns(&self, name: &Name, client: ClientId) {
        self.0.follow(name, Some(client));
    }

    fn unfollow_turns(&self, name: &Name, client: ClientId) {
        self.0.unfollow(name, Some(client));
    }

    fn next(&self) -> BoxFuture<'_, Notice> {
        Box::pin(async move {
            loop {
                if let Some(notice) = self.0.topics().heard.pop_front() {
                    return notice;
                }
                self.0.heard.notified().await;
            }
        })
    }
}
