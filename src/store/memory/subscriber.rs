//! The subscribers to notices, and the hints that they have not read.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::future::BoxFuture;
use crate::store::{Notice, Notices, Topic};

/// The topics of a subscriber, and the hints that it has not read.
#[derive(Debug, Default)]
pub(super) struct Subscriber {
    topics: Mutex<Topics>,
    heard: Notify,
}

#[derive(Debug, Default)]
struct Topics {
    followed: BTreeSet<Topic>,
    /// Each hint at most once: two equal hints say no more than one.
    heard: VecDeque<Notice>,
}

/// The reading side of a subscriber.
#[derive(Debug)]
pub(super) struct Subscription(pub(super) Arc<Subscriber>);

impl Subscriber {
    /// Stores a hint about this topic, if the subscriber follows it.
    pub(super) fn hear(&self, topic: &Topic, notice: Notice) {
        let mut topics = self.topics.lock();
        if topics.followed.contains(topic) && !topics.heard.contains(&notice) {
            topics.heard.push_back(notice);
            self.heard.notify_one();
        }
    }
}

impl Notices for Subscription {
    fn follow(&self, topic: &Topic) {
        self.0.topics.lock().followed.insert(topic.clone());
        self.0.hear(topic, topic.first_hint());
    }

    fn unfollow(&self, topic: &Topic) {
        self.0.topics.lock().followed.remove(topic);
    }

    fn next(&self) -> BoxFuture<'_, Notice> {
        Box::pin(async move {
            loop {
                if let Some(notice) = self.0.topics.lock().heard.pop_front() {
                    return notice;
                }
                self.0.heard.notified().await;
            }
        })
    }
}
