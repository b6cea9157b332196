//! Many runs on all cores, and what came of them in one table.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};

use super::ledger::{Counts, Ledger, Promise, Violation};
use super::plan::Shape;
use super::planted::Bug;
use super::world::World;

/// What was seen in all runs together.
#[derive(Debug, Default)]
pub(super) struct Summary {
    runs: u64,
    events: u64,
    checks: BTreeMap<Promise, u64>,
    faults: Counts,
    losses: Counts,
    took: Duration,
}

/// One run. A panic is told with its seed.
pub(super) fn run_seed(seed: u64, shape: Shape, bug: Option<Bug>) -> Ledger {
    let run = || World::new(seed, shape, bug, false).run();
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        eprintln!("the run panicked: seed={seed} shape={shape:?} bug={bug:?}");
        std::panic::resume_unwind(panic)
    })
}

/// Runs the seeds from `first` on, one after the other on every core, and panics with the seed of a broken promise.
pub(super) fn run_many(first: u64, count: u64, shape: Shape) -> Summary {
    let started = Monotonic.now();
    let next = AtomicU64::new(first);
    let summary = Mutex::new(Summary::default());
    let broken: Mutex<Option<(u64, Violation)>> = Mutex::new(None);
    let work = || {
        let mut own = Summary::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count || broken.lock().unwrap().is_some() {
                break;
            }
            let ledger = run_seed(seed, shape, None);
            if let Some(violation) = &ledger.violation {
                *broken.lock().unwrap() = Some((seed, violation.clone()));
            }
            own.add(ledger);
        }
        summary.lock().unwrap().merge(own);
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(work);
        }
    });
    if let Some((seed, violation)) = broken.into_inner().unwrap() {
        panic!("seed={seed} shape={shape:?}: {violation}");
    }
    let mut summary = summary.into_inner().unwrap();
    summary.took = Monotonic.now().since(started);
    summary
}

impl Summary {
    fn add(&mut self, ledger: Ledger) {
        self.runs += 1;
        self.events += ledger.events;
        add_all(&mut self.checks, ledger.checks);
        add_all(&mut self.faults, ledger.faults);
        add_all(&mut self.losses, ledger.losses);
    }

    fn merge(&mut self, other: Self) {
        self.runs += other.runs;
        self.events += other.events;
        add_all(&mut self.checks, other.checks);
        add_all(&mut self.faults, other.faults);
        add_all(&mut self.losses, other.losses);
    }

    /// Promises that no run came to check.
    pub(super) fn unchecked(&self) -> Vec<Promise> {
        let all = Promise::ALL.into_iter();
        all.filter(|promise| !self.checks.contains_key(promise))
            .collect()
    }
}

fn add_all<K: Ord>(counts: &mut BTreeMap<K, u64>, more: BTreeMap<K, u64>) {
    for (id, count) in more {
        *counts.entry(id).or_default() += count;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            runs, events, took, ..
        } = self;
        writeln!(
            f,
            "{runs} schedules, {events} events, {:.1} s",
            took.as_secs_f64()
        )?;
        for (what, counts) in [("faults", &self.faults), ("losses", &self.losses)] {
            writeln!(f, "{what}:")?;
            for (kind, count) in counts {
                writeln!(f, "  {count:>10} {kind}")?;
            }
        }
        writeln!(f, "checks:")?;
        for (promise, count) in &self.checks {
            writeln!(f, "  {count:>10} {promise:?}")?;
        }
        Ok(())
    }
}
