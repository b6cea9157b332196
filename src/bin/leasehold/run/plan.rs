//! What a run is to do, checked as a whole before anything is started.

use std::ffi::OsString;
use std::time::Duration;

use leasehold::Name;
use leasehold::store::Info;
use leasehold::term::Timing;

use crate::args;
use crate::exit::Failure;
use crate::store::Choice;
use crate::timeline::Pace;

/// A checked run.
#[derive(Debug)]
pub struct Plan {
    pub name: Name,
    pub timing: Timing,
    pub pace: Pace,
    pub patience: Patience,
    pub label: Option<String>,
    pub store: Choice,
    pub connect_timeout: Duration,
    pub command: Vec<OsString>,
    conflict: args::Conflict,
}

/// How long to wait for a lease that somebody else holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    None,
    Limited(Duration),
    Unlimited,
}

impl Plan {
    /// Checks what was typed.
    pub fn new(arguments: args::Run) -> Result<Self, Failure> {
        let name = Name::new(&arguments.name)?;
        let timing = Timing::new(arguments.ttl, arguments.margin)?;
        let pace = Pace::new(&timing, arguments.kill_after).map_err(Failure::usage)?;
        Info::here(arguments.label.as_deref())?;
        Ok(Self {
            name,
            timing,
            pace,
            patience: match (arguments.nonblock, arguments.wait) {
                (true, _) => Patience::None,
                (false, Some(limit)) => Patience::Limited(limit),
                (false, None) => Patience::Unlimited,
            },
            label: arguments.label,
            connect_timeout: arguments.store.connect_timeout,
            store: arguments.store.url.into(),
            command: arguments.command,
            conflict: arguments.conflict,
        })
    }

    /// The end of a run whose name somebody else holds.
    pub fn not_acquired(&self, why: String) -> Failure {
        let message = format!("not acquired: {why} name={}", self.name);
        Failure::new(self.conflict.exit(), message)
    }
}
