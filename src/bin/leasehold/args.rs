//! The command line: commands, options and their help. What an option means is decided where it is used.

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

/// Runs a command while holding a lease, and ends it before another holder can get the lease
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
    /// For `run --progress-within`. Exit 79 if its run has ended, 125 if it cannot be reached, 64 outside of a job.
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

/// The lease that is asked for, and how
#[derive(Debug, Args)]
pub struct LeaseOptions {
    /// The name of the lease
    ///
    /// 1 to 512 bytes of UTF-8 without control characters, white space at an end, '{' or '}'.
    pub name: String,

    /// Do not wait: exit 75 if the name is held
    #[arg(short, long, conflicts_with = "wait")]
    pub nonblock: bool,

    /// Wait for at most this long, then exit 75
    ///
    /// Without it, the wait has no limit.
    #[arg(short, long)]
    pub wait: Option<Span>,

    #[command(flatten)]
    pub pool: PoolOptions,

    /// What a waiting run does while the store cannot be reached: wait, or fail with exit 69
    ///
    /// A run that waits says so 5 s after the first request that failed, and once a minute from then on.
    #[arg(long, value_name = "wait|fail", default_value = "wait", value_parser = outage_policy())]
    #[arg(env = "LEASEHOLD_ON_OUTAGE", hide_possible_values = true)]
    pub on_outage: OutagePolicy,

    /// How long it lasts unrenewed
    ///
    /// 1s to 24h, from 100ms with --margin.
    #[arg(long, default_value = "30s", env = "LEASEHOLD_TTL", hide_env = true)]
    pub ttl: Span,

    /// Treat the lease as over this much earlier than the store does [default: ttl/50 + 20ms]
    ///
    /// More than 0, and less than a third of the ttl.
    #[arg(long, env = "LEASEHOLD_MARGIN")]
    pub margin: Option<Span>,

    /// Hold the lease for at most this long, then end the job and exit 79
    ///
    /// `hold` has no job: it only exits. More than 0.
    #[arg(long, env = "LEASEHOLD_MAX_HOLD")]
    pub max_hold: Option<Span>,

    /// End the job and exit 79 if it has not called `leasehold progress` for this long
    ///
    /// To `hold` it is the line `progress`. More than 0.
    #[arg(long, env = "LEASEHOLD_PROGRESS_WITHIN")]
    pub progress_within: Option<Span>,

    /// Keep the name taken for at least this long
    ///
    /// However it ends, and at most 366 days. Not if the lease was lost, by an eviction or an outage, or the tool
    /// was killed: then the name is free after its ttl. If the store is away at the end, the tool waits for it for the
    /// rest of the ttl.
    #[arg(long, env = "LEASEHOLD_HOLD_AT_LEAST", hide_env = true)]
    pub hold_at_least: Option<Span>,

    /// Get a token greater than this one, such as one that storage has already seen
    #[arg(long, value_name = "TOKEN", hide_short_help = true)]
    pub min_token: Option<Token>,

    /// Set a text that others see about this holder
    ///
    /// At most 200 bytes without control characters.
    #[arg(long, value_name = "TEXT", env = "LEASEHOLD_LABEL")]
    pub label: Option<String>,

    /// Set the `group` label of this lease in metrics and logs
    ///
    /// 1 to 64 bytes without control characters.
    #[arg(long, value_name = "WORD", env = "LEASEHOLD_GROUP")]
    pub group: Option<String>,

    /// The exit code if it is held
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
    /// If another holder has the name, only the exit code says so. Where no store is named and there is no terminal, as
    /// in a crontab, it is still said that the run excludes this user's runs on this machine only.
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

/// The job that is run under it
#[derive(Debug, Args)]
pub struct JobOptions {
    /// The command to run and its arguments
    ///
    /// They are not passed through a shell. Options of leasehold stand before the command; `--` may stand there too,
    /// and must where the command begins with a dash.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,

    /// Has no effect: runs wait in turn wherever the store keeps a queue
    ///
    /// It will be refused in the next version.
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

    /// Run the command again whenever its lease was lost or it failed, until it ends with 0
    ///
    /// Or until the tool is told to stop. The name is acquired again each time, so the command may begin again on
    /// another machine.
    #[arg(long, conflicts_with = "nonblock", hide_short_help = true)]
    pub again: bool,

    /// Send KILL this long after TERM when the job is ended [default: a third of the ttl, at most 10s]
    ///
    /// At most ttl/2 - margin - min(250ms, ttl/20), so that the job is not ended before half of the ttl has passed
    /// without a renewal.
    #[arg(long, env = "LEASEHOLD_KILL_AFTER")]
    pub kill_after: Option<Span>,

    /// End the job after this long, and exit 124
    ///
    /// More than 0.
    #[arg(long, env = "LEASEHOLD_MAX_RUNTIME", hide_env = true)]
    pub max_runtime: Option<Span>,

    #[command(flatten)]
    pub metrics: MetricsOptions,

    /// Write the outcome of the run to this file, as JSON
    ///
    /// A file is replaced; a device or a pipe such as /dev/stdout is written to.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub report: Option<PathBuf>,

