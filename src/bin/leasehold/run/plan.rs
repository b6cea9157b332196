//! The plan of a run, checked as a whole before anything is started.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::Name;
use leasehold::clock::Timing;
use leasehold::store::{Held, Info, MAX_KEEP};
use rustix::fs::{Access, access};

use crate::args;
use crate::choice::Choice;
use crate::exit::{Exit, Failure};
use crate::row::in_words;
use crate::say::Loudness;
use crate::span::{Span, as_typed};
use crate::status_file::Outer;
use crate::timeline::Distances;

/// A checked run.
#[derive(Debug)]
pub struct Plan {
    pub wanted: Wanted,
    pub distances: Distances,
    pub options: args::JobOptions,
}

/// The requested lease, of a run or of `hold`.
#[derive(Debug)]
pub struct Wanted {
    pub name: Name,
    pub timing: Timing,
    pub store: Choice,
    pub options: args::LeaseOptions,
    /// The runs in whose jobs this process is.
    pub outer: Vec<Outer>,
}

impl Plan {
    /// Checks the arguments.
    pub fn new(options: args::RunOptions) -> Result<Self, Failure> {
        let args::RunOptions { lease, job } = options;
        let wanted = Wanted::new(lease)?;
        let distances = distances(&wanted, job.kill_after.as_ref())?;
        check_limit("max-runtime", job.max_runtime.as_ref(), ANY)?;
        check_command(&wanted.options.name, &job.command)?;
        Ok(Self {
            wanted,
            distances,
            options: job,
        })
    }
}

impl Wanted {
    /// Checks the arguments.
    pub fn new(options: args::LeaseOptions) -> Result<Self, Failure> {
        let name = Name::new(&options.name)?;
        let timing = timing(&options)?;
        Info::here(options.label.as_deref())?;
        check_limit("max-hold", options.max_hold.as_ref(), ANY)?;
        check_limit("progress-within", options.progress_within.as_ref(), ANY)?;
        check_limit("hold-at-least", options.hold_at_least.as_ref(), KEPT)?;
        Ok(Self {
            name,
            timing,
            store: Choice::of(&options.store)?,
            options,
            outer: Outer::of_this_process(),
        })
    }

    /// Makes the failure of a run whose name another holder has. It is not printed with `--quiet`: the exit code says
    /// it.
    pub fn held(&self, held: &Held) -> Failure {
        Failure {
            loudness: Loudness::Normal,
            ..self.not_acquired(in_words(held))
        }
    }

    /// Makes the failure of a run that did not acquire the name within its limit, for any reason.
    pub fn not_acquired(&self, why: impl Display) -> Failure {
        let limit = self.options.wait.iter();
        let within = limit.map(|limit| format!(" within {}", limit.typed));
        let within = within.collect::<String>();
        let message = format!("{} not acquired{within}: {why}", self.name);
        let exit = match self.options.skip_ok {
            true => Exit::Success,
            false => Exit::Command(self.options.conflict_exit_code),
        };
        Failure {
            is_conflict: true,
            ..Failure::new(exit, message)
        }
    }
}

/// Checks ttl and margin.
fn timing(options: &args::LeaseOptions) -> Result<Timing, Failure> {
    let margin = options.margin.as_ref();
    let timing = Timing::new(options.ttl.time, margin.map(|margin| margin.time));
    timing.map_err(|error| as_typed(error.into(), &spans(options)))
}

/// Checks the time between TERM and KILL.
fn distances(wanted: &Wanted, kill_after: Option<&Span>) -> Result<Distances, Failure> {
    let distances = Distances::new(&wanted.timing, kill_after.map(|after| after.time));
    let [ttl, margin] = spans(&wanted.options);
    let spans = [ttl, margin, ("kill-after", kill_after)];
    distances.map_err(|error| as_typed(Failure::usage(error), &spans))
}

fn spans(options: &args::LeaseOptions) -> [(&'static str, Option<&Span>); 2] {
    [
        ("ttl", Some(&options.ttl)),
        ("margin", options.margin.as_ref()),
    ]
}

/// Maximum of a limit, and how messages write it.
type Most = (Duration, &'static str);
const ANY: Most = (Duration::MAX, "");
const KEPT: Most = (MAX_KEEP, " and at most 366 days");

/// Refuses a limit of zero, and a longer one than this.
fn check_limit(what: &str, limit: Option<&Span>, (most, at_most): Most) -> Result<(), Failure> {
    match limit {
        Some(limit) if limit.time.is_zero() || limit.time > most => Err(Failure::usage(format!(
            "{what} {} refused: expected more than 0s{at_most}",
            limit.typed
        ))),
        _ => Ok(()),
    }
}

/// Searches for the command as `execvp` will, so that a typing error is not found after hours of waiting.
fn check_command(name: &str, command: &[OsString]) -> Result<(), Failure> {
    let Some(program) = command.first() else {
        return Ok(());
    };
    let folders: Vec<PathBuf> = match std::env::var_os("PATH") {
        _ if program.as_encoded_bytes().contains(&b'/') => vec![program.into()],
        None => return Ok(()),
        Some(path) => std::env::split_paths(&path)
            .map(|folder| folder.join(program))
            .collect(),
    };
    if folders.iter().any(|path| is_executable(path)) {
        return Ok(());
    }
    let line = program.to_string_lossy();
    if folders.iter().any(|path| path.exists()) {
        let message = format!("cannot run {line}: it is not an executable file");
        return Err(Failure::new(Exit::NotExecutable, message));
    }
    let hint = match command.len() == 1 && line.contains(char::is_whitespace) {
        true => format!(
            "; for a line of a shell use: leasehold run {name} sh -c '{}'",
            line.replace('\'', "'\\''")
        ),
        false => String::new(),
    };
    let message = format!("cannot run {line}: there is no such command{hint}");
    Err(Failure::new(Exit::NotFound, message))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}
