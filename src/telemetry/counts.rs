//! Everything that is counted: totals that only rise and are never dropped, one for each series of a counter in the
//! [table](super::table).
//!
//! Counting is an addition. The recorder, which is the user's and may block or panic, gets the totals from the
//! reporter. Totals are *set* and not moved: a value that is set twice, or late, or in a recorder that was installed
//! late, is right all the same.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use metrics::{Label, counter};
use parking_lot::Mutex;

use super::metric::{Metric, MetricKind, MetricLabel};
use super::{quietly, table};
use crate::group::Group;

/// The labels whose values have totals of their own.
const OWNERS: [&str; 3] = ["group", "store", "fence"];

/// Counters that are shown only once they [can rise](Counts::show): not every store has replicas, for example.
const SPECIAL: [Metric; 4] = [
    table::STORE_RECONNECTS,
    table::REPLICA_ACKS,
    table::QUORUM_TAKEN_BACK,
    table::QUORUM_REPAIRS,
];

/// A label and its value. The process has none.
type OwnerLabel = Option<(&'static str, &'static str)>;

/// The totals of one owner: a group, the stores of one kind, the fences of one kind, or the process.
#[derive(Debug)]
pub(crate) struct Counts {
    owner: OwnerLabel,
    /// The series of each metric in the table, which are none but for this owner's counters.
    totals: Vec<Vec<Total>>,
    /// Calls of a group to acquire that are under way.
    pub(super) waiters: AtomicUsize,
}

/// One series: a counter, and the values of its labels besides the owner's, in their order.
#[derive(Debug)]
struct Total {
    metric: &'static Metric,
    words: Vec<&'static str>,
    value: AtomicU64,
    is_shown: AtomicBool,
}

/// The counts of all owners, which are few and kept for as long as the process lives.
static ALL: Mutex<Vec<&'static Counts>> = Mutex::new(Vec::new());
static PROCESS: LazyLock<&Counts> = LazyLock::new(|| Counts::of(None));
/// Most clients name no group, so theirs is found without a search.
static DEFAULT: LazyLock<&Counts> =
    LazyLock::new(|| Counts::of(Some(("group", Group::DEFAULT.as_str()))));

impl Counts {
    fn new(owner: OwnerLabel) -> Self {
        let label = owner.map(|(label, _)| label);
        let is_counted = |metric: &Metric| {
            metric.kind == MetricKind::Counter && !metric.is_of_tool && owner_of(metric) == label
        };
        let series = |metric| is_counted(metric).then(|| Total::all_of(metric));
        let totals = table::ALL.iter().map(series);
        Self {
            owner,
            totals: totals.map(Option::unwrap_or_default).collect(),
            waiters: AtomicUsize::new(0),
        }
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

    /// Adds to the total of these words.
    pub(super) fn add(&self, metric: &Metric, words: &[&str], times: u64) {
        if let Some(total) = self.total(metric, words) {
            total.value.fetch_add(times, Ordering::Relaxed);
        }
    }

    /// Shows a total from now on, from 0.
    pub(super) fn show(&self, metric: &Metric, words: &[&str]) {
        if let Some(total) = self.total(metric, words) {
            total.is_shown.store(true, Ordering::Relaxed);
        }
    }

    /// `None` for words that the table lacks: they are not counted, as a panic could end the watchdog's thread.
    fn total(&self, metric: &Metric, words: &[&str]) -> Option<&Total> {
        let mut series = self.totals[metric.place].iter();
        series.find(|total| total.words == words)
    }

    /// Sets all totals that are shown in the recorder, zeros too, so that dashboards see no gaps.
    pub(super) fn tell(&self) {
        for total in self.totals.iter().flatten() {
            if total.is_shown.load(Ordering::Relaxed) {
                quietly(|| total.tell(self.owner));
            }
        }
    }

    /// Sets one total in the recorder.
    pub(super) fn tell_total(&self, metric: &Metric, words: &[&str]) {
        if let Some(total) = self.total(metric, words) {
            total.tell(self.owner);
        }
    }

    #[cfg(test)]
    pub(super) fn value(&self, metric: &Metric, words: &[&str]) -> u64 {
        let total = self.total(metric, words).expect("the table has it");
        total.value.load(Ordering::Relaxed)
    }
}

impl Total {
    /// The totals of a counter, one for each combination of words.
    fn all_of(metric: &'static Metric) -> Vec<Self> {
        let mut series = vec![vec![]];
        for label in own_labels(metric) {
            let with = |words: Vec<_>| {
                let values = label.values.iter();
                values.map(move |word| [&words[..], &[*word]].concat())
            };
            series = series.into_iter().flat_map(with).collect();
        }
        let is_special = SPECIAL.iter().any(|special| special.name == metric.name);
        let total = |words| Self {
            metric,
            words,
            value: AtomicU64::new(0),
            is_shown: AtomicBool::new(!is_special),
        };
        series.into_iter().map(total).collect()
    }

