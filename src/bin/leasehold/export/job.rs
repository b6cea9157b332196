//! The metrics of one job: in a file, at an address, or both.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use leasehold::clock::wall_clock;
use leasehold::metrics::table;
use metrics::{Label, counter, gauge, histogram};
use metrics_exporter_prometheus::formatting::sanitize_label_value;
use serde::Serialize;

use super::http::{self, Content, Pages, Status};
use super::recorder::Recorder;
use super::textfile::{self, TextFile};
use crate::args::{LeaseOptions, MetricsOptions};
use crate::exit::{Exit, Failure};
use crate::say;

/// The series that an earlier run may have left in the file: the ends of jobs, and the last success.
const EXITS: &str = "leasehold_run_exits_total";
const LAST_SUCCESS: &str = "leasehold_run_last_success_timestamp_seconds";

/// The current state of a run.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct JobStatus {
    /// Version of this format.
    version: u32,
    /// The name that the run was asked for.
    name: String,
    /// The group of its metrics: `default` without `--group`.
    group: String,
    state: State,
    /// The process of the tool.
    pid: u32,
}

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// it waits for its name
    Waiting,
    /// it waits for its name, and has not reached its store for 5 s
    Outage,
    /// its job runs
    Held,
    /// its job has ended, or the run has
    Ended,
}

/// The metrics of a job that runs.
pub struct JobMetrics {
    /// The group and the name.
    labels: [Label; 2],
    file: Option<TextFile>,
    pages: Arc<Pages>,
}

impl JobMetrics {
    /// Starts them, if they have a destination.
    pub async fn start(
        lease: &LeaseOptions,
        options: &MetricsOptions,
    ) -> Result<Option<Self>, Failure> {
        let (file, address) = (&options.metrics_file, &options.metrics);
        if file.is_none() && address.is_none() {
            return Ok(None);
        }
        let recorder = Recorder::install()?;
        let group = lease.group.as_deref().unwrap_or("default").to_owned();
        let name = lease.name.clone();
        let labels = [Label::new("group", group), Label::new("name", name)];
        let first = content(&labels, State::Waiting);
        let mut metrics = Self {
            labels,
            file: None,
            pages: Arc::new(Pages::new(recorder.clone(), first)),
        };
        let earlier = match file {
            Some(path) => textfile::read(path.clone()).await,
            None => String::new(),
        };
        metrics.begin(&earlier);
        if let Some(path) = file.clone() {
            metrics.file = Some(TextFile::start(path, recorder).await?);
        }
        if let Some(address) = address {
            metrics.serve(http::address(address)?)?;
        }
        Ok(Some(metrics))
    }

    /// Serves them at this address, unless another job of this machine does: metrics do not decide whether a job runs.
    fn serve(&self, address: SocketAddr) -> Result<(), Failure> {
        match http::bind(address) {
            Ok(listener) => {
                let address = http::serve(listener, self.pages.clone())?;
                let message = format_args!("metrics are served at http://{address}/metrics");
                say::detail("metrics", message);
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                let message = format_args!(
                    "metrics are not served: another process has the address {address}"
                );
                say::note("metrics", message);
            }
            Err(error) => return Err(http::refused(address, &error)),
        }
        Ok(())
    }

    /// Sets the series of the job, and goes on from what an earlier run left in the file.
    fn begin(&self, text: &str) {
        let label = |label: &Label| {
            let value = sanitize_label_value(label.value());
            format!("{}=\"{value}\"", label.key())
        };
        let labels: Vec<_> = self.labels.iter().map(label).collect();
        let labels = labels.join(",");
        for reason in reasons() {
            let series = format!("{EXITS}{{{labels},reason=\"{reason}\"}}");
            self.exits(reason, earlier(text, &series).unwrap_or_default());
        }
        if let Some(at) = earlier::<f64>(text, &format!("{LAST_SUCCESS}{{{labels}}}")) {
            self.set(LAST_SUCCESS, at);
        }
        self.set("leasehold_run_in_progress", false);
        self.waits(false);
    }

    /// The run waits for its name, and its store can be reached or cannot.
    pub fn waits(&self, is_outage: bool) {
        self.set("leasehold_run_outage", is_outage);
        self.show(if is_outage {
            State::Outage
        } else {
            State::Waiting
        });
    }

    fn set(&self, name: &'static str, value: impl Into<f64>) {
        gauge!(name, self.labels.to_vec()).set(value.into());
    }

    fn exits(&self, reason: &'static str, more: u64) {
        let mut labels = self.labels.to_vec();
        labels.push(Label::new("reason", reason));
        counter!(EXITS, labels).increment(more);
    }