    /// Print messages as JSON, one object per line
    #[arg(long, hide_short_help = true)]
    pub json: bool,
}

/// Where metrics go
#[derive(Debug, Args)]
pub struct MetricsOptions {
    /// Write metrics to this file (FILE.prom) at the start, once a minute and at the end
    ///
    /// For the textfile collector of node_exporter. Needs a build with the feature `export`.
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_METRICS_FILE")]
    pub metrics_file: Option<PathBuf>,

    /// Serve /metrics, /healthz, /readyz and /status at this address until the end
    ///
    /// Such as 9464 (this machine only) or 0.0.0.0:9464. If another process has it, the job runs, or `hold` holds, without. Needs a build
    /// with the feature `export`.
    #[arg(long, value_name = "ADDRESS", env = "LEASEHOLD_METRICS")]
    pub metrics: Option<String>,
}

/// Hold a lease for the program that starts this, and tell it of each change
///
/// For programs in any language. Each change is a line of JSON on standard output; the lines `progress` and `release` on
/// standard input are commands. The lease is released when that input ends, or the program that started this.
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
/// On a terminal as a table, else one line of key=value for each lease. A name is held; evicted (its holder is being
/// told, and it is free when its time is over); done and kept (by --hold-at-least); or the store keeps out (it may have
/// lost leases, and grants nothing for a while).
#[derive(Debug, Args)]
pub struct StatusOptions {
    /// Show only this name
    pub name: Option<String>,

    /// Print nothing: exit 0 if the name or a permit of it is taken, 1 if it is free
    #[arg(short, long, requires = "name", conflicts_with_all = ["json", "members", "verbose"])]
    pub quiet: bool,

    /// Show tokens in the table, and each permit of a pool in a line of its own
    #[arg(short, long)]
    pub verbose: bool,

    /// Show the servers of the store instead of leases: up, away (it keeps out, and for how long), standby or down
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
/// Exit 0 if it is held, 79 if not, 125 if this process cannot know it, 64 outside of a job.
#[derive(Debug, Args)]
pub struct CheckOptions {
    /// Exit 0 only if this process is of a job that has this name, or a permit of it
    ///
    /// For a script that runs itself under a lease. It prints nothing if not, and exits 79 outside of a job.
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
/// Exits 1 if the name has no holder, and names the permits of it that have one: each is evicted by its own name, such
/// as gpu#1.
#[derive(Debug, Args)]
pub struct EvictOptions {
    /// The name to free
    pub name: String,

    /// Free the name at once, although the holder may work on until its next renewal. Otherwise its job is ended first
    #[arg(long)]
    pub now: bool,

    #[command(flatten)]
    pub store: StoreOptions,
}

/// Set up a store, once
///
/// The tables in Postgres, a new Redis server whose URL has max_ttl, or the members of a quorum; if these lost their
/// data, wait for the longest ttl first.
#[derive(Debug, Args)]
pub struct InitOptions {
    /// The longest ttl that Postgres grants, which a failover takes [default: 10min, or the earlier setting]
    #[arg(long)]
    pub max_ttl: Option<Span>,

    /// Print the SQL, the script for redis-cli, or what would be done with a quorum, instead of doing it
    #[arg(long)]
    pub print: bool,

    /// Make the servers of --store the members instead of those at this URL; nothing is granted for the longest ttl
    #[arg(long, value_name = "URL")]
    pub replace: Option<String>,

    /// Replace a quorum of which no majority answers: rests on this machine's clock, and on the old members staying
    /// down
    #[arg(long, requires = "replace")]
    pub from_clock: bool,

    #[command(flatten)]
    pub store: StoreOptions,
}

/// Try a store with a scratch name, check its set-up and this machine, and print what endangers leases and how to fix
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

    /// The ttl with which latency, clocks and the time of a failover are judged
    ///
    /// 1s to 24h.
    #[arg(long, default_value = "30s", env = "LEASEHOLD_TTL", hide_env = true)]
    pub ttl: Span,

    #[command(flatten)]
    pub store: StoreOptions,
}

/// Show a live table of a store's leases
///
/// Who holds what, since when, for how long, and how many clients wait. Needs a build with the feature `top`. Colours
/// are left out where NO_COLOR is set.
#[derive(Debug, Args)]
pub struct TopOptions {
    #[command(flatten)]
    pub store: StoreOptions,
}

/// Serve metrics and a page of a whole store
///
/// For a fleet that has none of its own. The pages are / (a table of the leases, for people), /metrics, /healthz,
/// /readyz and /status. The store is scanned every 15 s, or less often if that takes long. Needs a build with the
/// feature `export`.
#[derive(Debug, Args)]
pub struct ExportOptions {
    /// Where to serve: a port of this machine, or an address and a port such as 0.0.0.0:9464
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
    /// Returns the command line's definition. A value may begin with a dash where a duration is expected, so that a
    /// negative one is refused as what it is.
    pub fn definition() -> clap::Command {
        let is_span = |option: &Arg| option.get_value_parser().type_id() == TypeId::of::<Span>();
        let named = |option: Arg| match is_span(&option) {
            true => option.value_name("DURATION").allow_hyphen_values(true),
            false => option,
        };
        // An option whose variable is shown takes too much of the short help.
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
    /// Returns the amount of output that is asked for.
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
