//! The command line: commands, options and their help. The code that uses an option decides what it means.

use std::any::TypeId;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use leasehold::{OutagePolicy, Token};

use crate::choice::StoreOptions;
use crate::exit::Exit;
use crate::help::{self, DOCTOR_HELP, HOLD_HELP, RUN_HELP, RUN_SHORT_HELP};
use crate::pool::PoolOptions;
use crate::say::Loudness;
use crate::span::Span;

/// Runs a command while it holds a lease, and ends the command before another holder can get the lease
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, propagate_version = true, after_long_help = help::stores())]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Run(Box<RunOptions>),
    Hold(Box<HoldOptions>),
    Status(StatusOptions),
    Check(CheckOptions),
    /// Report progress of the job that calls this
    ///
    /// For `run --progress-within`. Exits 79 if the run of this job has ended, 125 if it cannot be reached, 64 outside
    /// of a job.
    Progress,
    Wait(WaitOptions),
    Evict(EvictOptions),
    Init(InitOptions),
    Doctor(DoctorOptions),
    Top(TopOptions),
    Export(ExportOptions),
    Completions(CompletionsOptions),
    /// Print the man page
    Man,
}

/// The requested lease
#[derive(Debug, Args)]
pub struct LeaseOptions {
    /// The name of the lease
    ///
    /// 1 to 512 bytes of UTF-8 without control characters, '{' or '}', and no white space at either end.
    pub name: String,

    /// Do not wait: exit 75 if the name is held
    #[arg(short, long, conflicts_with = "wait")]
    pub nonblock: bool,

    /// Wait for at most this long, then exit 75
    ///
    /// Without this option, the wait has no limit.
    #[arg(short, long)]
    pub wait: Option<Span>,

    #[command(flatten)]
    pub pool: PoolOptions,

    /// Whether a waiting run keeps waiting while the store cannot be reached, or fails with exit 69
    ///
    /// A waiting run reports the outage 5 s after the first failed request, and once a minute from then on.
    #[arg(long, value_name = "wait|fail", default_value = "wait", value_parser = outage_policy())]
    #[arg(env = "LEASEHOLD_ON_OUTAGE", hide_possible_values = true)]
    pub on_outage: OutagePolicy,

    /// Time to expiry without renewal
    ///
    /// 1s to 24h, from 100ms with --margin.
    #[arg(long, default_value = "30s", env = "LEASEHOLD_TTL", hide_env = true)]
    pub ttl: Span,

    /// Time before its expiry in the store when the lease counts as over [default: ttl/50 + 20ms]
    ///
    /// More than 0, and less than a third of the ttl.
    #[arg(long, env = "LEASEHOLD_MARGIN")]
    pub margin: Option<Span>,

    /// Hold the lease for at most this long, then end the job and exit 79
    ///
    /// More than 0. `hold` has no job: it only exits.
    #[arg(long, env = "LEASEHOLD_MAX_HOLD")]
    pub max_hold: Option<Span>,

    /// End the job and exit 79 if it has not called `leasehold progress` for this long
    ///
    /// More than 0. Programs under `hold` send the line `progress` instead.
    #[arg(long, env = "LEASEHOLD_PROGRESS_WITHIN")]
    pub progress_within: Option<Span>,

    /// Keep the name taken for at least this long
    ///
    /// However the job ends, and at most 366 days from the grant. If the lease was lost (an eviction, an outage) or the
    /// tool was killed, the name is free after its ttl instead. If the store cannot be reached at the end, the tool
    /// retries for the rest of the ttl.
    #[arg(long, env = "LEASEHOLD_HOLD_AT_LEAST", hide_env = true)]
    pub hold_at_least: Option<Span>,

    /// Require a token greater than this one, such as one that storage has already seen
    #[arg(long, value_name = "TOKEN", hide_short_help = true)]
    pub min_token: Option<Token>,

    /// Text about this holder that others see
    ///
    /// At most 200 bytes without control characters.
    #[arg(long, value_name = "TEXT", env = "LEASEHOLD_LABEL")]
    pub label: Option<String>,

