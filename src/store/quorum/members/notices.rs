//! The hints of all members as one subscription.
//!
//! A release reaches the members one after the other. A client that came with the first hint would find the name taken
//! at the others; so a name is hinted when enough members have freed it for a majority to be free, or a moment after
//! the first.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use futures_util::future::{join_all, select_all};
use parking_lot::{Mutex, MutexGuard};

use super::Members;
use crate::clock::{Boottime, Clock as _, Instant};
use crate::error::Error;
use crate::future::BoxFuture;
use crate::name::Name;
use crate::store::quorum::protocol::majority;
use crate::store::{Failed, Notice, Notices, Topic};

/// The time after the first hint at which a name is hinted at the latest.
const PATIENCE: Duration = Duration::from_millis(5);
/// The time for which the other members' hints of the same release are dropped.
const STRAGGLERS: Duration = Duration::from_millis(100);

/// The subscriptions to all members.
#[derive(Debug)]
pub(crate) struct MergedNotices {
    each: Vec<Box<dyn Notices>>,
    counted: Mutex<Counted>,
}

/// The hints of each name.
#[derive(Debug)]
struct Counted {
    members: usize,
    of: HashMap<Name, HintCount>,
}

/// The members' hints that one release freed a name.
#[derive(Debug)]
struct HintCount {
    by: BTreeSet<usize>,
    /// When the first one came; once it was passed on, when that was.
    at: Instant,
    was_passed_on: bool,
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
            if let Some(name) = self.counted().due(Boottime.now()) {
                return Notice::Freed(name);
            }
            let due = self.counted().next_due();
            let coming = select_all(self.each.iter().map(|notices| notices.next()));
            let (notice, member, _) = match due {
                Some(due) => tokio::select! {
                    notice = coming => notice,
                    () = Boottime.sleep_until(due) => continue,
                },
                None => coming.await,
            };
            match notice {
                Notice::Freed(name) => self.counted().note(member, name, Boottime.now()),
                other => return other,
            }
        }
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock()
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
    /// Notes the hint of one member. Its second hint is of another release than its first.
    fn note(&mut self, member: usize, name: Name, now: Instant) {
        let first = || HintCount {
            by: BTreeSet::new(),
            at: now,
            was_passed_on: false,
        };
        let hints = self.of.entry(name).or_insert_with(first);
        let is_next = hints.was_passed_on
            && (now >= hints.at.after(STRAGGLERS) || hints.by.contains(&member));
        if is_next {
            *hints = first();
        }
        hints.by.insert(member);
    }

    /// Returns a name that is to be hinted now.
    fn due(&mut self, now: Instant) -> Option<Name> {
        let enough = majority(self.members);
        self.of
            .retain(|_, hints| !hints.was_passed_on || now < hints.at.after(STRAGGLERS));
        let is_due = |hints: &HintCount| {
            !hints.was_passed_on && (hints.by.len() >= enough || now >= hints.at.after(PATIENCE))
        };
        let (name, hints) = self.of.iter_mut().find(|(_, hints)| is_due(hints))?;
        (hints.at, hints.was_passed_on) = (now, true);
        Some(name.clone())
    }

    fn next_due(&self) -> Option<Instant> {
        let waiting = self.of.values().filter(|hints| !hints.was_passed_on);
        waiting.map(|hints| hints.at.after(PATIENCE)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Instant = Instant::from_nanos(7_000_000_000);

    fn counted() -> Counted {
        Counted {
            members: 3,
            of: HashMap::new(),
        }
    }

    fn name() -> Name {
        Name::new("a").expect("valid")
    }

    #[test]
    fn a_name_is_hinted_once_a_majority_freed_it() {
        let mut counted = counted();
        counted.note(0, name(), AT);
        assert_eq!(counted.due(AT), None);
        counted.note(1, name(), AT);
        assert_eq!(counted.due(AT), Some(name()));
        counted.note(2, name(), AT);
        assert_eq!(
            counted.due(AT.after(PATIENCE)),
            None,
            "the third of the same"
        );
    }

    #[test]
    fn a_single_hint_is_told_a_moment_later() {
        let mut counted = counted();
        counted.note(0, name(), AT);
        assert_eq!(counted.next_due(), Some(AT.after(PATIENCE)));
        assert_eq!(counted.due(AT.after(PATIENCE)), Some(name()));
    }

    #[test]
    fn another_release_right_after_the_first_is_hinted_too() {
        let mut counted = counted();
        counted.note(0, name(), AT);
        counted.note(1, name(), AT);
        assert_eq!(counted.due(AT), Some(name()));
        for member in [2, 0, 1] {
            counted.note(member, name(), AT);
        }
        assert_eq!(counted.due(AT), Some(name()));
    }

    #[test]
    fn a_member_that_tells_nothing_hides_no_later_release() {
        let mut counted = counted();
        counted.note(0, name(), AT);
        counted.note(1, name(), AT);
        assert_eq!(counted.due(AT), Some(name()));
        for member in [0, 1] {
            counted.note(member, name(), AT);
        }
        assert_eq!(counted.due(AT), Some(name()), "two of three are alive");
        let later = AT.after(STRAGGLERS);
        assert_eq!(counted.due(later), None);
        counted.note(2, name(), later);
        assert_eq!(counted.due(later.after(PATIENCE)), Some(name()));
    }
}
