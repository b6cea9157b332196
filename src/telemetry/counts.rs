//! What is counted and never dropped: totals of this process by group and word, which a reporter tells the recorder.
//!
//! Counting is an addition. The recorder, which is the user's and may block or panic, is told the totals by a reporter's
//! thread when it comes by. Totals are *set* and not moved: a value that is told twice, or late, is right all the same.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use metrics::{Label, counter, gauge};

use super::table::{self, Metric};
use crate::group::Group;
use crate::reason::LossReason;

/// Something that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    /// A lease was renewed.
    Renewed,
    /// The store refused to renew a lease.
    RenewalRefused,
    /// A renewal got no answer.
    RenewalUnknown,
    /// A release gave the name back.
    Released,
    /// A release found the lease lost.
    AlreadyLost,
    /// A release got no answer.
    ReleaseUnknown,
    /// A guard was dropped without a release.
    Dropped,
    /// The server's clock stepped forward.
    JumpForward,
    /// The server's clock stepped back.
    JumpBackward,
    /// An event was not told, because too many were waiting.
    EventDropped,
    /// A lease was lost while it was held.
    Lost(LossReason),
}

impl Count {
    /// All that have no reason.
    const PLAIN: [Self; 10] = [
        Self::Renewed,
        Self::RenewalRefused,
        Self::RenewalUnknown,
        Self::Released,
        Self::AlreadyLost,
        Self::ReleaseUnknown,
        Self::Dropped,
        Self::JumpForward,
        Self::JumpBackward,
        Self::EventDropped,
    ];
    const KINDS: usize = Self::PLAIN.len() + LossReason::ALL.len();

    fn all() -> impl Iterator<Item = Self> {
        let lost = LossReason::ALL.into_iter().map(Self::Lost);
        Self::PLAIN.into_iter().chain(lost)
    }

    /// Its place in the order of [`all`](Self::all).
    fn index(self) -> usize {
        let place = Self::all().position(|count| count == self);
        place.expect("every count is in the list")
    }

    /// The metric, and its own label beside the group.
    const fn series(self) -> (&'static Metric, Option<(&'static str, &'static str)>) {
        match self {
            Self::Renewed => (&table::RENEWALS, Some(("outcome", "renewed"))),
            Self::RenewalRefused => (&table::RENEWALS, Some(("outcome", "refused"))),
            Self::RenewalUnknown => (&table::RENEWALS, Some(("outcome", "unknown"))),
            Self::Released => (&table::RELEASES, Some(("outcome", "released"))),
            Self::AlreadyLost => (&table::RELEASES, Some(("outcome", "already_lost"))),
            Self::ReleaseUnknown => (&table::RELEASES, Some(("outcome", "unknown"))),
            Self::Dropped => (&table::RELEASES, Some(("outcome", "dropped"))),
            Self::JumpForward => (&table::CLOCK_JUMPS, Some(("kind", "forward"))),
            Self::JumpBackward => (&table::CLOCK_JUMPS, Some(("kind", "backward"))),
            Self::EventDropped => (&table::EVENTS_DROPPED, None),
            Self::Lost(reason) => (&table::LEASES_LOST, Some(("reason", reason.as_str()))),
        }
    }

    /// Whether it is counted by group; if not, once for the process.
    const fn has_group(self) -> bool {
        !matches!(
            self,
            Self::JumpForward | Self::JumpBackward | Self::EventDropped
        )
    }
}

/// The totals of one group; there is one of them for what has no group.
#[derive(Debug)]
pub(super) struct Counts {
    group: Option<Group>,
    totals: [AtomicU64; Count::KINDS],
    /// Leases that are held now, by all clients of the group.
    held: AtomicI64,
    /// What the recorder was told last. Locked while it is told, so that no older value follows a newer one.
    told: Mutex<Published>,
}

#[derive(Debug)]
struct Published {
    totals: [u64; Count::KINDS],
    held: i64,
}

