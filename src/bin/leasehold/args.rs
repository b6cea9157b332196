//! The command line: commands, options and their help. What an option means is decided where it is used.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use leasehold::clock::Timing;

use crate::exit::Exit;
use crate::timeline::Distances;

/// Runs a command while holding a lease, and ends it before another holder can get the lease
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
    /// Check the lease of the job that calls this: exit 0 if it is held, 79 if not, 64 outside of a job
    Check,
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

/// Run a command while holding a lease
#[derive(Debug, Args)]
#[command(after_help = run_help())]
pub struct RunOptions {
    /// The name of the lease: 1 to 512 bytes without control characters, '{' or '}'
    pub name: String,

    /// The command to run and its arguments; they are not passed through a shell
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,

    /// Do not wait: exit 75 at once if another holder has the name
    #[arg(short, long, conflicts_with = "wait")]
    pub nonblock: bool,

    /// Wait for at most this long, then exit 75 [default: without limit]
    #[arg(short, long, value_name = "DURATION", value_parser = duration)]
    pub wait: Option<Duration>,

    /// Wait in a fair queue: first come, first served, and ahead of runs that wait without --fair. Cannot be used
    /// with -n, which does not wait and never overtakes the queue
    #[arg(long, value_name = "true|false", action = ArgAction::Set, num_args = 0..=1, require_equals = true)]
    #[arg(
        default_missing_value = "true",
        default_value_t = false,
        hide_default_value = true
    )]
    #[arg(hide_possible_values = true, conflicts_with = "nonblock")]
    pub fair: bool,

    /// How long the store keeps the lease after its last renewal
    #[arg(long, value_name = "DURATION", default_value = "30s", env = "LEASEHOLD_TTL", value_parser = duration)]
    pub ttl: Duration,

    /// Treat the lease as over this much earlier than the store does [default: ttl/50 + 20ms]
    #[arg(long, value_name = "DURATION", env = "LEASEHOLD_MARGIN", value_parser = duration)]
    pub margin: Option<Duration>,

    /// Send KILL this long after TERM when the job is ended [default: a third of the ttl, at most 10s]
    #[arg(long, value_name = "DURATION", env = "LEASEHOLD_KILL_AFTER", value_parser = duration)]
    pub kill_after: Option<Duration>,

    /// End the job after this long, and exit 124
    #[arg(long, value_name = "DURATION", env = "LEASEHOLD_MAX_RUNTIME", value_parser = duration)]
    pub max_runtime: Option<Duration>,

    /// Hold the lease for at most this long, then end the job and exit 79
    #[arg(long, value_name = "DURATION", env = "LEASEHOLD_MAX_HOLD", value_parser = duration)]
    pub max_hold: Option<Duration>,

    /// Keep the name taken for at least this long, even if the job ends sooner
    #[arg(long, value_name = "DURATION", env = "LEASEHOLD_HOLD_AT_LEAST", value_parser = duration)]
    pub hold_at_least: Option<Duration>,

    /// Get a token greater than this one, such as one that storage has already seen
    #[arg(long, value_name = "TOKEN")]
    pub min_token: Option<String>,

    /// Set a text that `status` and waiting runs show about this holder
    #[arg(long, value_name = "TEXT", env = "LEASEHOLD_LABEL")]
    pub label: Option<String>,

    /// Set the `group` label of this lease in metrics and logs
    #[arg(long, value_name = "WORD", env = "LEASEHOLD_GROUP")]
    pub group: Option<String>,

    #[command(flatten)]
    pub conflict: ConflictOptions,

    #[command(flatten)]
    pub store: StoreOptions,

    /// Write metrics to this file (FILE.prom) at the start, once a minute and at the end, for the textfile collector of
    /// node_exporter. Needs a build with the feature `export`
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_METRICS_FILE")]
    pub metrics_file: Option<PathBuf>,

    /// Serve /metrics, /healthz, /readyz and /status at this address while the job runs, such as 9464 (this machine only)
    /// or 0.0.0.0:9464. Needs a build with the feature `export`
    #[arg(long, value_name = "ADDRESS", env = "LEASEHOLD_METRICS")]
    pub metrics: Option<String>,

    /// Write the outcome of the run to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,

    /// Print messages as JSON, one object per line
    #[arg(long)]
    pub json: bool,

    /// Print each step
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,

    /// Print only errors and why the job was ended; if another holder has the name, only the exit code says so
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(Debug, Args)]
pub struct ConflictOptions {
    /// The exit code if another holder has the name
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = Exit::NotAcquired.code())]
    pub conflict_exit_code: u8,

    /// Exit 0 if another holder has the name
    #[arg(long, conflicts_with = "conflict_exit_code")]
    pub skip_ok: bool,
}

