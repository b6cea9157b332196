//! The recorder of this process: what the library and the tool count, as text for Prometheus.

use leasehold::metrics::{MetricKind, buckets, table, update};
use metrics::Unit;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::exit::Failure;

/// The recorder. A clone is the same.
#[derive(Clone)]
pub struct Recorder(PrometheusHandle);

impl Recorder {
    /// Installs it for this process, which has one at most.
    pub fn install() -> Result<Self, Failure> {
        let failed =
            |error: &dyn std::fmt::Display| Failure::internal("cannot start metrics", error);
        let mut builder = PrometheusBuilder::new();
        for (name, bounds) in buckets() {
            builder = builder
                .set_buckets_for_metric(Matcher::Full(name.into()), bounds)
                .map_err(|error| failed(&error))?;
        }
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder).map_err(|error| failed(&error))?;
        describe();
        Ok(Self(handle))
    }

    /// A recorder that is not installed.
    #[cfg(test)]
    pub fn of_test() -> Self {
        Self(PrometheusBuilder::new().build_recorder().handle())
    }

    /// Returns all current values in the text format of Prometheus.
    pub fn text(&self) -> String {
        update();
        self.0.render()
    }

    /// Cleans up samples while nothing reads them.
    pub fn tidy(&self) {
        self.0.run_upkeep();
    }
}

/// Describes the metrics of the tool. Those of the library are described by the library.
fn describe() {
    for metric in table().iter().filter(|metric| metric.is_of_tool) {
        let unit = metric.unit.map(|_| Unit::Seconds);
        let (name, help) = (metric.name.into(), metric.help.into());
        metrics::with_recorder(|recorder| match metric.kind {
            MetricKind::Counter => recorder.describe_counter(name, unit, help),
            MetricKind::Gauge => recorder.describe_gauge(name, unit, help),
            MetricKind::Histogram => recorder.describe_histogram(name, unit, help),
        });
    }
}
