//! What can be typed. What it means is decided where it is used.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use leasehold::term::Timing;

use crate::exit::Exit;
use crate::timeline::Distances;

/// Runs a command while holding a lease, and ends it before anybody else can hold it
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, propagate_version = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Run(Box<RunOptions>),
    Status(StatusOptions),
    /// In a job: exit 0 while its lease is held, 79 if it is not, 64 outside of a job
    Check,
    Wait(WaitOptions),
    Evict(EvictOptions),
    Completions(CompletionsOptions),
    /// Print the man page
    Man,
}

/// Run a command while holding a lease
#[derive(Debug, Args)]
#[command(after_help = run_help())]
pub struct RunOptions {
    /// What to hold: 1 to 512 bytes without control characters, '{' or '}'
    pub name: String,

    /// The command and its arguments; no shell in between
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,

    /// Do not wait: exit 75 at once if somebody else holds the name
    #[arg(short, long, conflicts_with = "wait")]
    pub nonblock: bool,

    /// Wait for this long at most, then exit 75 [default: without limit]
    #[arg(short, long, value_name = "DURATION", value_parser = duration)]
    pub wait: Option<Duration>,

    /// Wait in turn: served after whoever came earlier with --fair, and before everybody else. Not with -n: what does not
    /// wait has no turn, and overtakes nobody who waits in turn
    #[arg(long, value_name = "true|false", action = ArgAction::Set, num_args = 0..=1, require_equals = true)]
    #[arg(
        default_missing_value = "true",
        default_value_t = false,
        hide_default_value = true
    )]
    #[arg(hide_possible_values = true, conflicts_with = "nonblock")]
    pub fair: bool,

    /// How long the store keeps the lease without a renewal
    #[arg(long, value_name = "DURATION", default_value = "30s", env = "LEASEHOLD_TTL", value_parser = duration)]
    pub ttl: Duration,

    /// How much earlier than the store we hold it to be over [default: ttl/50 + 20ms]
    #[arg(long, value_name = "DURATION", env = "LEASEHOLD_MARGIN", value_parser = duration)]
    pub margin: Option<Duration>,

    /// The time between TERM and KILL when the job is ended [default: a third of the ttl, at most 10s]
    #[arg(long, value_name = "DURATION", env = "LEASEHOLD_KILL_AFTER", value_parser = duration)]
    pub kill_after: Option<Duration>,

    /// End the job after this long, and exit 124
    #[arg(long, value_name = "DURATION", env = "LEASEHOLD_MAX_RUNTIME", value_parser = duration)]
    pub max_runtime: Option<Duration>,

    /// Hold the lease for this long at most, then end the job and exit 79
    #[arg(long, value_name = "DURATION", env = "LEASEHOLD_MAX_HOLD", value_parser = duration)]
    pub max_hold: Option<Duration>,

    /// Keep the name taken for this long in all, also when the job ends sooner
    #[arg(long, value_name = "DURATION", env = "LEASEHOLD_HOLD_AT_LEAST", value_parser = duration)]
    pub hold_at_least: Option<Duration>,

    /// The token must be above this one, which storage has seen
    #[arg(long, value_name = "TOKEN")]
    pub min_token: Option<String>,

    /// What others are told about the holder
    #[arg(long, value_name = "TEXT", env = "LEASEHOLD_LABEL")]
    pub label: Option<String>,

    /// Under which the lease is counted and logged, together with others
    #[arg(long, value_name = "WORD", env = "LEASEHOLD_GROUP")]
    pub group: Option<String>,

    #[command(flatten)]
    pub conflict: ConflictOptions,

    #[command(flatten)]
    pub store: StoreOptions,

    /// Write what became of the run to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,

    /// Say what happens as JSON, one object a line
    #[arg(long)]
    pub json: bool,

    /// Say each step
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,

    /// Say only why the tool failed, or ended the job; that somebody else holds the name is left to the exit code
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(Debug, Args)]
pub struct ConflictOptions {
    /// The exit code if somebody else holds the name
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = Exit::NotAcquired.code())]
    pub conflict_exit_code: u8,

    /// Exit 0 if somebody else holds the name
    #[arg(long, conflicts_with = "conflict_exit_code")]
    pub skip_ok: bool,
}

/// Show who holds a name, or all names
#[derive(Debug, Args)]
pub struct StatusOptions {
    /// Only this name
    pub name: Option<String>,

    /// A list of objects
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub store: StoreOptions,
}

/// Wait until a name is free, without taking it
#[derive(Debug, Args)]
pub struct WaitOptions {
    /// The name
    pub name: String,

    /// Wait for this long at most, then exit 75 [default: without limit]
    #[arg(short, long, value_name = "DURATION", value_parser = duration)]
    pub wait: Option<Duration>,

    #[command(flatten)]
    pub store: StoreOptions,
}

/// Take a name from its holder
#[derive(Debug, Args)]
pub struct EvictOptions {
    /// The name
    pub name: String,

