//! The description of one metric, for recorders, the page and the tests.

use metrics::Unit;

use crate::words::words;

/// A metric of leasehold: its name, its meaning, and its labels.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Metric {
    /// The name, as an exporter shows it.
    pub name: &'static str,
    /// Whether it is a counter, a gauge or a histogram.
    pub kind: MetricKind,
    /// The unit of its value, in the plural. `None` for a number of things or a ratio.
    pub unit: Option<&'static str>,
    /// The description of the value, as one sentence.
    pub help: &'static str,
    /// Its labels. Every series of it has all of them.
    pub labels: &'static [MetricLabel],
    /// The upper bounds of a histogram's buckets, in rising order. Empty for a counter or a gauge.
    pub buckets: &'static [f64],
    /// Whether the command-line tool exports it, and not the library.
    pub is_of_tool: bool,
    /// Its index in the table.
    pub(super) index: usize,
}

words! {
    /// The type of a metric. Its words are those of Prometheus.
    pub enum MetricKind {
        /// A total that only rises.
        Counter = "counter",
        /// A value that goes up and down.
        Gauge = "gauge",
        /// Samples, counted by bucket.
        Histogram = "histogram",
    }
}

/// A label of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetricLabel {
    /// The key.
    pub name: &'static str,
    /// Every value that it can have. Empty if the values are the user's, such as groups and names, or depend on the
    /// store.
    pub values: &'static [&'static str],
}

impl Metric {
    /// Returns the unit of a metric of this name: its last word, where that is one.
    pub(super) const fn unit_of(name: &str) -> Option<&'static str> {
        match name.as_bytes() {
            [.., b'_', b's', b'e', b'c', b'o', b'n', b'd', b's'] => Some("seconds"),
            _ => None,
        }
    }

    /// Describes it to the recorder.
    pub(super) fn describe(&self) {
        let unit = self.unit.map(|_| Unit::Seconds);
        let (name, help) = (self.name.into(), self.help.into());
        metrics::with_recorder(|recorder| match self.kind {
            MetricKind::Counter => recorder.describe_counter(name, unit, help),
            MetricKind::Gauge => recorder.describe_gauge(name, unit, help),
            MetricKind::Histogram => recorder.describe_histogram(name, unit, help),
        });
    }
}
