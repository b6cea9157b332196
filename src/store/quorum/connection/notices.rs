//! The notices of all members as one subscription.
//!
//! A release reaches the members one after the other. A client that came with the first notice would find the name
//! taken at the others; so the notice is passed on when enough members have freed the name for a majority to be free,
//! and in any case a little later.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use futures_util::future::{select_all, try_join_all};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::Members;
use crate::clock::{Boottime, Clock as _, Instant};
use crate::error::Error;
use crate::future::BoxFuture;
use crate::name::Name;
use crate::store::{Notice, Notices, Topic};

/// Time span of the members' notices that belong to one release.
const ONE_RELEASE: Duration = Duration::from_millis(100);

/// The subscriptions to all members.
#[derive(Debug)]
pub(crate) struct MergedNotices {
    each: Vec<Box<dyn Notices>>,
    counted: Mutex<Counted>,
}

/// The members that gave a notice of each name, and when the first of them did.
#[derive(Debug)]
struct Counted {
    /// Number of members that are a majority.
    enough: usize,
    of: HashMap<Name, (Instant, BTreeSet<usize>)>,
}

impl MergedNotices {
    /// Subscribes at all members. One that cannot be reached is listened to once it can.
    ///
    /// # Errors
    /// The error of a member where subscribing can never succeed.
    pub(crate) async fn of(members: &Members) -> Result<Self, Error> {
        let each = members.iter().map(|member| member.server.listen());
        Ok(Self {
            each: try_join_all(each).await?,
            counted: Mutex::new(Counted {
                enough: members.majority(),
                of: HashMap::new(),
            }),
        })
    }

    async fn next_notice(&self) -> Notice {
        loop {
            let (late, is_waiting) = self.counted.lock().late(Boottime.now());
            if let Some(name) = late {
                return Notice::Freed(name);
            }
            let notice = select_all(self.each.iter().map(|notices| notices.next()));
            let wait = if is_waiting {
                ONE_RELEASE
            } else {
                Duration::MAX
            };
            match timeout(wait, notice).await {
                Ok((Notice::Freed(name), member, _)) => {
                    if self.counted.lock().is_freed(member, &name, Boottime.now()) {
                        return Notice::Freed(name);
                    }
                }
                Ok((notice, ..)) => return notice,
                Err(_) => {}
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
    /// Ends the releases whose time is up. Returns a name that no majority has freed within it, because the others may
    /// have had no lease, or be slower or dead; and whether more releases are left.
    fn late(&mut self, now: Instant) -> (Option<Name>, bool) {
        let is_over = |_: &Name, (first, _): &mut (Instant, _)| now >= first.after(ONE_RELEASE);
        let late = self
            .of
            .extract_if(is_over)
            .find(|(_, (_, by))| by.len() < self.enough);
        (late.map(|(name, _)| name), !self.of.is_empty())
    }

    /// Counts the notice of one member. Returns whether it is the one with which a majority has freed the name.
    fn is_freed(&mut self, member: usize, name: &Name, now: Instant) -> bool {
        let (first, by) = self
            .of
            .entry(name.clone())
            .or_insert((now, BTreeSet::new()));
        // Its second notice is of another release than its first.
        if !by.insert(member) {
            (*first, *by) = (now, BTreeSet::from([member]));
        }
        by.len() == self.enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Instant = Instant::from_nanos(7_000_000_000);

    /// Returns which of these simultaneous notices are passed on.
    fn passed_on(counted: &mut Counted, by: &[usize], at: Instant) -> Vec<bool> {
        let name = Name::new("a").expect("valid");
        let is_freed = |member: &usize| counted.is_freed(*member, &name, at);
        by.iter().map(is_freed).collect()
    }

    fn counted() -> Counted {
        Counted {
            enough: 2,
            of: HashMap::new(),
        }
    }

    #[test]
    fn one_notice_comes_when_a_majority_freed_the_name() {
        let passed = passed_on(&mut counted(), &[0, 1, 2], AT);
        assert_eq!(passed, [false, true, false]);
    }

    #[test]
    fn another_release_right_after_the_first_brings_a_notice_too() {
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
        assert_eq!(counted.late(later), (None, false));
        assert_eq!(passed_on(&mut counted, &[2, 0], later), [false, true]);
    }

    #[test]
    fn the_notice_of_a_name_that_too_few_members_freed_in_time_comes_late() {
        let mut counted = counted();
        assert_eq!(passed_on(&mut counted, &[2], AT), [false]);
        assert_eq!(counted.late(AT), (None, true));
        let later = AT.after(ONE_RELEASE);
        assert_eq!(counted.late(later), (Name::new("a").ok(), false));
        // The notice of a slower member comes after that.
        assert_eq!(passed_on(&mut counted, &[0], later), [false]);
        assert!(counted.late(later.after(ONE_RELEASE)).0.is_some());
    }
}
