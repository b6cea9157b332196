//! The gauges of leases: read from every client of the process, added up, and set. None is stepped, so a recorder that
//! is installed late shows the truth, and clients with the same labels do not overwrite each other.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::names::Names;
use super::reporter::sources;
use super::sink::Sink;
use super::stores::whole;
use super::table;
use crate::clock::wall_clock_us;
use crate::name::Name;
use crate::term::{Instant, Timing};

/// A source of states: the watchdog of a client.
pub(crate) trait Surveyed: Send + Sync {
    /// Where its leases are counted.
    fn sink(&self) -> &'static Sink;

    /// Adds its state. It must hold no lock for long.
    fn survey(&self, survey: &mut Survey);
}

/// The state of the clients of one group, added up.
#[derive(Debug, Default)]
pub struct Survey {
    held: usize,
    at_risk: usize,
    /// Seconds from now until the first deadline; below zero once it has passed.
    soonest: Option<f64>,
    failures: u32,
    /// Renewals that are due and were not sent.
    pub(crate) backlog: usize,
    /// How long a watchdog is overdue.
    pub(crate) overdue: Duration,
    /// The names of this group that have series of their own, if it asked for any.
    names: Names,
}

impl Survey {
    /// A lease is held until this deadline, and this number of its renewals in a row got no answer.
    pub(crate) fn note_held(
        &mut self,
        name: &Name,
        timing: Timing,
        deadline: Instant,
        failures: u32,
        now: Instant,
    ) {
        let left = deadline.since(now).as_secs_f64() - now.since(deadline).as_secs_f64();
        self.held += 1;
        self.at_risk += usize::from(now >= timing.term_until(deadline).at_risk_at());
        self.soonest = Some(self.soonest.map_or(left, |soonest| soonest.min(left)));
        self.failures = self.failures.max(failures);
        self.names.note_held(name, left);
    }

    /// Sets the gauges of a group. Returns the number of its calls that wait.
    fn set(&self, sink: &Sink) -> usize {
        sink.set(&table::HELD_LEASES, &[], whole(self.held));
        sink.set(&table::AT_RISK_LEASES, &[], whole(self.at_risk));
        let failures = f64::from(self.failures);
        sink.set(&table::CONSECUTIVE_RENEWAL_FAILURES, &[], failures);
        let soonest = self.soonest.map_or(f64::NAN, unix_seconds_in);
        sink.set(&table::SOONEST_DEADLINE, &[], soonest);
        let waiters = sink.waiters.load(Ordering::Relaxed);
        sink.set(&table::WAITERS, &[], whole(waiters));
        waiters
    }
}

/// The unix time this many seconds from now.
pub(super) fn unix_seconds_in(seconds: f64) -> f64 {
    Duration::from_micros(wall_clock_us()).as_secs_f64() + seconds
}

/// Reads all states and sets the gauges. Returns whether no lease is held and nobody waits for one.
pub(super) fn survey_all() -> bool {
    let sources = sources();
    let (mut backlog, mut overdue, mut is_quiet) = (0, Duration::ZERO, true);
    for sink in Sink::all() {
        let Some(group) = sink.group() else {
            continue;
        };
        let mut survey = Survey {
            names: Names::take(&sink.names),
            ..Survey::default()
        };
        let of_group = sources
            .iter()
            .filter(|source| std::ptr::eq(source.sink(), sink));
        of_group.for_each(|source| source.survey(&mut survey));
        backlog += survey.backlog;
        overdue = overdue.max(survey.overdue);
        let waiters = survey.set(sink);
        is_quiet &= survey.held == 0 && waiters == 0;
        survey.names.tell(group, &sink.names);
    }
    let process = Sink::of_process();
    process.set(&table::WATCHDOG_BACKLOG, &[], whole(backlog));
    process.set(&table::WATCHDOG_OVERDUE, &[], overdue.as_secs_f64());
    is_quiet
}
