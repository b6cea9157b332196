//! The outcome of a run, for `--report FILE`: what ended the job and why. The exit code cannot say it, because a job
//! may use any code itself.

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

/// The outcome of a run. The file is written when the run begins, and again at its end; a pipe or a device gets only
/// the latter.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Report {
    #[serde(skip)]
    output: Option<Output>,
    #[serde(skip)]
    began: Option<Instant>,
    /// Version of this format.
    version: u32,
    /// The name that the run was asked for.
    name: String,
    /// The group of its metrics; `null` without `--group`.
    group: Option<String>,
    outcome: RunState,
    /// Who ended the run; `null` until then.
    decided_by: Option<Decider>,
    /// The reason in words, if the tool ended the run or failed; otherwise `null`.
    why: Option<String>,
    /// The exit code of the run; `null` until its end.
    exit_code: Option<u8>,
    /// The exit code of the command; `null` if it was not started, or a signal ended it.
    command_code: Option<u8>,
    /// The number of the signal that ended the command; `null` if none did.
    command_signal: Option<i32>,
    /// The fencing token; `null` if the lease was not acquired.
    pub token: Option<u64>,
    /// The identity of the claim; `null` if the lease was not acquired.
    pub holder: Option<String>,
    /// The number of the permit; `null` without `--permits` and `--shared`.
    permit: Option<u16>,
    /// Time from the start of the run to the grant of the lease; `null` if it was not acquired.
    waited_ms: Option<u64>,
    /// Time that the lease was held until its job had ended; `null` until then, and if it was not acquired.
    pub held_ms: Option<u64>,
    /// Processes that left the job's session and are still running.
    left_pids: Vec<i32>,
    /// Processes of the job that could not be ended.
    unended_pids: Vec<i32>,
}

/// The state of a run.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum RunState {
    /// it has not ended, or was killed
    #[default]
    Running,
    /// the command ended by itself
    Ended,
    /// the lease was lost, and the job was ended
    Lost,
    /// `--max-runtime` was over, and the job was ended
    MaxRuntime,
    /// another holder has the name
    NotAcquired,
    /// a signal ended the run while it waited
    Interrupted,
    /// the store or the tool failed, and no command was started
    Failed,
}

/// Who ended a run.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum Decider {
    /// the command, by its own end
    Command,
    /// the tool
    Leasehold,
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
            name: plan.wanted.name.to_string(),
            group: plan.wanted.options.group.clone(),
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
        let (outcome, decided_by) = match (result, exit) {
            (Ok(Exit::Command(_) | Exit::Signal(_) | Exit::Told(_)), _) => {
                (RunState::Ended, Decider::Command)
            }
            (_, Exit::Lost) => (RunState::Lost, Decider::Leasehold),
            (_, Exit::MaxRuntime) => (RunState::MaxRuntime, Decider::Leasehold),
            (Err(failure), _) if failure.is_conflict => (RunState::NotAcquired, Decider::Leasehold),
            (_, Exit::Told(_)) => (RunState::Interrupted, Decider::Leasehold),
            _ if was_started => (RunState::Ended, Decider::Command),
            _ => (RunState::Failed, Decider::Leasehold),
        };
        self.outcome = outcome;
        self.decided_by = Some(decided_by);
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
