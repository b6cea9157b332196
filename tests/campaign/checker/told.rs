//! How long before the rival's grant a holder was told, and how soon after its deadline. The second is judged only where it is
//! beyond doubt: on a busy machine a thread runs when it can.

use std::collections::BTreeMap;

use super::{Hold, Holds, Rule, Spell, Verdict, spells};
use crate::history::{Event, Operation};

/// A holder that is told up to this much before its deadline is told because of the deadline.
const EARLY_US: u64 = 10_000;
/// A holder that ran, on a machine that ran, and was not told so long after its deadline was not told because of it.
const LATE_US: u64 = 1_000_000;
/// The process whose stalls are those of the machine.
pub(super) const RUNNER: &str = "nemesis";

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

/// Measures how soon holders were told, and refuses what is no delay any more.
pub(super) fn judge(holds: &Holds, events: &[Event], verdict: &mut Verdict) {
    let mut leads = Leads::default();
    leads.before_rival_us = holds.leads().into_iter().map(|(_, lead)| lead).collect();
    let told = holds.contended().filter(|hold| hold.told_us.is_some());
    verdict.figures.losses = told.count();
    let stops = Stops::of(events);
    for hold in holds.believed() {
        leads.note_cancellation(hold, &stops);
        let knew_us = hold.given_up_us.into_iter().chain(hold.told_us).min();
        let knew_us = knew_us.unwrap_or_else(|| stops.last_seen_us(&hold.process));
        let late_us = knew_us.saturating_sub(hold.deadline_us);
        if late_us > LATE_US && !stops.meet(hold, knew_us) && !stops.stall(hold, knew_us) {
            let (name, process) = (&hold.name, &hold.process);
            let what = format!("{process} was not told of {name} for {late_us} us");
            verdict.refuse(Rule::LossIsTold, what);
        }
    }
    leads.before_rival_us.sort_unstable();
    leads.after_deadline_us.sort_unstable();
    verdict.figures.leads = leads;
}

impl Leads {
    fn note_cancellation(&mut self, hold: &Hold, stops: &Stops<'_>) {
        let Some(told_us) = hold.told_us else {
            return;
        };
        // Otherwise it was told for another reason: refused, or evicted.
        let is_by_deadline = told_us + EARLY_US >= hold.deadline_us;
        if !is_by_deadline || stops.meet(hold, told_us) {
            return;
        }
        if stops.stall(hold, told_us) {
            self.stalled += 1;
        } else {
            let late = told_us.cast_signed() - hold.deadline_us.cast_signed();
            self.after_deadline_us.push(late);
        }
    }
}

/// When processes did not run.
struct Stops<'h> {
    /// Stopped by a fault.
    by_fault: Vec<Spell<'h>>,
    /// By their own account, whatever the reason. A worker that was told to stop before its next write may do so long after that
    /// fault has ended.
    stalls: Vec<Stall<'h>>,
    last_seen_us: BTreeMap<&'h str, u64>,
}

impl<'h> Stops<'h> {
    fn of(events: &'h [Event]) -> Self {
        Self {
            by_fault: spells(events, |fault| !fault.facts.name.is_empty()),
            stalls: stalls(events, &[]),
            last_seen_us: events
                .iter()
                .map(|event| (&*event.process, event.at_us))
                .collect(),
        }
    }

    /// Whether a fault stopped the holder shortly before its deadline or until this moment.
    fn meet(&self, hold: &Hold, until_us: u64) -> bool {
        let from_us = hold.deadline_us.saturating_sub(50_000);
        let mut stops = self.by_fault.iter();
        stops.any(|stop| stop.fault.facts.name == hold.process && stop.meets(from_us, until_us))
    }

    /// Whether the holder or the machine stood still between its deadline and this moment.
    fn stall(&self, hold: &Hold, until_us: u64) -> bool {
        self.stalls.iter().any(|stall| {
            let is_of_it = [RUNNER, &hold.process].contains(&stall.process);
            is_of_it && until_us >= stall.from_us && stall.to_us + EARLY_US >= hold.deadline_us
        })
    }

    fn last_seen_us(&self, process: &str) -> u64 {
        self.last_seen_us.get(process).copied().unwrap_or(0)
    }
}

/// A time during which a process stood still.
#[derive(Debug)]
pub(super) struct Stall<'h> {
    process: &'h str,
    pub(super) from_us: u64,
    pub(super) to_us: u64,
}

/// When these processes stood still, or all if none is named; with some milliseconds more. That of the runner means that the
/// machine was busy.
pub(super) fn stalls<'h>(events: &'h [Event], of: &[&str]) -> Vec<Stall<'h>> {
    let stalls = events.iter().filter(|event| {
        event.operation == Operation::Stall && (of.is_empty() || of.contains(&&*event.process))
    });
    stalls
        .map(|stall| Stall {
            process: &stall.process,
            from_us: stall.at_us - stall.facts.ttl_us.expect("it took some time"),
            to_us: stall.at_us + 5_000,
        })
        .collect()
}

impl Holds {
    /// Of each lost lease of a name that several want: when its holder was told, and how long after the end of its belief the
    /// next grant came.
    pub(crate) fn leads(&self) -> Vec<(u64, i64)> {
        let mut by_name: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
        for hold in self.contended() {
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
