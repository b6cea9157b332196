//! The longer texts of the help: stores, examples, exit codes.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};
use leasehold::store;

/// The syntax of store URLs, which every command refers to.
pub fn stores() -> String {
    let shared = store::kinds().iter().filter(|kind| kind.word != "memory");
    let forms = shared.flat_map(|kind| kind.forms);
    let forms: String = forms
        .map(|(form, what)| format!("  {form:<33}{what}\n"))
        .collect();
    format!("Stores:\n{forms}{STORES_PARAMETERS}")
}

const STORES_PARAMETERS: &str = "
  Redis:  ?max_ttl=60s keeps out a server that lost its data; ?acknowledged_by=N waits for N replicas
  TLS:    ?ca=FILE (or ca=system), ?cert=FILE&key=FILE, ?server_name=NAME; or LEASEHOLD_TLS_CA, LEASEHOLD_TLS_CERT,
          LEASEHOLD_TLS_KEY and LEASEHOLD_TLS_SERVER_NAME
";

pub const RUN_SHORT_HELP: &str =
    "`leasehold run --help` lists all options, variables and exit codes";

pub const DOCTOR_HELP: &str = "\
Each finding is one line: ok, warning or failure, the finding, what it endangers, and how to fix it.
The scratch name begins with leasehold-doctor/ and is released, or expires within 10 s.

Exit codes:
  0    no failure
  1    warnings, with --strict
  2    failures, or the store cannot be reached
  64   bad argument
";

pub const RUN_HELP: &str = "\
Examples:
  leasehold run nightly ./backup.sh            wait for the lease, then run
  leasehold run -n nightly ./backup.sh         or exit 75 if it runs elsewhere
  leasehold run -w 5min --store redis://db nightly ./backup.sh
  leasehold run nightly sh -c './dump && ./upload'
  leasehold run --permits 3 gpu ./train.sh     at most three at once

The environment of the command has LEASEHOLD_NAME, LEASEHOLD_TOKEN, LEASEHOLD_HOLDER, LEASEHOLD_TTL_MS and \
LEASEHOLD_STATUS_FILE, and with --permits or --shared the number of its permit in LEASEHOLD_PERMIT. The first three are the pass: give them to your storage with each write, and let it refuse a token lower \
than one that it has seen.

A setting comes from its option, then the environment, then the configuration file, whose keys are the long \
options (ttl = \"1min\"), then the default.

Exit codes:
  the command's own, or 128+n if signal n ended it
  64   bad argument; nothing was started
  69   the store cannot be reached; while waiting, only with --on-outage fail
  75   another holder has the name (-E, --skip-ok)
  77   authentication with the store failed, or a permission is missing
  78   the store is misconfigured
  79   the lease was lost, and the job was ended
  124  the job ran for longer than --max-runtime
  125  leasehold itself failed
  126  the command cannot be run
  127  there is no such command

When the store cannot be reached, the tool ends the job before its lease is over. The job survives an outage of \
2/3 ttl - kill-after - margin - min(250ms, ttl/20); `leasehold doctor --ttl TTL` prints it as `latency`.
";

pub const HOLD_HELP: &str = "\
It prints `waiting`, `held` (with token, holder and deadline; again after each renewal), `at_risk`, `lost`, `released` and \
`failed`, and never waits for their reader. Between two steps of your work, compare the last `deadline_ms` with the boot \
clock (CLOCK_BOOTTIME, in /proc/uptime), and give the token to your storage: nothing ends your work for you.

Start it directly, without a shell, and in a process group of its own, so that Ctrl-C does not reach it.

Exit codes:
  0    released: by the command `release`, or because its input or the calling program ended
  79   the lease was lost
  all others as for `run`
";

/// Replaces the advice about `-c`, which other tools pass to a shell.
pub fn advised(mut error: clap::Error) -> clap::Error {
    let is_shell =
        |value: &ContextValue| matches!(value, ContextValue::String(text) if text == "-c");
    if error.get(ContextKind::InvalidArg).is_some_and(is_shell) {
        let advice = "to pass a line to a shell, use: leasehold run NAME sh -c 'LINE'";
        let advice = ContextValue::StyledStrs(vec![StyledStr::from(advice)]);
        error.insert(ContextKind::Suggested, advice);
    }
    error
}
