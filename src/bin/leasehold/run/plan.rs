//! What a run has to do, checked as a whole before anything is started.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::clock::Timing;
use leasehold::store::Info;
use leasehold::{Name, Token, WaitOrder};

use crate::args;
use crate::config::StoreSetting;
use crate::exit::Failure;
use crate::export::Places;
use crate::say::Loudness;
use crate::store::Choice;
use crate::timeline::Distances;

/// A checked run.
#[derive(Debug)]
pub struct Plan {
    pub name: Name,
    pub timing: Timing,
    pub distances: Distances,
    pub patience: Patience,
    pub order: WaitOrder,
    pub label: Option<String>,
    pub group: Option<String>,
    pub store: Choice,
    pub connect_timeout: Duration,
    pub command: Vec<OsString>,
    pub max_runtime: Option<Duration>,
    pub max_hold: Option<Duration>,
    pub hold_at_least: Duration,
    pub floor: Option<Token>,
    pub report: Option<PathBuf>,
    pub metrics: Places,
    conflict: args::ConflictOptions,
}

/// How long to wait for a name that another holder has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    None,
    Limited(Duration),
    Unlimited,
}

impl Plan {
    /// Checks the arguments.
    pub fn new(
        arguments: args::RunOptions,
        configured: Option<StoreSetting>,
    ) -> Result<Self, Failure> {
        let name = Name::new(&arguments.name)?;
        let timing = Timing::new(arguments.ttl, arguments.margin)?;
        let distances = Distances::new(&timing, arguments.kill_after).map_err(Failure::usage)?;
        Info::here(arguments.label.as_deref())?;
        for (what, limit) in [
            ("max-runtime", arguments.max_runtime),
            ("max-hold", arguments.max_hold),
            ("hold-at-least", arguments.hold_at_least),
        ] {
            check_limit(what, limit)?;
        }
        let floor = arguments.min_token.as_deref().map(str::parse).transpose()?;
        Ok(Self {
            name,
            timing,
            distances,
            patience: match (arguments.nonblock, arguments.wait) {
                (true, _) => Patience::None,
                (false, Some(limit)) => Patience::Limited(limit),
                (false, None) => Patience::Unlimited,
            },
            order: match arguments.fair {
                true => WaitOrder::Fair,
                false => WaitOrder::Any,
            },
            label: arguments.label,
            group: arguments.group,
            connect_timeout: arguments.store.connect_timeout,
            store: Choice::of(&arguments.store, configured)?,
            command: arguments.command,
            max_runtime: arguments.max_runtime,
            max_hold: arguments.max_hold,
            hold_at_least: arguments.hold_at_least.unwrap_or_default(),
            floor,
            report: arguments.report,
            metrics: Places {
                file: arguments.metrics_file,
                address: arguments.metrics,
            },
            conflict: arguments.conflict,
        })
    }

    /// Makes the failure of a run whose name another holder has. It is not printed with `--quiet`: the exit code says
    /// it.
    pub fn held(&self, why: impl Display) -> Failure {
        Failure {
            loudness: Loudness::Normal,
            ..self.not_acquired(why)
        }
    }

    /// Makes the failure of a run that did not acquire the name within its limit, for any reason.
    pub fn not_acquired(&self, why: impl Display) -> Failure {
        let message = format!("not acquired: {why} name={}", self.name);
        Failure {
            is_conflict: true,
            ..Failure::new(self.conflict.exit(), message)
        }
    }
}

/// Refuses a limit of zero, and a `--hold-at-least` longer than a name may stay taken without a renewal.
fn check_limit(what: &str, limit: Option<Duration>) -> Result<(), Failure> {
    match limit {
        Some(limit) if limit.is_zero() || what == "hold-at-least" && limit > Timing::MAX_TTL => {
            let most = if what == "hold-at-least" {
                " and at most 24h"
            } else {
                ""
            };
            Err(Failure::usage(format!(
                "{what} {limit:?} refused: expected more than 0s{most}"
            )))
        }
        _ => Ok(()),
    }
}