    fn tell(&self, owner: OwnerLabel) {
        let own = own_labels(self.metric).map(|label| label.name);
        let labels: Vec<Label> = (owner.into_iter().chain(own.zip(self.words.iter().copied())))
            .map(|(key, word)| Label::from_static_parts(key, word))
            .collect();
        counter!(self.metric.name, labels).absolute(self.value.load(Ordering::Relaxed));
    }
}

/// The label of the owner by which it is counted; `None` if it is counted once for the process.
fn owner_of(metric: &Metric) -> Option<&'static str> {
    let labels = metric.labels.iter().map(|label| label.name);
    labels.into_iter().find(|name| OWNERS.contains(name))
}

/// The labels besides the owner's.
fn own_labels(metric: &Metric) -> impl Iterator<Item = &'static MetricLabel> {
    let labels = metric.labels.iter();
    labels.filter(|label| !OWNERS.contains(&label.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_counted_at_its_own_words() {
        let counts = Counts::new(Some(("store", "series")));
        counts.add(&table::STORE_ERRORS, &["renew", "lost"], 2);
        counts.add(&table::STORE_ERRORS, &["renew", "closed"], 1);
        let of = |words| counts.value(&table::STORE_ERRORS, words);
        assert_eq!(of(&["renew", "lost"]), 2);
        assert_eq!(of(&["renew", "closed"]), 1);
        assert_eq!(of(&["list", "lost"]), 0);
    }

    #[test]
    fn words_that_the_table_lacks_are_not_counted_and_end_no_thread() {
        let counts = Counts::new(Some(("group", "series")));
        counts.add(&table::LEASES_LOST, &["released"], 1);
        counts.add(&table::STORE_ERRORS, &["renew", "lost"], 1);
        let mut totals = counts.totals.iter().flatten();
        assert!(totals.all(|total| total.value.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn every_counter_of_the_library_has_an_owner_and_a_value_for_each_label() {
        let owners = [None, Some("group"), Some("store"), Some("fence")];
        let counts = owners.map(|label| Counts::new(label.map(|label| (label, "one"))));
        for metric in table::ALL.iter().filter(|metric| !metric.is_of_tool) {
            let mut totals = counts
                .iter()
                .flat_map(|counts| counts.totals.iter().flatten());
            let is_counted = totals.any(|total| total.metric.name == metric.name);
            let is_counter = metric.kind == MetricKind::Counter;
            assert_eq!(is_counted, is_counter, "{}", metric.name);
        }
    }

    #[test]
    fn a_group_is_counted_in_one_place_and_what_has_none_in_another() {
        let counts = Counts::of_group(Group::DEFAULT);
        assert!(std::ptr::eq(counts, Counts::of_group(Group::DEFAULT)));
        assert!(!std::ptr::eq(counts, Counts::of_group(Group::OTHER)));
        assert!(!std::ptr::eq(counts, Counts::of_process()));
    }
}