    /// The `group` label of this lease in metrics and logs
    ///
    /// 1 to 64 bytes without control characters.
    #[arg(long, value_name = "WORD", env = "LEASEHOLD_GROUP")]
    pub group: Option<String>,

    /// Exit code if the name is held
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = Exit::NotAcquired.code())]
    pub conflict_exit_code: u8,

    /// Exit 0 if the name is held
    #[arg(long, conflicts_with = "conflict_exit_code", hide_short_help = true)]
    pub skip_ok: bool,

    #[command(flatten)]
    pub store: StoreOptions,

    /// Print each step
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,

    /// Print only errors and why the job was ended
    ///
    /// If another holder has the name, only the exit code says so. Without a store and a terminal, as in a crontab, the
    /// tool still warns that the run excludes only this user's runs on this machine.
    #[arg(short, long)]
    pub quiet: bool,
}

/// Run a command while holding a lease
#[derive(Debug, Args)]
#[command(after_help = RUN_SHORT_HELP, after_long_help = RUN_HELP)]
pub struct RunOptions {
    #[command(flatten)]
    pub lease: LeaseOptions,

    #[command(flatten)]
    pub job: JobOptions,
}

/// The job that runs under the lease
#[derive(Debug, Args)]
pub struct JobOptions {
    /// The command to run and its arguments
    ///
    /// They are not passed to a shell. Options of leasehold come before the command. `--` may come before it, too, and
    /// has to if the command begins with a dash.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,

    /// No effect: runs wait in turn wherever the store keeps a queue
    ///
    /// The next version will refuse this option.
    #[arg(long, value_name = "true|false", action = ArgAction::Set, num_args = 0..=1, require_equals = true)]
    #[arg(
        default_missing_value = "true",
        default_value_t = false,
        hide_default_value = true
    )]
    #[arg(
        hide_possible_values = true,
        conflicts_with = "nonblock",
        hide_short_help = true
    )]
    pub fair: bool,

    /// Run the command again after a failure or a lost lease, until it exits with 0
    ///
    /// Or until the tool is told to stop. Each run acquires the name anew, so the next one may be on another machine.
    #[arg(long, conflicts_with = "nonblock", hide_short_help = true)]
    pub again: bool,

    /// Time between TERM and KILL when the tool ends the job [default: a third of the ttl, at most 10s]
    ///
    /// At most ttl/2 - margin - min(250ms, ttl/20), so that the tool does not end the job before half of the ttl has
    /// passed without a renewal.
    #[arg(long, env = "LEASEHOLD_KILL_AFTER")]
    pub kill_after: Option<Span>,

    /// End the job after this long, and exit 124
    ///
    /// More than 0.
    #[arg(long, env = "LEASEHOLD_MAX_RUNTIME", hide_env = true)]
    pub max_runtime: Option<Span>,

    #[command(flatten)]
    pub metrics: MetricsOptions,

    /// Write the outcome of the run to this file as JSON
    ///
    /// Replaces a file; writes to a device or a pipe such as /dev/stdout.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub report: Option<PathBuf>,

    /// Print messages as JSON, one object per line
    #[arg(long, hide_short_help = true)]
    pub json: bool,
}

/// The outputs of metrics
#[derive(Debug, Args)]
pub struct MetricsOptions {
    /// Write metrics to this file (FILE.prom) at the start, once a minute, and at the end
    ///
    /// For the textfile collector of node_exporter. Needs a build with the feature `export`.
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_METRICS_FILE")]
    pub metrics_file: Option<PathBuf>,

    /// Serve /metrics, /healthz, /readyz and /status at this address until the end
    ///
    /// For example 9464 (this machine only) or 0.0.0.0:9464. If another process uses the address, the tool goes on
    /// without these pages. Needs a build with the feature `export`.
    #[arg(long, value_name = "ADDRESS", env = "LEASEHOLD_METRICS")]
    pub metrics: Option<String>,
}

/// Hold a lease for the calling program, and report each change to it
///
/// For programs in any language. Each change is a line of JSON on standard output; the lines `progress` and `release`
/// on standard input are commands. The lease is released when standard input or the calling program ends.
#[derive(Debug, Args)]
#[command(after_long_help = HOLD_HELP)]
pub struct HoldOptions {
    #[command(flatten)]
    pub lease: LeaseOptions,

