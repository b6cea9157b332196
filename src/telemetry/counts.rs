//! Everything that is counted: totals that only rise and are never dropped.
//!
//! Counting is an addition. The recorder, which is the user's and may block or panic, gets the totals from the
//! reporter. Totals are *set* and not moved: a value that is set twice, or late, or in a recorder that was installed
//! late, is right all the same.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use metrics::{Label, counter};
use parking_lot::Mutex;

use super::metric::Metric;
use super::words::{
    AckOutcome, AcquireOutcome, CheckOutcome, ErrorLabel, LaneUse, NoticeOutcome, StoreCall,
    Trigger,
};
use super::{quietly, table};
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
    /// A call to a store failed.
    CallFailed(StoreCall, ErrorLabel),
    /// A connection to a store's server was made anew.
    Reconnected(LaneUse),
    /// A notice came.
    Noticed(NoticeOutcome),
    /// A write waited for replicas.
    Acknowledged(AckOutcome),
    /// A fence checked a pass.
    Checked(CheckOutcome),
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
    /// An event was dropped, because too many were waiting.
    EventDropped,
    /// A grant was refused because its token was not above one seen before.
    TokenFell,
    /// A group or a name was one too many.
    LabelFolded,
    /// A token brought no grant and is taken back from the members of a quorum.
    TakenBack,
    /// A lease is put back at a member of a quorum that lacks it.
    Repaired,
}

impl Count {
    /// All that are one word by themselves.
    const PLAIN: [Self; 14] = [
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
        Self::TakenBack,
        Self::Repaired,
    ];
    const ATTEMPTED: usize = AcquireOutcome::ALL.len();
    const LOST: usize = Self::ATTEMPTED + Trigger::ALL.len();
    const CALL_FAILED: usize = Self::LOST + LossReason::COUNTED.len();
    const RECONNECTED: usize = Self::CALL_FAILED + StoreCall::ALL.len() * ErrorLabel::ALL.len();
    const NOTICED: usize = Self::RECONNECTED + LaneUse::ALL.len();
    const ACKNOWLEDGED: usize = Self::NOTICED + NoticeOutcome::ALL.len();
    const CHECKED: usize = Self::ACKNOWLEDGED + AckOutcome::ALL.len();
    const FIRST_PLAIN: usize = Self::CHECKED + CheckOutcome::ALL.len();
    const KINDS: usize = Self::FIRST_PLAIN + Self::PLAIN.len();

    fn all() -> impl Iterator<Item = Self> {
        let failed = StoreCall::ALL.into_iter().flat_map(|call| {
            let errors = ErrorLabel::ALL.into_iter();
            errors.map(move |error| Self::CallFailed(call, error))
        });
        let acquired = AcquireOutcome::ALL.into_iter().map(Self::Acquired);
        acquired
            .chain(Trigger::ALL.into_iter().map(Self::Attempted))
            .chain(LossReason::COUNTED.into_iter().map(Self::Lost))
            .chain(failed)
            .chain(LaneUse::ALL.into_iter().map(Self::Reconnected))
            .chain(NoticeOutcome::ALL.into_iter().map(Self::Noticed))
            .chain(AckOutcome::ALL.into_iter().map(Self::Acknowledged))
            .chain(CheckOutcome::ALL.into_iter().map(Self::Checked))
            .chain(Self::PLAIN)
    }

    /// Its place in the order of [`all`](Self::all).
    fn index(self) -> usize {
        match self {
            Self::Acquired(outcome) => outcome as usize,
            Self::Attempted(trigger) => Self::ATTEMPTED + trigger as usize,
            Self::Lost(reason) => Self::LOST + reason as usize,
            Self::CallFailed(call, error) => {
                Self::CALL_FAILED + call as usize * ErrorLabel::ALL.len() + error as usize
            }
            Self::Reconnected(purpose) => Self::RECONNECTED + purpose as usize,
            Self::Noticed(outcome) => Self::NOTICED + outcome as usize,
            Self::Acknowledged(outcome) => Self::ACKNOWLEDGED + outcome as usize,
            Self::Checked(outcome) => Self::CHECKED + outcome as usize,
            plain => {
                let place = Self::PLAIN.iter().position(|count| *count == plain);
                Self::FIRST_PLAIN + place.expect("every other count is in the list")
            }
        }
    }

