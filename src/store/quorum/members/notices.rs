//! The hints of all members as one subscription.
//!
//! A release reaches the members one after the other. A client that came with the first hint would find the name taken
//! at the others; so a name is hinted when enough members have freed it for a majority to be free.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use futures_util::future::{join_all, select_all};
use parking_lot::Mutex;

use super::Members;
use crate::clock::{Boottime, Clock as _, Instant};
use crate::error::Error;
use crate::future::BoxFuture;
use crate::name::Name;
use crate::store::quorum::protocol::majority;
use crate::store::{Failed, Notice, Notices, Topic};

/// The time within which the members' hints count as those of one release.
const ONE_RELEASE: Duration = Duration::from_millis(100);

/// The subscriptions to all members.
#[derive(Debug)]
pub(crate) struct MergedNotices {
    each: Vec<Box<dyn Notices>>,
    counted: Mutex<Counted>,
}

/// The members that hinted at each name, and when the first of them did.
#[derive(Debug)]
struct Counted {
    members: usize,
    of: HashMap<Name, (Instant, BTreeSet<usize>)>,
}

impl MergedNotices {
    /// Subscribes at all members. One that cannot be reached is listened to once it can.
    ///
    /// # Errors
    /// Those of one member, if it is not for now that it cannot be subscribed to.
    pub(crate) async fn of(members: &Members) -> Result<Self, Error> {
        let each = join_all(members.iter().map(|member| member.server.listen())).await;
        let each: Result<Vec<_>, Failed> = each.into_iter().collect();
        Ok(Self {
            each: each?,
            counted: Mutex::new(Counted {
                members: members.len(),
                of: HashMap::new(),
            }),
        })
    }

    async fn next_notice(&self) -> Notice {
        loop {
            let (notice, member, _) =
                select_all(self.each.iter().map(|notices| notices.next())).await;
            let Notice::Freed(name) = notice else {
                return notice;
            };
            if self.counted.lock().is_freed(member, &name, Boottime.now()) {
                return Notice::Freed(name);
            }
        }
    }
}

impl Notices for MergedNotices {
    fn follow(&self, topic: &Topic) {
        self.each.iter().for_each(|notices| notices.follow(topic));
    }

    fn unfollow(&self, topic: &Topic) {
        self.each.iter().for_each(|notices| notices.unfollow(topic));
    }

    fn next(&self) -> BoxFuture<'_, Notice> {
        Box::pin(self.next_notice())
    }
}

impl Counted {
    /// Counts the hint of one member. Returns whether it is the one with which a majority has freed the name.
    fn is_freed(&mut self, member: usize, name: &Name, now: Instant) -> bool {
        self.of
            .retain(|_, (first, _)| now < first.after(ONE_RELEASE));
        let (first, by) = self
            .of
            .entry(name.clone())
            .or_insert((now, BTreeSet::new()));
        // Its second hint is of another release than its first.
        if !by.insert(member) {
            (*first, *by) = (now, BTreeSet::from([member]));
        }
        by.len() == majority(self.members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Instant = Instant::from_nanos(7_000_000_000);

    /// Returns which of these members' hints at one moment are passed on.
    fn passed_on(counted: &mut Counted, by: &[usize], at: Instant) -> Vec<bool> {
        let name = Name::new("a").expect("valid");
        let is_freed = |member: &usize| counted.is_freed(*member, &name, at);
        by.iter().map(is_freed).collect()
    }

    fn counted() -> Counted {
        Counted {
            members: 3,
            of: HashMap::new(),
        }
    }

    #[test]
    fn a_name_is_hinted_once_when_a_majority_freed_it() {
        let passed = passed_on(&mut counted(), &[0, 1, 2], AT);
        assert_eq!(passed, [false, true, false]);
    }

    #[test]
    fn another_release_right_after_the_first_is_hinted_too() {
        let mut counted = counted();
        assert_eq!(passed_on(&mut counted, &[0, 1], AT), [false, true]);
        let passed = passed_on(&mut counted, &[2, 0, 1], AT);
        assert_eq!(passed, [false, false, true]);
    }

    #[test]
    fn a_member_that_tells_nothing_hides_no_release() {
        let mut counted = counted();
        for _ in 0..2 {
            assert_eq!(passed_on(&mut counted, &[0, 1], AT), [false, true]);
        }
        let later = AT.after(ONE_RELEASE);
        assert_eq!(passed_on(&mut counted, &[2, 0], later), [false, true]);
    }
}