/// Show who holds a name, or all names
#[derive(Debug, Args)]
pub struct StatusOptions {
    /// Show only this name
    pub name: Option<String>,

    /// Show the servers of the store instead of leases: up, away (it keeps out, and for how long), standby or down
    #[arg(long, conflicts_with = "name")]
    pub members: bool,

    /// Print a JSON list
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub store: StoreOptions,
}

/// Wait until a name is free, without taking it
#[derive(Debug, Args)]
pub struct WaitOptions {
    /// The name to wait for
    pub name: String,

    /// Wait for at most this long, then exit 75 [default: without limit]
    #[arg(short, long, value_name = "DURATION", value_parser = duration)]
    pub wait: Option<Duration>,

    #[command(flatten)]
    pub store: StoreOptions,
}

/// Evict the holder of a name
#[derive(Debug, Args)]
pub struct EvictOptions {
    /// The name to free
    pub name: String,

    /// Free the name at once, although the holder may continue its work until its next renewal. Without this option the
    /// name stays taken for the rest of the holder's ttl, and the holder's job is ended before that
    #[arg(long)]
    pub now: bool,

    #[command(flatten)]
    pub store: StoreOptions,
}

/// Make the tables and functions of a store in Postgres, once; a second run repairs what is missing
#[derive(Debug, Args)]
pub struct InitOptions {
    /// The longest ttl that the store grants; after a failover nothing is granted for this long [default: 10min, or the
    /// earlier setting]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub max_ttl: Option<Duration>,

    /// Make the tables UNLOGGED, also those that are there: faster, but after a crash of the server every holder loses its
    /// lease, and nothing is granted for the longest ttl
    #[arg(long)]
    pub unlogged: bool,

    /// Print the SQL instead of running it
    #[arg(long)]
    pub print: bool,

    #[command(flatten)]
    pub store: StoreOptions,
}

/// Try a store with a scratch name, check its set-up and this machine, and print what endangers leases and how to fix it
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
    #[arg(long, value_name = "DURATION", default_value = "30s", env = "LEASEHOLD_TTL", value_parser = duration)]
    pub ttl: Duration,

    #[command(flatten)]
    pub store: StoreOptions,
}

/// Show a live table of a store's leases: who holds what, since when, for how long, and how many clients wait
///
/// Needs a build with the feature `top`, which `full` has. Colours are left out where NO_COLOR is set.
#[derive(Debug, Args)]
pub struct TopOptions {
    #[command(flatten)]
    pub store: StoreOptions,
}

/// Serve metrics of a whole store, for a fleet that has none of its own: leases, waiting clients, hazards and the clock
///
/// The pages are /metrics, /healthz, /readyz and /status. The store is scanned every 15 s, or less often if that takes
/// long. Needs a build with the feature `export`, which `full` has.
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

#[derive(Debug, Args)]
pub struct StoreOptions {
    /// The store that keeps the leases: redis://HOST, rediss://HOST, redis+unix:PATH, redis+sentinel://HOST,HOST/NAME,
    /// redis+cluster://HOST,HOST, redis+quorum://HOST,HOST,HOST, postgres://HOST/DATABASE, zookeeper://HOST,HOST/CHROOT or
    /// sqlite:PATH. Certificates for TLS with Redis and Postgres: ?ca=FILE (or ca=system), ?cert=FILE&key=FILE and
    /// ?server_name=NAME, or the variables LEASEHOLD_TLS_CA, LEASEHOLD_TLS_CERT, LEASEHOLD_TLS_KEY and LEASEHOLD_TLS_SERVER_NAME [env: LEASEHOLD_STORE] [default: a file of this user]
    #[arg(long = "store", value_name = "URL")]
    pub url: Option<String>,