    /// The metric, and the values of its own labels in their order.
    const fn series(self) -> (&'static Metric, [Option<&'static str>; 2]) {
        let (metric, word) = match self {
            Self::CallFailed(call, error) => {
                let words = [Some(call.as_str()), Some(error.as_str())];
                return (&table::STORE_ERRORS, words);
            }
            Self::Acquired(outcome) => (&table::ACQUISITIONS, outcome.as_str()),
            Self::Attempted(trigger) => (&table::ACQUIRE_ATTEMPTS, trigger.as_str()),
            Self::Lost(reason) => (&table::LEASES_LOST, reason.as_str()),
            Self::Reconnected(purpose) => (&table::STORE_RECONNECTS, purpose.as_str()),
            Self::Noticed(outcome) => (&table::NOTICES, outcome.as_str()),
            Self::Acknowledged(outcome) => (&table::REPLICA_ACKS, outcome.as_str()),
            Self::Checked(outcome) => (&table::FENCE_CHECKS, outcome.as_str()),
            Self::Renewed => (&table::RENEWALS, "renewed"),
            Self::RenewalRefused => (&table::RENEWALS, "refused"),
            Self::RenewalUnknown => (&table::RENEWALS, "unknown"),
            Self::Released => (&table::RELEASES, "released"),
            Self::AlreadyLost => (&table::RELEASES, "already_lost"),
            Self::ReleaseUnknown => (&table::RELEASES, "unknown"),
            Self::Dropped => (&table::RELEASES, "dropped"),
            Self::JumpForward => (&table::CLOCK_JUMPS, "forward"),
            Self::JumpBackward => (&table::CLOCK_JUMPS, "backward"),
            Self::EventDropped => return (&table::EVENTS_DROPPED, [None; 2]),
            Self::TokenFell => return (&table::TOKENS_FALLEN, [None; 2]),
            Self::LabelFolded => return (&table::LABEL_OVERFLOW, [None; 2]),
            Self::TakenBack => return (&table::QUORUM_TAKEN_BACK, [None; 2]),
            Self::Repaired => return (&table::QUORUM_REPAIRS, [None; 2]),
        };
        (metric, [Some(word), None])
    }

    /// The label of the owner by which it is counted; `None` if it is counted once for the process.
    fn owner(self) -> Option<&'static str> {
        let labels = self.series().0.labels.iter().map(|label| label.name);
        labels.into_iter().find(|name| OWNERS.contains(name))
    }

    const fn is_of_process(self) -> bool {
        matches!(
            self,
            Self::JumpForward
                | Self::JumpBackward
                | Self::EventDropped
                | Self::TokenFell
                | Self::LabelFolded
        )
    }

    /// Returns whether it is shown only once it [can happen](Counts::show): not every store has replicas, for example.
    const fn is_special(self) -> bool {
        matches!(
            self,
            Self::Reconnected(_) | Self::Acknowledged(_) | Self::TakenBack | Self::Repaired
        )
    }
}

/// The labels whose values have totals of their own.
const OWNERS: [&str; 3] = ["group", "store", "fence"];

/// A label and its value. The process has none.
type OwnerLabel = Option<(&'static str, &'static str)>;

/// The totals of one owner: a group, the stores of one kind, the fences of one kind, or the process.
#[derive(Debug)]
pub(crate) struct Counts {
    owner: OwnerLabel,
    totals: [AtomicU64; Count::KINDS],
    is_shown: [AtomicBool; Count::KINDS],
    /// Calls of a group to acquire that are under way.
    pub(super) waiters: AtomicUsize,
}

/// The counts of all owners, which are few and kept for as long as the process lives.
static ALL: Mutex<Vec<&'static Counts>> = Mutex::new(Vec::new());
static PROCESS: LazyLock<&Counts> = LazyLock::new(|| Counts::of(None));
/// Most clients name no group, so theirs is found without a search.
static DEFAULT: LazyLock<&Counts> =
    LazyLock::new(|| Counts::of(Some(("group", Group::DEFAULT.as_str()))));