    /// Free it at once, although the holder may work on until its next renewal; without this the name stays taken for the
    /// rest of the holder's ttl, and its job is ended before
    #[arg(long)]
    pub now: bool,

    #[command(flatten)]
    pub store: StoreOptions,
}

/// Print completions for a shell
#[derive(Debug, Args)]
pub struct CompletionsOptions {
    /// The shell
    pub shell: Shell,
}

#[derive(Debug, Args)]
pub struct StoreOptions {
    /// Where the leases are: redis://HOST, rediss://HOST, redis+unix:PATH or sqlite:PATH [env: LEASEHOLD_STORE] [default: a
    /// file of this user]
    #[arg(long = "store", value_name = "URL")]
    pub url: Option<String>,

    /// Read that URL from a file, so that its password is in no list of processes [env: LEASEHOLD_STORE_FILE]
    #[arg(long = "store-file", value_name = "FILE", conflicts_with = "url")]
    pub file: Option<PathBuf>,

    /// How long the first contact with the store may take, else exit 69
    #[arg(long, value_name = "DURATION", default_value = "5s", env = "LEASEHOLD_CONNECT_TIMEOUT", value_parser = duration)]
    pub connect_timeout: Duration,

    /// Read settings from this file only [default: ~/.config/leasehold/config.toml over /etc/leasehold.toml]
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_CONFIG")]
    pub config: Option<PathBuf>,
}

const RUN_HELP: &str = "\
Examples:
  leasehold run nightly -- ./backup.sh            wait for the lease, then run
  leasehold run -n nightly -- ./backup.sh         or exit 75 if somebody else runs it
  leasehold run -w 5min --store redis://db nightly -- ./backup.sh

The command sees LEASEHOLD_NAME, LEASEHOLD_TOKEN, LEASEHOLD_HOLDER, LEASEHOLD_TTL_MS and LEASEHOLD_STATUS_FILE.
Hand the token to your storage with each write, and have it refuse what is lower than it has seen.

Settings come from options, else from the environment, else from the configuration file, whose keys are long options
(ttl = \"1min\"), else from the defaults.

Exit codes:
  the command's own, or 128+n if signal n ended it
  64   bad argument, nothing was started
  69   the store cannot be reached
  75   somebody else holds the name (-E, --skip-ok)
  77   the store refuses our credentials
  78   the store cannot do its work
  79   the lease was lost, and the job stopped
  124  the job ran for longer than --max-runtime
  125  leasehold itself failed
  126  the command cannot be run
  127  there is no such command

When the store cannot be reached, the job is stopped in time. It survives an outage of
2/3 ttl - kill-after - margin - min(250ms, ttl/20):
";

/// The outages, as the tool itself would count them.
fn run_help() -> String {
    let mut text = String::from(RUN_HELP);
    for seconds in [5, 30, 60, 300] {
        let timing = Timing::new(Duration::from_secs(seconds), None).expect("within the limits");
        let distances = Distances::new(&timing, None).expect("the default fits every ttl");
        let _ = writeln!(
            text,
            "  ttl {:>4}   kill-after {:>5}   {:>7}",
            format!("{:?}", timing.ttl()),
            format!("{:.1?}", distances.kill_after()),
            format!("{:.1?}", distances.outage(&timing)),
        );
    }
    text
}

impl Arguments {
    /// Reads the command line. `Err` has been printed already, as help and versions are.
    pub fn read() -> Result<Self, Exit> {
        Self::try_parse().map_err(|error| {
            // A closed pipe is not worth a word.
            let _ = error.print();
            match error.use_stderr() {
                true => Exit::Usage,
                false => Exit::Success,
            }
        })
    }

    /// Reads it once more, with other defaults where there are some.
    pub fn with_defaults(default_of: impl Fn(&Arg) -> Option<String>) -> Result<Self, clap::Error> {
        let set = |option: Arg| match default_of(&option) {
            Some(value) => option.default_value(value),
            None => option,
        };
        let command = Self::command().mut_subcommands(|command| command.mut_args(set));
        Self::from_arg_matches(&command.try_get_matches()?)
    }
}

impl Command {
    /// The options that name a store, of a command that talks to one.
    pub const fn store_mut(&mut self) -> Option<&mut StoreOptions> {
        match self {
            Self::Run(arguments) => Some(&mut arguments.store),
            Self::Status(arguments) => Some(&mut arguments.store),
            Self::Wait(arguments) => Some(&mut arguments.store),
            Self::Evict(arguments) => Some(&mut arguments.store),
            Self::Check | Self::Completions(_) | Self::Man => None,
        }
    }
}

/// A duration as people write it.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; expected a duration such as 500ms, 30s or 5min"))
}

impl ConflictOptions {
    /// The exit if somebody else holds the name.
    pub fn exit(&self) -> Exit {
        match self.skip_ok {
            true => Exit::Success,
            false => Exit::Command(self.conflict_exit_code),
        }
    }
}
