//! All numbers that are shown: one [`Series`] for each metric of the [table](super::table) and each combination of its
//! label values.
//!
//! Counters and gauges are numbers in memory, so counting is an addition. The recorder, which is the user's and may
//! block or panic, gets them from the reporter. They are *set* and not moved: a value that is set twice, or late, or in
//! a recorder that was installed late, is right all the same. Only samples of histograms go to the recorder at once.

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use metrics::{IntoF64, Key, Label, Level, Metadata};
use parking_lot::Mutex;

use super::metric::{Metric, MetricKind, MetricLabel};
use super::names::Names;
use super::reporter::note_activity;
use super::stores::ConnectionGauge;
use super::{quietly, table};
use crate::group::Group;

/// The labels whose values have series of their own.
const OWNERS: [&str; 3] = ["group", "store", "fence"];

/// Metrics that are shown only once they [can have a value](Sink::show): not every store has replicas, for example.
const SPECIAL: [Metric; 6] = [
    table::STORE_CONNECTED,
    table::STORE_MEMBERS,
    table::STORE_RECONNECTS,
    table::REPLICA_ACKS,
    table::QUORUM_TAKEN_BACK,
    table::QUORUM_REPAIRS,
];

static METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

/// A label and its value. The process has none.
type OwnerLabel = Option<(&'static str, &'static str)>;

/// The series of one owner: a group, the stores of one kind, the fences of one kind, or the process.
#[derive(Debug)]
pub(crate) struct Sink {
    owner: OwnerLabel,
    /// The series of each metric in the table; empty for metrics of other owners.
    all: Vec<Vec<Series>>,
    /// Calls of a group to acquire that are under way.
    pub(super) waiters: AtomicUsize,
    /// The names of a group that have series of their own.
    pub(super) names: Mutex<Names>,
    /// The connections of the stores of one kind.
    pub(super) connections: Mutex<Vec<Weak<ConnectionGauge>>>,
}

/// One series of a metric. Its key is made once, because a sample that made its own would allocate it.
#[derive(Debug)]
struct Series {
    kind: MetricKind,
    /// The values of the labels besides the owner's, in their order.
    words: Vec<&'static str>,
    key: Key,
    /// The total of a counter, or the bits of the value of a gauge.
    value: AtomicU64,
    is_shown: AtomicBool,
}

/// The sinks of all owners, which are few and kept for as long as the process lives.
static ALL: Mutex<Vec<&'static Sink>> = Mutex::new(Vec::new());

impl Sink {
    fn new(owner: OwnerLabel) -> Self {
        let label = owner.map(|(label, _)| label);
        let is_owned = |metric: &Metric| !metric.is_of_tool && owner_of(metric) == label;
        let series = |metric| is_owned(metric).then(|| Series::all_of(metric, owner));
        let all = table::ALL.iter().map(series);
        Self {
            owner,
            all: all.map(Option::unwrap_or_default).collect(),
            waiters: AtomicUsize::new(0),
            names: Mutex::default(),
            connections: Mutex::default(),
        }
    }

    /// Returns the sink of this owner.
    pub(super) fn of(owner: OwnerLabel) -> &'static Self {
        let mut all = ALL.lock();
        if let Some(known) = all.iter().find(|sink| sink.owner == owner) {
            return known;
        }
        let sink: &'static Self = Box::leak(Box::new(Self::new(owner)));
        all.push(sink);
        sink
    }

    pub(crate) fn of_group(group: Group) -> &'static Self {
        Self::of(Some(("group", group.as_str())))
    }

    /// Returns the sink of the stores of this kind.
    pub(crate) fn of_store(kind: &'static str) -> &'static Self {
        Self::of(Some(("store", kind)))
    }

    pub(super) fn of_process() -> &'static Self {
        Self::of(None)
    }

    /// Returns the sinks of every owner.
    pub(super) fn all() -> Vec<&'static Self> {
        ALL.lock().clone()
    }

    /// The group whose series these are.
    pub(crate) fn group(&self) -> Option<&'static str> {
        let group = self.owner.filter(|(label, _)| *label == "group");
        group.map(|(_, group)| group)
    }

    /// Adds to the total of a counter with these words.
    pub(super) fn add(&self, counter: &Metric, words: &[&str], times: u64) {
        if let Some(series) = self.series(counter, words) {
            series.value.fetch_add(times, Ordering::SeqCst);
            note_activity();
        }
    }

    /// Sets a gauge with these words, and shows it from now on.
    pub(super) fn set(&self, gauge: &Metric, words: &[&str], value: f64) {
        if let Some(series) = self.series(gauge, words) {
            series.value.store(value.to_bits(), Ordering::Relaxed);
            series.is_shown.store(true, Ordering::Relaxed);
        }
    }

    /// Records a sample of a histogram with these words. The recorder runs in this call.
    pub(super) fn record(&self, histogram: &Metric, words: &[&str], sample: impl IntoF64) {
        if let Some(Series { key, .. }) = self.series(histogram, words) {
            let histogram = metrics::with_recorder(|to| to.register_histogram(key, &METADATA));
            histogram.record(sample);
            note_activity();
        }
    }

    /// Shows a counter from now on, from 0.
    pub(super) fn show(&self, counter: &Metric, words: &[&str]) {
        if let Some(series) = self.series(counter, words) {
            series.is_shown.store(true, Ordering::Relaxed);
        }
    }

    /// `None` for words that the table lacks: they are not counted, as a panic could end the watchdog's thread.
    fn series(&self, metric: &Metric, words: &[&str]) -> Option<&Series> {
        let mut all = self.all[metric.index].iter();
        all.find(|series| series.words == words)
    }

    /// Sets all counters and gauges that are shown in the recorder, zeros too, so that dashboards see no gaps.
    pub(super) fn tell(&self) {
        for series in self.all.iter().flatten() {
            if series.is_shown.load(Ordering::Relaxed) {
                quietly(|| series.tell());
            }
        }
    }

    /// Sets one counter in the recorder.
    pub(super) fn tell_one(&self, counter: &Metric, words: &[&str]) {
        if let Some(series) = self.series(counter, words) {
            series.tell();
        }
    }

    #[cfg(test)]
    pub(super) fn value(&self, metric: &Metric, words: &[&str]) -> u64 {
        let series = self.series(metric, words).expect("the table has it");
        series.value.load(Ordering::Relaxed)
    }
}

