//! The subscribers to notices, and the notices that they have not read.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::future::BoxFuture;
use crate::store::{Notice, Notices, Topic};

/// The topics of a subscriber, and the notices that it has not read.
#[derive(Debug, Default)]
pub(super) struct Subscriber {
    topics: Mutex<Topics>,
    heard: Notify,
}

#[derive(Debug, Default)]
struct Topics {
    followed: BTreeSet<Topic>,
    /// Each notice at most once: two equal ones say no more than one.
    heard: VecDeque<Notice>,
}

impl Subscriber {
    /// Returns whether the subscriber follows this topic.
    pub(super) fn follows(&self, topic: &Topic) -> bool {
        self.topics.lock().followed.contains(topic)
    }

    /// Stores a notice about this topic, if the subscriber follows it.
    pub(super) fn hear(&self, topic: &Topic, notice: Notice) {
        let mut topics = self.topics.lock();
        if topics.followed.contains(topic) && !topics.heard.contains(&notice) {
            topics.heard.push_back(notice);
            self.heard.notify_one();
        }
    }
}

/// The reading side: the store forgets a subscriber that no client reads.
impl Notices for Arc<Subscriber> {
    fn follow(&self, topic: &Topic) {
        self.topics.lock().followed.insert(topic.clone());
        self.hear(topic, topic.first_notice());
    }

    fn unfollow(&self, topic: &Topic) {
        self.topics.lock().followed.remove(topic);
    }

    fn next(&self) -> BoxFuture<'_, Notice> {
        Box::pin(async move {
            loop {
                if let Some(notice) = self.topics.lock().heard.pop_front() {
                    return notice;
                }
                self.heard.notified().await;
            }
        })
    }
}
