//! Judges a history. It is apart from the runner: plain functions of the events, which start nothing and read no clock.
//!
//! Each rule is a promise of the README, and `planted` has a history for each that it must refuse.

mod ending;
mod holding;
mod intervals;
mod pools;
mod tokens;
mod told;
mod writes;

#[cfg(test)]
mod planted;

use std::collections::BTreeMap;

pub(crate) use self::holding::{Hold, Holds};
pub(crate) use self::told::{Leads, quantile};
use crate::history::{Event, Operation, Phase};

/// A promise that the history shows broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) rule: Rule,
    pub(crate) what: String,
}

/// What must be so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// An acknowledged write is the register's last, or was read by the writer of the next.
    WritesAreKept,
    /// The writes of a register have tokens that do not fall, and the order of time.
    WritesAreInOrder,
    /// A token is above that of every grant that was answered before its claim was sent.
    TokensRise,
    /// No two holders believe in a lease of one name at a time.
    OneHolder,
    /// No pool has more holders at a time than permits.
    PermitsAreCounted,
    /// No reader believes in its share while a writer believes that it is alone.
    NoReaderBesideWriter,
    /// No lease says that it is held past its deadline.
    NoLateYes,
    /// A holder that runs is told of its deadline.
    LossIsTold,
    /// No job of the tool works on while another holder has its name.
    JobsEnd,
    /// Who waits is served in the end.
    WaitersAreServed,
    /// Nothing is left without an end.
    NothingIsLeft,
}

/// What the history shows.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) broken: Vec<Broken>,
    pub(crate) figures: Figures,
}

/// What the table of results has.
#[derive(Debug, Default, Clone)]
pub(crate) struct Figures {
    /// Grants that reached their caller, those of jobs included, those of idle leases not.
    pub(crate) grants: usize,
    /// Holders that were told of a loss, without those of idle leases.
    pub(crate) losses: usize,
    pub(crate) leads: Leads,
    pub(crate) acknowledged: usize,
    /// Writes that a fence refused.
    pub(crate) refused: usize,
    /// When the writes were acknowledged that are gone.
    pub(crate) lost_us: Vec<u64>,
    /// Overlaps, all of them in a fault that suspends the promise.
    pub(crate) excused: usize,
    /// Falls of a token in a fault that suspends the promise.
    pub(crate) falls: usize,
}

/// Judges a history that is in the order of time.
pub(crate) fn judge(events: &[Event]) -> Verdict {
    let mut verdict = Verdict::default();
    let holds = Holds::of(events);
    verdict.figures.grants = holds.contended().count() + jobs(events);
    verdict.broken.extend(holds.late_yes.iter().cloned());
    tokens::judge(&holds, events, &mut verdict);
    intervals::judge(&holds, events, &mut verdict);
    pools::judge(&holds, events, &mut verdict);
    told::judge(&holds, events, &mut verdict);
    writes::judge(events, &mut verdict);
    ending::judge(events, &mut verdict);
    verdict
}

impl Verdict {
    /// Whether this promise was seen broken.
    pub(crate) fn breaks(&self, rule: Rule) -> bool {
        self.broken.iter().any(|broken| broken.rule == rule)
    }

    fn refuse(&mut self, rule: Rule, what: String) {
        self.broken.push(Broken { rule, what });
    }
}

/// How many jobs of the tool were started.
fn jobs(events: &[Event]) -> usize {
    let beats = events
        .iter()
        .filter(|event| event.operation == Operation::Beat);
    let holders = beats.filter_map(|event| event.facts.holder.as_deref());
    holders.collect::<std::collections::BTreeSet<_>>().len()
}

/// A fault and how long it lasted.
#[derive(Debug)]
struct Spell<'h> {
    fault: &'h Event,
    until_us: u64,
}

/// Returns the faults that satisfy this.
fn spells(events: &[Event], is_one: impl Fn(&Event) -> bool) -> Vec<Spell<'_>> {
    let mut begun: BTreeMap<(&str, u64), usize> = BTreeMap::new();
    let mut spells = Vec::new();
    let faults = events
        .iter()
        .filter(|event| event.operation == Operation::Fault);
    for fault in faults {
        let key = (fault.process.as_str(), fault.call);
        if fault.phase == Phase::Invoke {
            if is_one(fault) {
                begun.insert(key, spells.len());
                let until_us = u64::MAX;
                spells.push(Spell { fault, until_us });
            }
        } else if let Some(index) = begun.remove(&key) {
            spells[index].until_us = fault.at_us + fault.facts.ttl_us.unwrap_or(0);
        }
    }
    spells
}

impl Spell<'_> {
    /// Whether it had begun by `to_us` and lasted past `from_us`.
    fn meets(&self, from_us: u64, to_us: u64) -> bool {
        self.fault.at_us <= to_us && self.until_us >= from_us
    }
}