static PROCESS: Counts = Counts::new(None);
/// As many as there are groups, which are few and kept for as long as the process lives.
static GROUPS: Mutex<Vec<&'static Counts>> = Mutex::new(Vec::new());

impl Counts {
    const fn new(group: Option<Group>) -> Self {
        Self {
            group,
            totals: [const { AtomicU64::new(0) }; Count::KINDS],
            held: AtomicI64::new(0),
            told: Mutex::new(Published {
                totals: [0; Count::KINDS],
                held: 0,
            }),
        }
    }

    /// Those of this group.
    pub(super) fn of(group: Group) -> &'static Self {
        let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
        let known = groups.iter().find(|counts| counts.group == Some(group));
        if let Some(known) = known {
            return known;
        }
        let counts: &'static Self = Box::leak(Box::new(Self::new(Some(group))));
        groups.push(counts);
        counts
    }

    pub(super) fn add(&self, count: Count, times: u64) {
        let home = if count.has_group() { self } else { &PROCESS };
        home.totals[count.index()].fetch_add(times, Ordering::Relaxed);
    }

    /// So many leases more are held, or fewer.
    pub(super) fn add_held(&self, more: i64) {
        self.held.fetch_add(more, Ordering::Relaxed);
    }

    /// Tells the recorder what has changed, here and of what has no group.
    pub(super) fn tell(&self) {
        PROCESS.tell_own(false);
        self.tell_own(false);
    }

    /// Tells the recorder everything, zeros too, so that dashboards see no gaps.
    pub(super) fn register(&self) {
        PROCESS.tell_own(true);
        self.tell_own(true);
    }

    fn tell_own(&self, has_all: bool) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let own = Count::all().enumerate();
        for (index, count) in own.filter(|(_, count)| count.has_group() == self.group.is_some()) {
            let total = self.totals[index].load(Ordering::Relaxed);
            if has_all || total != told.totals[index] {
                let is_told = quietly(|| self.tell_total(count, total));
                told.totals[index] = if is_told { total } else { told.totals[index] };
            }
        }
        let held = self.held.load(Ordering::Relaxed);
        if let Some(group) = self.group.filter(|_| has_all || held != told.held) {
            #[expect(clippy::cast_precision_loss, reason = "no process holds 2^52 leases")]
            let tell =
                || gauge!(table::HELD_LEASES.name, "group" => group.as_str()).set(held as f64);
            told.held = if quietly(tell) { held } else { told.held };
        }
    }

    fn tell_total(&self, count: Count, total: u64) {
        let (metric, label) = count.series();
        let group = self.group.map(|group| ("group", group.as_str()));
        let labels = group.into_iter().chain(label);
        let labels: Vec<Label> = labels
            .map(|(key, word)| Label::from_static_parts(key, word))
            .collect();
        counter!(metric.name, labels).absolute(total);
    }
}

/// Runs code of the user's. Answers whether it came to its end.
pub(super) fn quietly(tell: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(tell)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_count_has_a_place_and_a_series_of_its_own() {
        let places: Vec<usize> = Count::all().map(Count::index).collect();
        assert_eq!(places, (0..Count::KINDS).collect::<Vec<_>>());
        let series = Count::all().map(|count| {
            let (metric, label) = count.series();
            (metric.name, label)
        });
        assert_eq!(series.collect::<HashSet<_>>().len(), Count::KINDS);
    }

    #[test]
    fn a_group_is_counted_in_one_place_and_what_has_none_in_another() {
        let counts = Counts::of(Group::DEFAULT);
        assert!(std::ptr::eq(counts, Counts::of(Group::DEFAULT)));
        assert!(!std::ptr::eq(counts, Counts::of(Group::OTHER)));
        let index = Count::EventDropped.index();
        let before = PROCESS.totals[index].load(Ordering::Relaxed);
        counts.add(Count::EventDropped, 2);
        assert_eq!(counts.totals[index].load(Ordering::Relaxed), 0);
        assert!(PROCESS.totals[index].load(Ordering::Relaxed) >= before + 2);
    }
}
