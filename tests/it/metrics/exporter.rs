//! A real exporter, installed for the whole process, and what it shows.

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::harness::alone::{alone_as, test_of};
use crate::harness::wait::until;

/// The exporter of this process.
pub(crate) struct Exporter(PrometheusHandle);

impl Exporter {
    /// Installs it, with our buckets. Once in a process.
    pub(crate) fn install() -> Self {
        let mut builder = PrometheusBuilder::new();
        for (name, bounds) in leasehold::metrics::buckets() {
            let matcher = Matcher::Full(name.into());
            builder = builder.set_buckets_for_metric(matcher, bounds).unwrap();
        }
        Self(builder.install_recorder().unwrap())
    }

    /// What it shows without being brought up to date.
    pub(crate) fn text(&self) -> String {
        self.0.run_upkeep();
        self.0.render()
    }

    /// The value of the one series whose line has this name and all these labels.
    pub(crate) fn value(&self, name: &str, labels: &[&str]) -> Option<f64> {
        series_value(&self.text(), name, labels)
    }

    /// Waits until this series has such a value, as the reporter tells it by itself.
    pub(crate) async fn is_told(
        &self,
        name: &str,
        labels: &[&str],
        is_right: impl Fn(f64) -> bool,
    ) {
        let what = format!("{name} {labels:?}");
        let look = async || self.value(name, labels).filter(|value| is_right(*value));
        until(&what, look).await;
    }

    /// Waits until this series has such a value, and looks at it more often than it is told.
    pub(crate) async fn shows(&self, name: &str, labels: &[&str], is_right: impl Fn(f64) -> bool) {
        let what = format!("{name} {labels:?}");
        let look = async || {
            leasehold::metrics::update();
            self.value(name, labels).filter(|value| is_right(*value))
        };
        until(&what, look).await;
    }

    /// The same for a value of at least one.
    pub(crate) async fn counts(&self, name: &str, labels: &[&str]) {
        self.shows(name, labels, |value| value >= 1.0).await;
    }
}

fn series_value(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut found = lines.filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let rest = series.strip_prefix(name)?;
        let is_whole = rest.is_empty() || rest.starts_with('{');
        let has = |label: &&str| rest.contains(*label);
        (is_whole && labels.iter().all(has)).then(|| value.parse().unwrap())
    });
    let first = found.next();
    assert!(
        found.next().is_none(),
        "{name} {labels:?} is not one series"
    );
    first
}

/// Runs this closure of a test, which is its whole body, in a process of its own, which has an exporter.
pub(crate) fn run(body: impl AsyncFnOnce(Exporter)) {
    alone_as(test_of(&body), || {
        let exporter = Exporter::install();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(body(exporter));
    });
}