impl Series {
    /// The series of a metric, one for each combination of words.
    fn all_of(metric: &'static Metric, owner: OwnerLabel) -> Vec<Self> {
        let mut all = vec![vec![]];
        for label in own_labels(metric) {
            let with = |words: Vec<_>| {
                let values = label.values.iter();
                values.map(move |word| [&words[..], &[*word]].concat())
            };
            all = all.into_iter().flat_map(with).collect();
        }
        let is_special = SPECIAL.iter().any(|special| special.name == metric.name);
        // No lease has a deadline before the first one is held.
        let is_nan = metric.name == table::SOONEST_DEADLINE.name;
        let series = |words: Vec<&'static str>| {
            let own = own_labels(metric).map(|label| label.name);
            let labels = owner.into_iter().chain(own.zip(words.iter().copied()));
            let labels = labels.map(|(key, word)| Label::from_static_parts(key, word));
            Self {
                kind: metric.kind,
                key: Key::from_parts(metric.name, labels.collect::<Vec<_>>()),
                words,
                value: AtomicU64::new(if is_nan { f64::NAN.to_bits() } else { 0 }),
                is_shown: AtomicBool::new(!is_special),
            }
        };
        all.into_iter().map(series).collect()
    }

    fn tell(&self) {
        let value = self.value.load(Ordering::SeqCst);
        metrics::with_recorder(|to| match self.kind {
            MetricKind::Counter => to.register_counter(&self.key, &METADATA).absolute(value),
            MetricKind::Gauge => {
                let gauge = to.register_gauge(&self.key, &METADATA);
                gauge.set(f64::from_bits(value));
            }
            MetricKind::Histogram => {}
        });
    }
}

/// The label of the owner that has the series of this metric; `None` if that is the process.
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
        let sink = Sink::new(Some(("store", "series")));
        sink.add(&table::STORE_ERRORS, &["renew", "lost"], 2);
        sink.add(&table::STORE_ERRORS, &["renew", "closed"], 1);
        let of = |words| sink.value(&table::STORE_ERRORS, words);
        assert_eq!(of(&["renew", "lost"]), 2);
        assert_eq!(of(&["renew", "closed"]), 1);
        assert_eq!(of(&["list", "lost"]), 0);
    }

    #[test]
    fn words_that_the_table_lacks_are_not_counted_and_end_no_thread() {
        let sink = Sink::new(Some(("fence", "series")));
        sink.add(&table::FENCE_CHECKS, &["released"], 1);
        sink.add(&table::STORE_ERRORS, &["renew", "lost"], 1);
        let mut series = sink.all.iter().flatten();
        assert!(series.all(|series| series.value.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn every_metric_of_the_library_has_an_owner_and_a_value_for_each_label() {
        let owners = [None, Some("group"), Some("store"), Some("fence")];
        let sinks = owners.map(|label| Sink::new(label.map(|label| (label, "one"))));
        for metric in table::ALL.iter().filter(|metric| !metric.is_of_tool) {
            let is_open = own_labels(metric).any(|label| label.values.is_empty());
            let mut all = sinks.iter().flat_map(|sink| &sink.all[metric.index]);
            assert_eq!(all.next().is_some(), !is_open, "{}", metric.name);
            assert!(
                !is_open || metric.kind == MetricKind::Gauge,
                "{}",
                metric.name
            );
        }
    }

    #[test]
    fn a_group_is_counted_apart_from_what_has_none() {
        let sink = Sink::of_group(Group::DEFAULT);
        assert!(std::ptr::eq(sink, Sink::of_group(Group::DEFAULT)));
        assert!(!std::ptr::eq(sink, Sink::of_group(Group::OTHER)));
        assert!(!std::ptr::eq(sink, Sink::of_process()));
    }
}
