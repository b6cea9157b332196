//! Acknowledged writes are kept, in an order that real time and the tokens allow.
//!
//! No two writes of a run have the same value, and each says which value its writer had read. So the value that a register
//! has in the end names the write that made it, that write names the one before, and so on to the beginning: the only
//! order in which the writes can have taken effect. No search is needed to decide whether the history is linearizable:
//! each acknowledged write must be on this way, and the way must agree with real time.

use std::collections::{BTreeMap, BTreeSet};

use super::{Rule, Verdict};
use crate::history::{Event, Operation, Phase};

/// One write.
#[derive(Debug)]
struct Write<'h> {
    begun: &'h Event,
    /// When it was acknowledged.
    acknowledged_us: Option<u64>,
}

pub(super) fn judge(events: &[Event], verdict: &mut Verdict) {
    let mut by_name: BTreeMap<&str, BTreeMap<&str, Write<'_>>> = BTreeMap::new();
    let mut calls: BTreeMap<(&str, u64), &Event> = BTreeMap::new();
    for event in events
        .iter()
        .filter(|event| event.operation == Operation::Write)
    {
        let key = (event.process.as_str(), event.call);
        match event.phase {
            Phase::Invoke => {
                calls.insert(key, event);
                let write = Write {
                    begun: event,
                    acknowledged_us: None,
                };
                let name = by_name.entry(&event.facts.name).or_default();
                name.insert(event.facts.value.as_deref().expect("a value"), write);
            }
            Phase::Answer => {
                verdict.figures.acknowledged += 1;
                let begun = calls[&key];
                let writes = by_name.get_mut(begun.facts.name.as_str());
                let value = begun.facts.value.as_deref().expect("a value");
                let write = writes.and_then(|writes| writes.get_mut(value));
                write.expect("it begun").acknowledged_us = Some(event.at_us);
            }
            Phase::Refused => verdict.figures.refused += 1,
            Phase::Unknown => {}
        }
    }
    for end in events
        .iter()
        .filter(|event| event.operation == Operation::Final)
    {
        if let Some(writes) = by_name.get(end.facts.name.as_str()) {
            judge_register(&end.facts.name, end.facts.value.as_deref(), writes, verdict);
        } else if end.facts.value.is_some() {
            let what = format!("{}: a value that was never written", end.facts.name);
            verdict.refuse(Rule::WritesAreKept, what);
        }
    }
}

fn judge_register(
    name: &str,
    end: Option<&str>,
    writes: &BTreeMap<&str, Write<'_>>,
    verdict: &mut Verdict,
) {
    let mut kept = BTreeSet::new();
    let (mut value, mut later): (_, Option<&Write<'_>>) = (end, None);
    // From the end back to the beginning. Of the writes passed, the earliest acknowledgement: an earlier write that began after
    // it cannot have been overwritten by that one.
    let mut earliest_us = u64::MAX;
    while let Some(one) = value {
        let Some(write) = writes.get(one).filter(|_| kept.insert(one)) else {
            let what = format!("{name}: {one} was never written, or is its own ancestor");
            verdict.refuse(Rule::WritesAreKept, what);
            break;
        };
        let token = |write: &Write<'_>| write.begun.facts.token;
        if later.is_some_and(|later| token(later) < token(write)) {
            let what = format!(
                "{name}: {one} was overwritten under a lower token than {:?}",
                token(write)
            );
            verdict.refuse(Rule::WritesAreInOrder, what);
        }
        if write.begun.at_us > earliest_us {
            let what = format!("{name}: {one} began after its successor was acknowledged");
            verdict.refuse(Rule::WritesAreInOrder, what);
        }
        earliest_us = earliest_us.min(write.acknowledged_us.unwrap_or(u64::MAX));
        later = Some(write);
        value = write.begun.facts.previous.as_deref();
    }
    for (value, write) in writes {
        let lost_us = write.acknowledged_us.filter(|_| !kept.contains(value));
        if let Some(lost_us) = lost_us {
            verdict.figures.lost_us.push(lost_us);
            let token = write.begun.facts.token;
            let what = format!("{name}: {value} (token {token:?}) was acknowledged and is gone");
            verdict.refuse(Rule::WritesAreKept, what);
        }
    }
}
