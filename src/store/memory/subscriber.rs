//! Who listens for which hints.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::future::BoxFuture;
use crate::store::{Notice, Notices, Topic};

/// What one listener follows and has not taken yet.
#[derive(Debug, Default)]
pub(super) struct Subscriber {
    topics: Mutex<Topics>,
    heard: Notify,
}

#[derive(Debug, Default)]
struct Topics {
    followed: BTreeSet<Topic>,
    /// At most once each: two hints tell no more than one.
    heard: VecDeque<Notice>,
}

/// The listener's end.
#[derive(Debug)]
pub(super) struct Subscription(pub(super) Arc<Subscriber>);

impl Subscriber {
    fn topics(&self) -> MutexGuard<'_, Topics> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a hint about this topic, if it is followed.
    pub(super) fn hear(&self, topic: &Topic, notice: Notice) {
        let mut topics = self.topics();
        if topics.followed.contains(topic) && !topics.heard.contains(&notice) {
            topics.heard.push_back(notice);
            self.heard.notify_one();
        }
    }
}

impl Notices for Subscription {
    fn follow(&self, topic: &Topic) {
        self.0.topics().followed.insert(topic.clone());
        self.0.hear(topic, topic.first_hint());
    }

    fn unfollow(&self, topic: &Topic) {
        self.0.topics().followed.remove(topic);
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
