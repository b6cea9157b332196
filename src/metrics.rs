#![doc = include_str!("metrics.md")]

pub use crate::telemetry::{Metric, MetricKind, MetricLabel};

use crate::telemetry;

/// Every metric, in the order of the table above: those of the library, then those of the tool.
pub fn table() -> &'static [Metric] {
    telemetry::ALL
}

/// The bucket bounds of each histogram by the name of the metric, for an exporter that has to know them. Without them
/// `metrics-exporter-prometheus` shows summaries, which cannot be added up over processes.
/// That exporter has each by `builder.set_buckets_for_metric(Matcher::Full(name.into()), bounds)?`.
///
/// ```
/// for (name, bounds) in leasehold::metrics::buckets() {
///     println!("{name} {bounds:?}");
/// }
/// ```
pub fn buckets() -> impl Iterator<Item = (&'static str, &'static [f64])> {
    let histograms = table().iter().filter(|metric| !metric.buckets.is_empty());
    histograms.map(|metric| (metric.name, metric.buckets))
}

/// Sets every counter and gauge of this process in the recorder that is installed now, and describes each metric to it.
///
/// A process that holds leases does so by itself once a second. Call it before the metrics are read where that second
/// matters: at the end of a short job, or in each scrape. Call it also in a process that has no client and only guards
/// storage.
pub fn update() {
    telemetry::update();
}
