//! Runs a search and reports what it found.

use std::fmt;
use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use std::time::Duration;

use leasehold::clock::{Boottime, Clock};
use stateright::{Checker, HasDiscoveries, Model};

use crate::{Promise, Setup, Step};

/// What a search found.
#[derive(Debug, Clone)]
pub struct Report {
    /// How many different states were seen.
    pub states: usize,
    /// How many steps led from one to another.
    pub transitions: usize,
    /// The longest way.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// The promise that was broken, and the way there.
    pub broken: Option<(Promise, Vec<Step>)>,
}

/// Searches all states within these bounds, breadth first, up to the first that breaks a promise.
pub fn check(setup: Setup) -> Report {
    let began = Boottime.now();
    let threads = available_parallelism().map_or(1, NonZeroUsize::get);
    let checker = setup
        .checker()
        .threads(threads)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let broken = checker.discoveries().into_values().next().map(|path| {
        let promise = path.last_state().broken.expect("found by its promise");
        (promise, path.into_actions())
    });
    Report {
        states: checker.unique_state_count(),
        transitions: checker.state_count(),
        depth: checker.max_depth(),
        took: Boottime.now().since(began),
        broken,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "states={} transitions={} depth={} seconds={:.1} ",
            self.states,
            self.transitions,
            self.depth,
            self.took.as_secs_f64()
        )?;
        match &self.broken {
            None => f.write_str("nothing broken"),
            Some((promise, steps)) => write!(f, "{promise:?} broken in {} steps", steps.len()),
        }
    }
}