impl Counts {
    fn new(owner: OwnerLabel) -> Self {
        let counts = Self {
            owner,
            totals: [const { AtomicU64::new(0) }; Count::KINDS],
            is_shown: [const { AtomicBool::new(false) }; Count::KINDS],
            waiters: AtomicUsize::new(0),
        };
        let own = Count::all().filter(|count| count.owner() == owner.map(|(label, _)| label));
        own.filter(|count| !count.is_special())
            .for_each(|count| counts.show(count));
        counts
    }

    /// Those of this owner.
    pub(super) fn of(owner: OwnerLabel) -> &'static Self {
        let mut all = ALL.lock();
        if let Some(known) = all.iter().find(|counts| counts.owner == owner) {
            return known;
        }
        let counts: &'static Self = Box::leak(Box::new(Self::new(owner)));
        all.push(counts);
        counts
    }

    pub(super) fn of_group(group: Group) -> &'static Self {
        if group == Group::DEFAULT {
            return &DEFAULT;
        }
        Self::of(Some(("group", group.as_str())))
    }

    pub(super) fn of_process() -> &'static Self {
        &PROCESS
    }

    /// Those of every owner.
    pub(super) fn all() -> Vec<&'static Self> {
        ALL.lock().clone()
    }

    /// The group whose totals these are.
    pub(super) fn group(&self) -> Option<&'static str> {
        self.owner
            .and_then(|(label, group)| (label == "group").then_some(group))
    }

    pub(super) fn add(&self, count: Count, times: u64) {
        let counts = if count.is_of_process() {
            &PROCESS
        } else {
            self
        };
        counts.totals[count.index()].fetch_add(times, Ordering::Relaxed);
    }

    /// Shows a total from now on, from 0.
    pub(super) fn show(&self, count: Count) {
        self.is_shown[count.index()].store(true, Ordering::Relaxed);
    }

    /// Sets all totals that are shown in the recorder, zeros too, so that dashboards see no gaps.
    pub(super) fn tell(&self) {
        for count in Count::all() {
            if self.is_shown[count.index()].load(Ordering::Relaxed) {
                quietly(|| self.tell_total(count));
            }
        }
    }

    /// Sets one total in the recorder.
    pub(super) fn tell_total(&self, count: Count) {
        let total = self.totals[count.index()].load(Ordering::Relaxed);
        let (metric, words) = count.series();
        let keys = metric.labels.iter().map(|label| label.name);
        let keys = keys.filter(|key| !OWNERS.contains(key));
        let own = keys.zip(words.into_iter().flatten());
        let labels: Vec<Label> = (self.owner.into_iter().chain(own))
            .map(|(key, word)| Label::from_static_parts(key, word))
            .collect();
        counter!(metric.name, labels).absolute(total);
    }

    #[cfg(test)]
    pub(super) fn total(&self, count: Count) -> u64 {
        self.totals[count.index()].load(Ordering::Relaxed)
    }
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
            let (metric, words) = count.series();
            (metric.name, words)
        });
        assert_eq!(series.collect::<HashSet<_>>().len(), Count::KINDS);
    }

    #[test]
    fn every_label_of_a_count_is_in_the_table() {
        for count in Count::all() {
            let (metric, words) = count.series();
            let own = metric.labels.iter();
            let own: Vec<_> = own.filter(|label| !OWNERS.contains(&label.name)).collect();
            let words: Vec<_> = words.into_iter().flatten().collect();
            assert_eq!(own.len(), words.len(), "{count:?}");
            let is_known = own
                .iter()
                .zip(words)
                .all(|(label, word)| label.values.contains(&word));
            assert!(is_known, "{count:?}");
            assert_eq!(count.owner().is_none(), count.is_of_process(), "{count:?}");
        }
    }

    #[test]
    fn a_group_is_counted_in_one_place_and_what_has_none_in_another() {
        let counts = Counts::of_group(Group::DEFAULT);
        assert!(std::ptr::eq(counts, Counts::of_group(Group::DEFAULT)));
        assert!(!std::ptr::eq(counts, Counts::of_group(Group::OTHER)));
        let before = PROCESS.total(Count::EventDropped);
        counts.add(Count::EventDropped, 2);
        assert_eq!(counts.total(Count::EventDropped), 0);
        assert!(PROCESS.total(Count::EventDropped) >= before + 2);
    }
}
