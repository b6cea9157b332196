//! The metrics of one job: in a file, at an address, or both.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use leasehold::clock::{Boottime, Clock, Instant, wall_clock};
use metrics::{Label, counter, gauge, histogram};
use serde_json::json;

use super::address;
use super::earlier::Earlier;
use super::http;
use super::pages::Pages;
use super::recorder::{Recorder, labels_of_job};
use super::textfile::TextFile;
use crate::exit::{Exit, Failure};
use crate::say;

/// The reasons for which a job ends.
const REASONS: [&str; 7] = [
    "success",
    "failure",
    "signal",
    "lost",
    "time_limit",
    "held",
    "store",
];

/// Where the metrics of a job go.
#[derive(Debug, Clone, Default)]
pub struct Places {
    pub file: Option<PathBuf>,
    pub address: Option<String>,
}

/// The metrics of a job that runs.
pub struct JobMetrics {
    name: String,
    group: String,
    file: Option<TextFile>,
    pages: Arc<Pages>,
    acquired_at: Option<Instant>,
}

impl JobMetrics {
    /// Starts them, if they have a place to go to.
    pub fn start(
        places: &Places,
        name: &str,
        group: Option<&str>,
    ) -> Result<Option<Self>, Failure> {
        if places.file.is_none() && places.address.is_none() {
            return Ok(None);
        }
        let recorder = Recorder::install()?;
        let (text, tidied) = (recorder.clone(), recorder.clone());
        let pages = Pages::new(move || text.text()).with_tidy(move || tidied.tidy());
        let mut metrics = Self {
            name: name.into(),
            group: group.unwrap_or("default").into(),
            file: None,
            pages: Arc::new(pages),
            acquired_at: None,
        };
        metrics.begin(places);
        if let Some(path) = places.file.clone() {
            metrics.file = Some(TextFile::start(path, recorder)?);
        }
        if let Some(address) = &places.address {
            let address = address::parse(address).map_err(|expected| {
                Failure::usage(format!("metrics address {address:?} refused: {expected}"))
            })?;
            let address = http::serve(address, metrics.pages.clone())?;
            say::detail(
                "metrics",
                format_args!("metrics are served at http://{address}/metrics"),
            );
        }
        Ok(Some(metrics))
    }

    /// Sets the series of the job, and goes on from what an earlier run left in the file.
    fn begin(&self, places: &Places) {
        let text = places.file.as_ref().map(std::fs::read_to_string);
        let text = text.and_then(Result::ok).unwrap_or_default();
        let quoted = |text: &str| {
            text.replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n")
        };
        let labels = format!(
            "group=\"{}\",name=\"{}\"",
            quoted(&self.group),
            quoted(&self.name)
        );
        let earlier = Earlier::read(&text, &labels);
        for reason in REASONS {
            let count = earlier.exits.iter().find(|(known, _)| known == reason);
            self.exits(reason, count.map_or(0, |(_, count)| *count));
        }
        if let Some(at) = earlier.last_success {
            gauge!(
                "leasehold_run_last_success_timestamp_seconds",
                self.labels()
            )
            .set(at);
        }
        self.set_in_progress(false);
        self.waits(false);
    }

    /// The run waits for its name, and its store can be reached or cannot.
    pub fn waits(&self, is_outage: bool) {
        gauge!("leasehold_run_outage", self.labels()).set(f64::from(is_outage));
        self.show(if is_outage { "outage" } else { "waiting" });
    }

    fn labels(&self) -> Vec<Label> {
        labels_of_job(&self.group, &self.name)
    }

    fn exits(&self, reason: &'static str, more: u64) {
        let mut labels = self.labels();
        labels.push(Label::new("reason", reason));
        counter!("leasehold_run_exits_total", labels).increment(more);
    }

    fn set_in_progress(&self, is_in_progress: bool) {
        gauge!("leasehold_run_in_progress", self.labels()).set(f64::from(is_in_progress));
    }

    fn show(&self, state: &'static str) {
        let status = json!({
            "version": 1,
            "name": self.name,
            "group": self.group,
            "state": state,
            "pid": std::process::id(),
        });
        self.pages.set(state == "held", status);
    }

    /// The lease was granted, and the job begins.
    pub fn acquired(&mut self) {
        self.acquired_at = Some(Boottime.now());
        self.waits(false);
        self.set_in_progress(true);
        self.show("held");
    }

    /// The job is over.
    pub fn ended(&self) {
        self.set_in_progress(false);
        self.show("ended");
    }

    /// The run is over.
    pub fn finish(self, result: &Result<Exit, Failure>) {
        let reason = reason(result);
        self.exits(reason, 1);
        self.set_in_progress(false);
        if let Some(at) = self.acquired_at {
            let took = Boottime.now().since(at);
            histogram!("leasehold_run_duration_seconds", self.labels()).record(took);
        }
        if reason == "success" {
            let now = wall_clock().duration_since(SystemTime::UNIX_EPOCH);
            let now = now.unwrap_or(Duration::ZERO).as_secs_f64();
            gauge!(
                "leasehold_run_last_success_timestamp_seconds",
                self.labels()
            )
            .set(now);
        }
        self.show("ended");
        if let Some(file) = self.file {
            file.finish();
        }
    }
}

/// Who or what ended the run: the command by its own end, or leasehold for one of the other reasons.
fn reason(result: &Result<Exit, Failure>) -> &'static str {
    match result {
        Err(failure) if failure.is_conflict => "held",
        Ok(Exit::Command(0) | Exit::Success) => "success",
        Ok(exit) | Err(Failure { exit, .. }) => match exit {
            Exit::Signal(_) => "signal",
            Exit::Lost => "lost",
            Exit::MaxRuntime => "time_limit",
            Exit::Unreachable | Exit::Denied | Exit::Misconfigured => "store",
            _ => "failure",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            (failed(Exit::Signal(15)), "signal"),
            (failed(Exit::Unreachable), "store"),
            (failed(Exit::NotFound), "failure"),
        ] {
            assert_eq!(reason(&result), expected, "{result:?}");
        }
        let table = leasehold::metrics::table().iter();
        let mut exits = table.filter(|metric| metric.name == "leasehold_run_exits_total");
        let labels = exits.next().expect("in the table").labels;
        let label = labels.iter().find(|label| label.name == "reason");
        assert_eq!(label.expect("a label").values, REASONS);
    }
}