    fn show(&self, state: State) {
        let content = content(&self.labels, state);
        self.pages.content.send_replace(content);
    }

    /// The lease was granted, and the job begins.
    pub fn acquired(&self) {
        self.waits(false);
        self.set("leasehold_run_in_progress", true);
        self.show(State::Held);
    }

    /// The job has ended, under a lease that was held for this long.
    pub fn ended(&self, held_for: Duration) {
        self.set("leasehold_run_in_progress", false);
        histogram!("leasehold_run_duration_seconds", self.labels.to_vec()).record(held_for);
        self.show(State::Ended);
    }

    /// The run has ended.
    pub async fn finish(self, result: &Result<Exit, Failure>) {
        let reason = reason(result);
        self.exits(reason, 1);
        if reason == "success" {
            let now = wall_clock().duration_since(SystemTime::UNIX_EPOCH);
            let now = now.unwrap_or(Duration::ZERO).as_secs_f64();
            self.set(LAST_SUCCESS, now);
        }
        self.show(State::Ended);
        if let Some(file) = self.file {
            file.finish().await;
        }
    }
}

/// Returns what the pages of a run show in this state.
pub fn content([group, name]: &[Label; 2], state: State) -> Content {
    Content {
        is_ready: state == State::Held,
        status: Status::Job(JobStatus {
            version: 1,
            name: name.value().into(),
            group: group.value().into(),
            state,
            pid: std::process::id(),
        }),
        snapshot: None,
    }
}

/// What ended the run: the command itself, or leasehold for one of the other reasons.
fn reason(result: &Result<Exit, Failure>) -> &'static str {
    match result {
        Err(failure) if failure.is_conflict => "held",
        Ok(Exit::Command(0) | Exit::Success) => "success",
        Ok(exit) | Err(Failure { exit, .. }) => match exit {
            Exit::Signal(_) | Exit::Told(_) => "signal",
            Exit::Lost => "lost",
            Exit::MaxRuntime => "time_limit",
            Exit::Unreachable | Exit::Denied | Exit::Misconfigured => "store",
            _ => "failure",
        },
    }
}

/// Returns the reasons why a job ends.
fn reasons() -> &'static [&'static str] {
    let mut metrics = table().iter().filter(|metric| metric.name == EXITS);
    let mut labels = metrics.next().into_iter().flat_map(|exits| exits.labels);
    let reason = labels.find(|label| label.name == "reason");
    reason.map_or(&[], |reason| reason.values)
}

/// Returns the value of this series in an earlier file, as the exporter writes it.
fn earlier<T: FromStr>(text: &str, series: &str) -> Option<T> {
    let mut lines = text.lines().filter_map(|line| line.rsplit_once(' '));
    lines.find(|(known, _)| *known == series)?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_values_of_the_same_job_are_read() {
        let text = "\
# HELP leasehold_run_exits_total Jobs that ended
leasehold_run_exits_total{group=\"g\",name=\"a\",reason=\"success\"} 3
leasehold_run_exits_total{group=\"g\",name=\"b\",reason=\"lost\"} 7
leasehold_run_last_success_timestamp_seconds{group=\"g\",name=\"a\"} 1800000000.5
nonsense
";
        let exits = |name: &str, reason: &str| {
            let series = format!("{EXITS}{{group=\"g\",name=\"{name}\",reason=\"{reason}\"}}");
            earlier::<u64>(text, &series)
        };
        assert_eq!(exits("a", "success"), Some(3));
        assert_eq!((exits("a", "lost"), exits("c", "success")), (None, None));
        let last = earlier(text, &format!("{LAST_SUCCESS}{{group=\"g\",name=\"a\"}}"));
        assert_eq!(last, Some(1_800_000_000.5));
    }

    #[test]
    fn each_end_has_a_reason_of_the_table() {
        let failed = |exit| Err(Failure::new(exit, "x"));
        let held = Failure {
            is_conflict: true,
            ..Failure::new(Exit::Success, "skipped")
        };
        for (result, expected) in [
            (Ok(Exit::Command(0)), "success"),
            (Ok(Exit::Command(3)), "failure"),
            (Ok(Exit::Signal(9)), "signal"),
            (Ok(Exit::Lost), "lost"),
            (Ok(Exit::MaxRuntime), "time_limit"),
            (Err(held), "held"),
            (failed(Exit::Told(15)), "signal"),
            (failed(Exit::Unreachable), "store"),
            (failed(Exit::NotFound), "failure"),
        ] {
            assert_eq!(reason(&result), expected, "{result:?}");
            assert!(reasons().contains(&expected), "{expected}");
        }
    }
}
