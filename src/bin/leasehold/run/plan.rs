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
    pub name: Name,
    pub timing: Timing,
    pub distances: Distances,
    pub store: Choice,
    pub options: args::RunOptions,
    /// The runs in whose jobs this run is.
    pub outer: Vec<Outer>,
}

impl Plan {
    /// Checks the arguments.
    pub fn new(options: args::RunOptions) -> Result<Self, Failure> {
        let name = Name::new(&options.name)?;
        let (timing, distances) = times(&options)?;
        Info::here(options.label.as_deref())?;
        check_limits(&options)?;
        check_command(&options.name, &options.command)?;
        Ok(Self {
            name,
            timing,
            distances,
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

/// Checks ttl, margin and the time between TERM and KILL.
fn times(arguments: &args::RunOptions) -> Result<(Timing, Distances), Failure> {
    let spans = [
        ("ttl", Some(&arguments.ttl)),
        ("margin", arguments.margin.as_ref()),
        ("kill-after", arguments.kill_after.as_ref()),
    ];
    let time = |(_, span): (&str, Option<&Span>)| span.map(|span| span.time);
    let timing = Timing::new(arguments.ttl.time, time(spans[1]));
    let timing = timing.map_err(|error| as_typed(error.into(), &spans))?;
    let distances = Distances::new(&timing, time(spans[2]));
    let distances = distances.map_err(|error| as_typed(Failure::usage(error), &spans))?;
    Ok((timing, distances))
}

/// Refuses a limit of zero, and a `--hold-at-least` longer than a name may stay taken without a renewal.
fn check_limits(options: &args::RunOptions) -> Result<(), Failure> {
    let any = (Duration::MAX, "");
    let kept = (MAX_KEEP, " and at most 366 days");
    for (what, limit, (most, at_most)) in [
        ("max-runtime", &options.max_runtime, any),
        ("max-hold", &options.max_hold, any),
        ("progress-within", &options.progress_within, any),
        ("hold-at-least", &options.hold_at_least, kept),
    ] {
        if let Some(limit) = limit
            && (limit.time.is_zero() || limit.time > most)
        {
            return Err(Failure::usage(format!(
                "{what} {} refused: expected more than 0s{at_most}",
                limit.typed
            )));
        }
    }
    Ok(())
}

/// Looks for the command as `execvp` will, so that a typing error is not found after hours of waiting.
fn check_command(name: &str, command: &[OsString]) -> Result<(), Failure> {
    let Some(program) = command.first() else {
        return Ok(());
    };
    let places: Vec<PathBuf> = match std::env::var_os("PATH") {
        _ if program.as_encoded_bytes().contains(&b'/') => vec![program.into()],
        None => return Ok(()),
        Some(path) => std::env::split_paths(&path)
            .map(|folder| folder.join(program))
            .collect(),
    };
    if places.iter().any(|path| is_executable(path)) {
        return Ok(());
    }
    let line = program.to_string_lossy();
    if places.iter().any(|path| path.exists()) {
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