    #[command(flatten)]
    pub metrics: MetricsOptions,
}

/// Show who holds a name, or all names
///
/// Prints a table on a terminal, and otherwise one line of key=value per lease. A name is held; evicted (the holder
/// hears at its next renewal, and the name is free when the ttl is over); done and kept (by --hold-at-least); or the
/// store keeps out (it may have lost leases, and grants nothing for a while).
#[derive(Debug, Args)]
pub struct StatusOptions {
    /// Show only this name
    pub name: Option<String>,

    /// Print nothing; exit 0 if the name or one of its permits is taken, 1 if it is free
    #[arg(short, long, requires = "name", conflicts_with_all = ["json", "members", "verbose"])]
    pub quiet: bool,

    /// Show tokens in the table, and each permit of a pool on its own line
    #[arg(short, long)]
    pub verbose: bool,

    /// Show the servers of the store instead of leases: up, away (grants nothing, and for how long), standby or down
    #[arg(long, conflicts_with = "name")]
    pub members: bool,

    /// Print a JSON object
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub store: StoreOptions,
}

/// Check the lease of the job that calls this
///
/// Exits 0 if it is held, 79 if not, 125 if this process cannot find out, 64 outside of a job.
#[derive(Debug, Args)]
pub struct CheckOptions {
    /// Exit 0 only if this process belongs to a job that holds this name or one of its permits
    ///
    /// For a script that runs itself under a lease. Otherwise it prints nothing and exits 79, also outside of a job.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

/// Wait until a name is free, without taking it
#[derive(Debug, Args)]
pub struct WaitOptions {
    /// The name to wait for
    pub name: String,

    /// Wait for at most this long, then exit 75 [default: without limit]
    #[arg(short, long)]
    pub wait: Option<Span>,

    #[command(flatten)]
    pub pool: PoolOptions,

    #[command(flatten)]
    pub store: StoreOptions,
}

/// Evict the holder of a name
///
/// Exits 1 if the name has no holder, and lists its permits that have one. Evict each of these by its own name, such as
/// gpu#1.
#[derive(Debug, Args)]
pub struct EvictOptions {
    /// The name to free
    pub name: String,

    /// Free the name at once, although the holder may continue until its next renewal. Without it, its job ends first
    #[arg(long)]
    pub now: bool,

    #[command(flatten)]
    pub store: StoreOptions,
}

/// Set up a store, once
///
/// Makes the tables in Postgres, marks a new Redis server whose URL has max_ttl, or makes servers the members of a
/// quorum. If these lost their data, wait for the longest ttl first.
#[derive(Debug, Args)]
pub struct InitOptions {
    /// Longest ttl that Postgres grants; grants pause for this long after a failover [default: 10min, or the earlier
    /// setting]
    #[arg(long)]
    pub max_ttl: Option<Span>,

    /// Print the SQL, the script for redis-cli, or the steps for a quorum, instead of running them
    #[arg(long)]
    pub print: bool,

    /// Replace the members at this URL by the servers of --store; nothing is granted for the longest ttl
    #[arg(long, value_name = "URL")]
    pub replace: Option<String>,

    /// Replace a quorum without a majority: relies on this machine's clock, and on the old members staying down
    #[arg(long, requires = "replace")]
    pub from_clock: bool,

    #[command(flatten)]
    pub store: StoreOptions,
}

/// Test a store with a scratch name, check its set-up and this machine, and print what endangers leases and how to fix
/// it
#[derive(Debug, Args)]
#[command(after_help = DOCTOR_HELP)]
pub struct DoctorOptions {
    /// Print the findings as JSON
    #[arg(long)]
    pub json: bool,

    /// Exit 1 if there are warnings
    #[arg(long)]
    pub strict: bool,

    /// The ttl against which latency, clocks and the duration of a failover are judged
    ///
    /// 1s to 24h.
    #[arg(long, default_value = "30s", env = "LEASEHOLD_TTL", hide_env = true)]
    pub ttl: Span,

