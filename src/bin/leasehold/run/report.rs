//! The outcome of a run, for `--report FILE`: what ended the job and why, because a job may use any exit code itself.

use std::io;
use std::path::Path;

use leasehold::Lease;
use leasehold::clock::{Boottime, Clock, Instant};
use serde::Serialize;

use super::outcome::Outcome;
use super::plan::Plan;
use crate::channel::End;
use crate::exit::{Exit, Failure};
use crate::file::Output;
use crate::span::milliseconds;
use crate::timeline::Cause;

/// The report. Fields are added, never renamed.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    #[serde(skip)]
    output: Option<Output>,
    #[serde(skip)]
    began: Option<Instant>,
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
    /// For how long the lease was held until its job had ended.
    pub held_ms: Option<u64>,
    /// Processes that left the job's session and are still running.
    left_pids: Vec<i32>,
    /// Processes of the job that could not be ended.
    unended_pids: Vec<i32>,
}

impl Report {
    /// Writes that the run has begun, so that a path that cannot be written is found before the command runs. A device
    /// or a pipe is opened, and gets only the outcome.
    pub fn begin(plan: &Plan) -> Result<Self, Failure> {
        let refused = |error: io::Error| {
            let path = plan.options.report.as_deref().unwrap_or(Path::new(""));
            Failure::usage(format!(
                "report {} refused: {error}; expected a path that can be written",
                path.display()
            ))
        };
        let output = plan.options.report.as_deref().map(Output::open);
        let report = Self {
            output: output.transpose().map_err(refused)?,
            began: Some(Boottime.now()),
            version: 1,
            name: plan.name.to_string(),
            group: plan.options.group.clone(),
            outcome: "running",
            ..Self::default()
        };
        if let Some(Output::File(_)) = &report.output {
            report.write().map_err(refused)?;
        }
        Ok(report)
    }

    /// Adds the grant of the lease.
    pub fn acquired(&mut self, lease: &Lease, permit: Option<u16>) {
        let now = Boottime.now();
        self.token = Some(lease.token().get());
        self.holder = Some(lease.holder().to_string());
        self.permit = permit;
        self.waited_ms = self.began.map(|began| milliseconds(now.since(began)));
    }

    /// Adds the end of the job.
    pub fn ended(&mut self, outcome: &Outcome) {
        match outcome.end {
            Some((End::Code(code), _)) => self.command_code = Some(code),
            Some((End::Signal(number), _)) => self.command_signal = Some(number),
            None => {}
        }
        self.why = outcome.cause().map(Cause::in_words).map(Into::into);
        self.left_pids.clone_from(&outcome.strays);
        self.unended_pids.clone_from(&outcome.left);
    }

    /// Writes the report at the end of the run.
    pub fn finish(mut self, result: &Result<Exit, Failure>) -> io::Result<()> {
        let exit = match result {
            Ok(exit) => *exit,
            Err(failure) => {
                self.why = Some(failure.message.clone());
                failure.exit
            }
        };
        let was_started = self.command_code.is_some() || self.command_signal.is_some();
        (self.outcome, self.decided_by) = match (result, exit) {
            (Ok(Exit::Command(_) | Exit::Signal(_) | Exit::Told(_)), _) => {
                ("ended", Some("command"))
            }
            (_, Exit::Lost) => ("lost", Some("leasehold")),
            (_, Exit::MaxRuntime) => ("max_runtime", Some("leasehold")),
            (Err(failure), _) if failure.is_conflict => ("not_acquired", Some("leasehold")),
            (_, Exit::Told(_)) => ("interrupted", Some("leasehold")),
            _ if was_started => ("ended", Some("command")),
            _ => ("failed", Some("leasehold")),
        };
        self.exit_code = Some(exit.code());
        self.write()
    }

    fn write(&self) -> io::Result<()> {
        let Some(output) = &self.output else {
            return Ok(());
        };
        let text = serde_json::to_string_pretty(self)? + "\n";
        output.write(text.as_bytes())
    }
}
