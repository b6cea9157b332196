//! What is counted by group, and for the process: totals that are never dropped.
//!
//! Counting is an addition. The recorder, which is the user's and may block or panic, is told the totals by the
//! reporter. Totals are *set* and not moved: a value that is told twice, or late, or to a recorder that was installed
//! late, is right all the same.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use metrics::{Label, counter};

use super::metric::Metric;
use super::quietly;
use super::table;
use super::words::{AcquireOutcome, Trigger};
use crate::group::Group;
use crate::reason::LossReason;

/// Something that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    /// A call to acquire ended.
    Acquired(AcquireOutcome),
    /// A call to acquire asked the store.
    Attempted(Trigger),
    /// A lease was lost while it was held.
    Lost(LossReason),
    /// A lease was renewed.
    Renewed,
    /// The store refused to renew a lease.
    RenewalRefused,
    /// A renewal got no answer.
    RenewalUnknown,
    /// A release gave the name back.
    Released,
    /// A guard ended whose lease was lost before.
    AlreadyLost,
    /// A release got no answer.
    ReleaseUnknown,
    /// A guard was dropped without a release, while its lease was held.
    Dropped,
    /// The server's clock stepped forward.
    JumpForward,
    /// The server's clock stepped back.
    JumpBackward,
    /// An event was not told, because too many were waiting.
    EventDropped,
    /// A grant was refused because its token was not above one seen before.
    TokenFell,
    /// A group or a name was one too many.
    LabelFolded,
}

impl Count {
    /// All that are one word by themselves.
    const PLAIN: [Self; 12] = [
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
        Self::TokenFell,
        Self::LabelFolded,
    ];
    const ATTEMPTED: usize = AcquireOutcome::ALL.len();
    const LOST: usize = Self::ATTEMPTED + Trigger::ALL.len();
    const FIRST_PLAIN: usize = Self::LOST + LossReason::ALL.len();
    const KINDS: usize = Self::FIRST_PLAIN + Self::PLAIN.len();

    fn all() -> impl Iterator<Item = Self> {
        let acquired = AcquireOutcome::ALL.into_iter().map(Self::Acquired);
        let attempted = Trigger::ALL.into_iter().map(Self::Attempted);
        let lost = LossReason::ALL.into_iter().map(Self::Lost);
        acquired.chain(attempted).chain(lost).chain(Self::PLAIN)
    }

    /// Its place in the order of [`all`](Self::all).
    fn index(self) -> usize {
        match self {
            Self::Acquired(outcome) => outcome as usize,
            Self::Attempted(trigger) => Self::ATTEMPTED + trigger as usize,
            Self::Lost(reason) => Self::LOST + reason as usize,
            plain => {
                let place = Self::PLAIN.iter().position(|count| *count == plain);
                Self::FIRST_PLAIN + place.expect("every other count is in the list")
            }
        }
    }

    /// The metric, and its own label beside the group.
    const fn series(self) -> (&'static Metric, Option<(&'static str, &'static str)>) {
        match self {
            Self::Acquired(end) => (&table::ACQUISITIONS, Some(("outcome", end.as_str()))),
            Self::Attempted(why) => (&table::ACQUIRE_ATTEMPTS, Some(("trigger", why.as_str()))),
            Self::Lost(reason) => (&table::LEASES_LOST, Some(("reason", reason.as_str()))),
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
            Self::TokenFell => (&table::TOKENS_FALLEN, None),
            Self::LabelFolded => (&table::LABEL_OVERFLOW, None),
        }
    }

    /// Whether it is counted by group; if not, once for the process.
    const fn has_group(self) -> bool {
        !matches!(
            self,
            Self::JumpForward
                | Self::JumpBackward
                | Self::EventDropped
                | Self::TokenFell
                | Self::LabelFolded
        )
    }
}

/// The totals of one group; there is one of them for what has no group.
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) group: Option<Group>,
    totals: [AtomicU64; Count::KINDS],
    /// Calls to acquire that are under way.
    pub(super) waiters: AtomicUsize,
}

static PROCESS: Counts = Counts::new(None);
/// Most clients name no group, so theirs is found without a search.
static DEFAULT: Counts = Counts::new(Some(Group::DEFAULT));
static IS_DEFAULT_USED: AtomicBool = AtomicBool::new(false);
/// As many as there are groups, which are few and kept for as long as the process lives.
static GROUPS: Mutex<Vec<&'static Counts>> = Mutex::new(Vec::new());

impl Counts {
    const fn new(group: Option<Group>) -> Self {
        Self {
            group,
            totals: [const { AtomicU64::new(0) }; Count::KINDS],
            waiters: AtomicUsize::new(0),
        }
    }

    /// Those of this group.
    pub(super) fn of(group: Group) -> &'static Self {
        if group == Group::DEFAULT {
            // Loaded first: a shared cache line is not to be written by every call.
            if !IS_DEFAULT_USED.load(Ordering::Relaxed) {
                IS_DEFAULT_USED.store(true, Ordering::Relaxed);
            }
            return &DEFAULT;
        }
        let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
        let known = groups.iter().find(|counts| counts.group == Some(group));
        if let Some(known) = known {
            return known;
        }
        let counts: &'static Self = Box::leak(Box::new(Self::new(Some(group))));
        groups.push(counts);
        counts
    }

    /// Those of every group that any client of this process had.
    pub(super) fn of_all_groups() -> Vec<&'static Self> {
        let groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
        let default = IS_DEFAULT_USED.load(Ordering::Relaxed).then_some(&DEFAULT);
        default.into_iter().chain(groups.iter().copied()).collect()
    }

    pub(super) fn add(&self, count: Count, times: u64) {
        let home = if count.has_group() { self } else { &PROCESS };
        home.totals[count.index()].fetch_add(times, Ordering::Relaxed);
    }

    /// Tells the recorder the totals of what has no group.
    pub(super) fn tell_process() {
        PROCESS.tell();
    }

    /// Tells the recorder these totals, zeros too, so that dashboards see no gaps.
    pub(super) fn tell(&self) {
        let own = Count::all().enumerate();
        for (index, count) in own.filter(|(_, count)| count.has_group() == self.group.is_some()) {
            let total = self.totals[index].load(Ordering::Relaxed);
            quietly(|| self.tell_total(count, total));
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

/// Counts what has no group, on whatever thread.
pub(super) fn count_for_process(count: Count) {
    PROCESS.add(count, 1);
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
    fn every_label_of_a_count_is_in_the_table() {
        for count in Count::all() {
            let (metric, label) = count.series();
            let own = metric.labels.iter().filter(|label| label.name != "group");
            let own: Vec<_> = own.map(|label| (label.name, label.values)).collect();
            match label {
                None => assert!(own.is_empty(), "{count:?}"),
                Some((key, word)) => {
                    assert!(own.len() == 1 && own[0].0 == key, "{count:?}");
                    assert!(own[0].1.contains(&word), "{count:?}");
                }
            }
            let has_group = metric.labels.iter().any(|label| label.name == "group");
            assert_eq!(has_group, count.has_group(), "{count:?}");
        }
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
