//! The outcome of a run, for `--report FILE`: what ended the job and why, because a job may use any exit code itself.

use std::io;
use std::path::{Path, PathBuf};

use leasehold::Lease;
use leasehold::clock::{Boottime, Clock, Instant};
use serde::Serialize;

use super::outcome::Outcome;
use super::plan::Plan;
use crate::channel::End;
use crate::exit::{Exit, Failure};
use crate::file;
use crate::span::milliseconds;
use crate::timeline::Cause;

/// The report's content. Fields are added, never renamed.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    version: u32,
    name: String,
    group: Option<String>,
    outcome: &'static str,
    /// `command`, or `leasehold` if the tool ended the run.
    decided_by: Option<&'static str>,
    /// The reason in words, if the tool ended the run.
    why: Option<String>,
    exit_code: Option<u8>,
    command_code: Option<u8>,
    command_signal: Option<i32>,
    pub token: Option<u64>,
    pub holder: Option<String>,
    /// The number of the permit, with `--permits` or `--shared`.
    permit: Option<u16>,
    waited_ms: Option<u64>,
    held_ms: Option<u64>,
    /// Processes that left the job's group and are still running.
    left_pids: Vec<i32>,
}

/// A report that is being written.
#[derive(Debug)]
pub struct Reporter {
    path: Option<PathBuf>,
    report: Report,
    began: Instant,
    acquired: Option<Instant>,
}

impl Reporter {
    /// Writes that the run has begun, so that a path that cannot be written is found before the command runs.
    pub fn begin(plan: &Plan) -> Result<Self, Failure> {
        let report = Report {
            version: 1,
            name: plan.name.to_string(),
            group: plan.options.group.clone(),
            outcome: "running",
            ..Report::default()
        };
        let path = plan.options.report.clone();
        if let Some(path) = &path {
            write(path, &report).map_err(|error| {
                let path = path.display();
                Failure::usage(format!(
                    "report {path} refused: {error}; expected a path that can be written"
                ))
            })?;
        }
        Ok(Self {
            path,
            report,
            began: Boottime.now(),
            acquired: None,
        })
    }

    /// Adds the grant of the lease.
    pub fn acquired(&mut self, lease: &Lease, permit: Option<u16>) {
        let now = Boottime.now();
        self.acquired = Some(now);
        self.report.token = Some(lease.token().get());
        self.report.holder = Some(lease.holder().to_string());
        self.report.permit = permit;
        self.report.waited_ms = Some(milliseconds(now.since(self.began)));
    }

    /// Adds the end of the job.
    pub fn ended(&mut self, outcome: &Outcome) {
        match outcome.end {
            Some((End::Code(code), _)) => self.report.command_code = Some(code),
            Some((End::Signal(number), _)) => self.report.command_signal = Some(number),
            None => {}
        }
        self.report.why = outcome.cause().map(Cause::in_words).map(Into::into);
        self.report.left_pids.clone_from(&outcome.strays);
    }

    /// Writes the report at the end of the run.
    pub fn finish(mut self, result: &Result<Exit, Failure>) -> io::Result<()> {
        let Some(path) = self.path.take() else {
            return Ok(());
        };
        let exit = match result {
            Ok(exit) => *exit,
            Err(failure) => {
                self.report.why = Some(failure.message.clone());
                failure.exit
            }
        };
        let was_started =
            self.report.command_code.is_some() || self.report.command_signal.is_some();
        (self.report.outcome, self.report.decided_by) = match (result, exit) {
            (Ok(Exit::Command(_) | Exit::Signal(_)), _) => ("ended", Some("command")),
            (_, Exit::Lost) => ("lost", Some("leasehold")),
            (_, Exit::MaxRuntime) => ("max_runtime", Some("leasehold")),
            (Err(failure), _) if failure.is_conflict => ("not_acquired", Some("leasehold")),
            (_, Exit::Signal(_)) => ("interrupted", Some("leasehold")),
            _ if was_started => ("ended", Some("command")),
            _ => ("failed", Some("leasehold")),
        };
        self.report.exit_code = Some(exit.code());
        self.report.held_ms = self
            .acquired
            .map(|acquired| milliseconds(Boottime.now().since(acquired)));
        write(&path, &self.report)
    }
}

fn write(path: &Path, report: &Report) -> io::Result<()> {
    let text = serde_json::to_string_pretty(report)? + "\n";
    file::replace(path, text.as_bytes(), 0o666)
}