    #[command(flatten)]
    pub store: StoreOptions,
}

/// Show a live table of a store's leases
///
/// Who holds what, since when, for how long, and how many clients wait. Needs a build with the feature `top`. NO_COLOR
/// turns colours off.
#[derive(Debug, Args)]
pub struct TopOptions {
    #[command(flatten)]
    pub store: StoreOptions,
}

/// Serve the metrics of a whole store, and a page about it
///
/// For fleets whose programs serve none. The pages are / (a table of the leases, for people), /metrics, /healthz,
/// /readyz and /status. The tool scans the store every 15 s, or less often if a scan takes long. Needs a build with the
/// feature `export`.
#[derive(Debug, Args)]
pub struct ExportOptions {
    /// Address to serve at: a port of this machine, or an address and a port such as 0.0.0.0:9464
    #[arg(long, value_name = "ADDRESS", default_value = "9464")]
    pub listen: String,

    #[command(flatten)]
    pub store: StoreOptions,
}

/// Print completions for a shell
#[derive(Debug, Args)]
pub struct CompletionsOptions {
    /// The shell
    pub shell: Shell,
}

fn outage_policy() -> impl TypedValueParser<Value = OutagePolicy> {
    PossibleValuesParser::new(["wait", "fail"]).map(|word| match &*word {
        "wait" => OutagePolicy::WaitOut,
        _ => OutagePolicy::Fail,
    })
}

impl Arguments {
    /// Returns the command line's definition. A duration may begin with a dash, so that the message for a negative one
    /// says so.
    pub fn definition() -> clap::Command {
        let is_span = |option: &Arg| option.get_value_parser().type_id() == TypeId::of::<Span>();
        let named = |option: Arg| match is_span(&option) {
            true => option.value_name("DURATION").allow_hyphen_values(true),
            false => option,
        };
        // Options that show their variable take too much space in the short help.
        let is_long = |option: &Arg| option.get_env().is_some() && !option.is_hide_env_set();
        let grouped = |option: Arg| match is_long(&option) {
            true => option.hide_short_help(true),
            false => option,
        };
        Self::command().mut_subcommands(|command| command.mut_args(named).mut_args(grouped))
    }

    /// Reads the command line. Help and the version are errors, too.
    pub fn read() -> Result<Self, clap::Error> {
        Self::read_from(Self::definition()).map_err(help::advised)
    }

    fn read_from(mut definition: clap::Command) -> Result<Self, clap::Error> {
        let matches = definition.try_get_matches_from_mut(std::env::args_os());
        let read = matches.and_then(|matches| Self::from_arg_matches(&matches));
        read.map_err(|error| error.format(&mut definition))
    }

    /// Reads the command line again, with these values instead of the defaults.
    pub fn with_defaults(default_of: impl Fn(&Arg) -> Option<String>) -> Result<Self, clap::Error> {
        let set = |option: Arg| match default_of(&option) {
            Some(value) => option.default_value(value),
            None => option,
        };
        Self::read_from(Self::definition().mut_subcommands(|command| command.mut_args(set)))
    }
}

impl LeaseOptions {
    /// Returns the requested amount of output.
    pub const fn loudness(&self) -> Loudness {
        match (self.verbose, self.quiet) {
            (true, _) => Loudness::Verbose,
            (_, true) => Loudness::Quiet,
            _ => Loudness::Normal,
        }
    }
}

impl Command {
    /// Returns the store options of a command that uses a store.
    pub const fn store_mut(&mut self) -> Option<&mut StoreOptions> {
        match self {
            Self::Run(arguments) => Some(&mut arguments.lease.store),
            Self::Hold(arguments) => Some(&mut arguments.lease.store),
            Self::Status(arguments) => Some(&mut arguments.store),
            Self::Wait(arguments) => Some(&mut arguments.store),
            Self::Evict(arguments) => Some(&mut arguments.store),
            Self::Init(arguments) => Some(&mut arguments.store),
            Self::Doctor(arguments) => Some(&mut arguments.store),
            Self::Top(arguments) => Some(&mut arguments.store),
            Self::Export(arguments) => Some(&mut arguments.store),
            Self::Check(_) | Self::Progress | Self::Completions(_) | Self::Man => None,
        }
    }
}
