//! Who waits is served in the end, and nothing is left without an end.

use std::collections::{BTreeMap, BTreeSet};

use super::{Rule, Verdict};
use crate::history::{Event, Operation, Phase};

pub(super) fn judge(events: &[Event], verdict: &mut Verdict) {
    let mut open: BTreeMap<(&str, u64), &Event> = BTreeMap::new();
    let mut dead = BTreeSet::new();
    for event in events {
        let key = (event.process.as_str(), event.call);
        match (event.operation, event.phase) {
            (Operation::Acquire, Phase::Invoke) => {
                open.insert(key, event);
            }
            (Operation::Acquire, _) => {
                open.remove(&key);
            }
            (Operation::Death, _) => {
                dead.insert(event.process.as_str());
            }
            (Operation::Left, _) => {
                let what = format!("{} {}", event.facts.name, event.facts.detail);
                verdict.refuse(Rule::NothingIsLeft, what);
            }
            _ => {}
        }
    }
    for event in open.into_values() {
        if !dead.contains(event.process.as_str()) {
            let what = format!("{} waits for {} for ever", event.process, event.facts.name);
            verdict.refuse(Rule::WaitersAreServed, what);
        }
    }
}
