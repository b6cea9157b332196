//! The gauges: read from every client of the process, added up, and set. None is stepped, so a recorder that is
//! installed late shows the truth, and clients with the same labels do not overwrite each other.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use metrics::gauge;

use super::counts::Counts;
use super::names::Names;
use super::reporter::sources;
use super::stores::whole;
use super::{quietly, table};
use crate::clock::wall_clock_us;
use crate::group::Group;
use crate::name::Name;
use crate::term::{Instant, Timing};

/// A source of states: the watchdog of a client.
pub(crate) trait Surveyed: Send + Sync {
    /// The label of its leases.
    fn group(&self) -> Group;

    /// Adds its state. It must hold no lock for long.
    fn survey(&self, survey: &mut Survey);
}

/// Sets the gauges of a new client's group to zero, unless another client of the group has a state.
pub(super) fn register(group: Group) {
    if !sources().iter().any(|source| source.group() == group) {
        Survey::default().tell(group.as_str());
    }
}

/// The state of the clients of one group, added up.
#[derive(Debug, Default)]
#[cfg_attr(
    not(feature = "internals"),
    expect(unreachable_pub, reason = "the feature `internals` re-exports it")
)]
pub struct Survey {
    held: usize,
    at_risk: usize,
    /// Seconds from now until the first deadline; below zero once it has passed.
    soonest: Option<f64>,
    failures: u32,
    backlog: usize,
    overdue: Duration,
    /// The names of this group that have series of their own.
    names: Option<Names>,
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
        if let Some(names) = &mut self.names {
            names.note_held(name, left);
        }
    }

    /// The renewal of a lease is due and was not sent.
    pub(crate) fn note_due(&mut self) {
        self.backlog += 1;
    }

    /// The watchdog should have woken so long ago.
    pub(crate) fn note_overdue(&mut self, overdue: Duration) {
        self.overdue = self.overdue.max(overdue);
    }

    fn tell(&self, group: &'static str) {
        let set = |name: &'static str, value: f64| {
            quietly(|| gauge!(name, "group" => group).set(value));
        };
        set(table::HELD_LEASES.name, whole(self.held));
        set(table::AT_RISK_LEASES.name, whole(self.at_risk));
        let failures = f64::from(self.failures);
        set(table::CONSECUTIVE_RENEWAL_FAILURES.name, failures);
        let soonest = self.soonest.map_or(f64::NAN, unix_seconds_in);
        set(table::SOONEST_DEADLINE.name, soonest);
    }
}

/// The unix time this many seconds from now.
pub(super) fn unix_seconds_in(seconds: f64) -> f64 {
    Duration::from_micros(wall_clock_us()).as_secs_f64() + seconds
}

/// Reads all states and sets the gauges.
pub(super) fn tell_all() {
    let mut surveys: BTreeMap<&'static str, Survey> = BTreeMap::new();
    for source in sources() {
        let group = source.group();
        let survey = surveys.entry(group.as_str()).or_insert_with(|| Survey {
            names: Names::of(group.as_str()),
            ..Survey::default()
        });
        source.survey(survey);
    }
    let (mut backlog, mut overdue) = (0, Duration::ZERO);
    for survey in surveys.values() {
        backlog += survey.backlog;
        overdue = overdue.max(survey.overdue);
    }
    quietly(|| gauge!(table::WATCHDOG_BACKLOG.name).set(whole(backlog)));
    quietly(|| gauge!(table::WATCHDOG_OVERDUE.name).set(overdue.as_secs_f64()));
    for counts in Counts::all() {
        let Some(group) = counts.group() else {
            continue;
        };
        let survey = surveys.remove(group).unwrap_or_default();
        survey.tell(group);
        let waiters = counts.waiters.load(Ordering::Relaxed);
        let name = table::WAITERS.name;
        quietly(|| gauge!(name, "group" => group).set(whole(waiters)));
        if let Some(names) = survey.names.or_else(|| Names::of(group)) {
            names.tell(group);
        }
    }
}