    /// Read the store's URL from a file, which keeps its password out of the list of processes [env:
    /// LEASEHOLD_STORE_FILE]
    #[arg(long = "store-file", value_name = "FILE", conflicts_with = "url")]
    pub file: Option<PathBuf>,

    /// Exit 69 if the store gives no first answer within this time
    #[arg(long, value_name = "DURATION", default_value = "5s", env = "LEASEHOLD_CONNECT_TIMEOUT", value_parser = duration)]
    pub connect_timeout: Duration,

    /// Read settings from this file only [default: ~/.config/leasehold/config.toml over /etc/leasehold.toml]
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_CONFIG")]
    pub config: Option<PathBuf>,
}

const DOCTOR_HELP: &str = "\
Each finding is one line: ok, warning or failure, what was found, what it endangers, and how to fix it.
The scratch name begins with leasehold-doctor/ and is released.

Exit codes:
  0    no failure
  1    warnings, with --strict
  2    failures, or the store cannot be reached
  64   bad argument
";

const RUN_HELP: &str = "\
Examples:
  leasehold run nightly -- ./backup.sh            wait for the lease, then run
  leasehold run -n nightly -- ./backup.sh         or exit 75 if it runs elsewhere
  leasehold run -w 5min --store redis://db nightly -- ./backup.sh

The command finds LEASEHOLD_NAME, LEASEHOLD_TOKEN, LEASEHOLD_HOLDER, LEASEHOLD_TTL_MS and LEASEHOLD_STATUS_FILE in its \
environment. The first three are the pass: give them to your storage with each write, and let it refuse a token lower \
than it has seen.

A setting comes from its option, else from the environment, else from the configuration file, whose keys are long \
options (ttl = \"1min\"), else from the defaults.

Exit codes:
  the command's own, or 128+n if signal n ended it
  64   bad argument, nothing was started
  69   the store cannot be reached
  75   another holder has the name (-E, --skip-ok)
  77   authentication with the store failed, or a permission is missing
  78   the store is misconfigured
  79   the lease was lost, and the job was ended
  124  the job ran for longer than --max-runtime
  125  leasehold itself failed
  126  the command cannot be run
  127  there is no such command

When the store cannot be reached, the job is ended before its lease is over. It survives an outage of \
2/3 ttl - kill-after - margin - min(250ms, ttl/20):
";

/// Returns the help with the outages that a job survives, computed as `run` computes them.
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
    /// Reads the command line. Help, the version and errors are printed here; `Err` is the exit that follows.
    pub fn read() -> Result<Self, Exit> {
        Self::try_parse().map_err(|error| {
            // A reader that closed the pipe does not change the exit code.
            let _ = error.print();
            match error.use_stderr() {
                true => Exit::Usage,
                false => Exit::Success,
            }
        })
    }

    /// Reads the command line again, with these values in place of the defaults.
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
    /// Returns the store options of a command that uses a store.
    pub const fn store_mut(&mut self) -> Option<&mut StoreOptions> {
        match self {
            Self::Run(arguments) => Some(&mut arguments.store),
            Self::Status(arguments) => Some(&mut arguments.store),
            Self::Wait(arguments) => Some(&mut arguments.store),
            Self::Evict(arguments) => Some(&mut arguments.store),
            Self::Init(arguments) => Some(&mut arguments.store),
            Self::Doctor(arguments) => Some(&mut arguments.store),
            Self::Top(arguments) => Some(&mut arguments.store),
            Self::Export(arguments) => Some(&mut arguments.store),
            Self::Check | Self::Completions(_) | Self::Man => None,
        }
    }
}

/// Parses a duration such as `500ms` or `5min`.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; expected a duration such as 500ms, 30s or 5min"))
}

impl ConflictOptions {
    /// Returns the exit of a run if another holder has the name.
    pub fn exit(&self) -> Exit {
        match self.skip_ok {
            true => Exit::Success,
            false => Exit::Command(self.conflict_exit_code),
        }
    }
}
