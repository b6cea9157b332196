//! How long before the rival's grant a holder was told, and how late the cancellation was. Figures, not verdicts: on a busy
//! machine a task runs when it can.

use std::collections::BTreeMap;

use super::{Figures, Hold, Holds, spells};
use crate::history::{Event, Operation};

/// A holder that is told up to this much before its deadline is told because of the deadline.
const EARLY_US: u64 = 10_000;
/// The process whose stalls are those of the machine.
const RUNNER: &str = "nemesis";

/// What was measured, in microseconds. Sorted.
#[derive(Debug, Default, Clone)]
pub(crate) struct Leads {
    /// From the end of a lost lease to the next grant. Negative for an overlap.
    pub(crate) before_rival_us: Vec<i64>,
    /// From the deadline to the cancellation, of holders that ran at that time. Negative for the five milliseconds by which the
    /// timer is early.
    pub(crate) after_deadline_us: Vec<i64>,
    /// How many cancellations are not among these, because the runner stood still at that time as well.
    pub(crate) stalled: usize,
}

pub(super) fn measure(holds: &Holds, events: &[Event], figures: &mut Figures) {
    let stopped = spells(events, |fault| !fault.facts.name.is_empty());
    figures.leads.before_rival_us = holds.leads().into_iter().map(|(_, lead)| lead).collect();
    let stalls = stalls(events);
    for hold in holds.believed() {
        let Some(told_us) = hold.told_us else {
            continue;
        };
        figures.losses += 1;
        let is_stopped = stopped.iter().any(|spell| {
            spell.fault.facts.name == hold.process
                && spell.meets(hold.deadline_us.saturating_sub(50_000), told_us)
        });
        // Otherwise it was told for another reason: refused, or evicted.
        let is_by_deadline = told_us + EARLY_US >= hold.deadline_us;
        if !is_by_deadline || is_stopped {
            continue;
        }
        let is_stalled = stalls.iter().any(|stall| {
            let is_of_it = [RUNNER, &hold.process].contains(&stall.process);
            is_of_it && told_us >= stall.from_us && stall.to_us + EARLY_US >= hold.deadline_us
        });
        if is_stalled {
            figures.leads.stalled += 1;
        } else {
            let late = told_us.cast_signed() - hold.deadline_us.cast_signed();
            figures.leads.after_deadline_us.push(late);
        }
    }
    figures.leads.before_rival_us.sort_unstable();
    figures.leads.after_deadline_us.sort_unstable();
}

/// A time in which a process stood still.
#[derive(Debug)]
pub(super) struct Stall<'h> {
    process: &'h str,
    pub(super) from_us: u64,
    pub(super) to_us: u64,
}

/// When processes stood still, with some milliseconds more. That of the runner means that the machine was busy.
pub(super) fn stalls(events: &[Event]) -> Vec<Stall<'_>> {
    let stalls = events
        .iter()
        .filter(|event| event.operation == Operation::Stall);
    stalls
        .map(|stall| Stall {
            process: &stall.process,
            from_us: stall.at_us - stall.facts.ttl_us.expect("it took some time"),
            to_us: stall.at_us + 5_000,
        })
        .collect()
}

impl Holds {
    /// Of each lost lease: when its holder was told, and how long after the end of its belief the next grant came.
    pub(crate) fn leads(&self) -> Vec<(u64, i64)> {
        let mut by_name: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
        for hold in self.believed() {
            by_name.entry(&hold.name).or_default().push(hold);
        }
        let mut leads = Vec::new();
        for mut holds in by_name.into_values() {
            holds.sort_by_key(|hold| hold.believed_us);
            for pair in holds.windows(2) {
                if let (Some(told_us), Some(granted_us)) = (pair[0].told_us, pair[1].believed_us) {
                    let lead = granted_us.cast_signed() - pair[0].end_us().cast_signed();
                    leads.push((told_us, lead));
                }
            }
        }
        leads
    }
}

impl Leads {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.before_rival_us.extend(&other.before_rival_us);
        self.after_deadline_us.extend(&other.after_deadline_us);
        self.stalled += other.stalled;
        self.before_rival_us.sort_unstable();
        self.after_deadline_us.sort_unstable();
    }
}

/// The value below which this share of the sorted values lies.
pub(crate) fn quantile(sorted: &[i64], share: f64) -> Option<i64> {
    let index = (sorted.len() as f64 * share) as usize;
    sorted.get(index.min(sorted.len().checked_sub(1)?)).copied()
}
