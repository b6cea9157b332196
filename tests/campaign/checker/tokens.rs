//! Tokens rise from grant to grant, in the order of time: above that of every grant that was answered before the claim was
//! sent. No two holders of a name have the same.

use std::collections::BTreeMap;

use super::{Hold, Holds, Rule, Verdict, spells};
use crate::history::{Event, Promise};

pub(super) fn judge(holds: &Holds, events: &[Event], verdict: &mut Verdict) {
    let suspended = spells(events, |fault| {
        fault.facts.suspends.contains(&Promise::Tokens)
    });
    let mut by_name: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
    for hold in &holds.all {
        by_name.entry(&hold.name).or_default().push(hold);
    }
    for (name, mut holds) in by_name {
        let mut answered = holds.clone();
        answered.sort_by_key(|hold| hold.answered_us);
        holds.sort_by_key(|hold| hold.claimed_us);
        let mut earlier = answered.into_iter().peekable();
        let mut highest: Option<&Hold> = None;
        for hold in &holds {
            while let Some(before) = earlier.next_if(|other| other.answered_us < hold.claimed_us) {
                highest = highest
                    .filter(|high| high.token >= before.token)
                    .or(Some(before));
            }
            let Some(high) = highest.filter(|high| high.token >= hold.token) else {
                continue;
            };
            let is_excused = suspended
                .iter()
                .any(|spell| spell.meets(high.asked_us, hold.answered_us));
            if is_excused {
                verdict.figures.falls += 1;
            } else {
                let what = format!("{name}: token {} after {}", hold.token, high.token);
                verdict.refuse(Rule::TokensRise, what);
            }
        }
        judge_unique(name, &holds, verdict, |one, other| {
            suspended
                .iter()
                .any(|spell| spell.meets(one.asked_us, other.answered_us))
        });
    }
}

fn judge_unique(
    name: &str,
    holds: &[&Hold],
    verdict: &mut Verdict,
    is_excused: impl Fn(&Hold, &Hold) -> bool,
) {
    let mut first: BTreeMap<u64, &Hold> = BTreeMap::new();
    for hold in holds {
        let other = *first.entry(hold.token).or_insert(hold);
        if other.holder != hold.holder && !is_excused(other, hold) {
            let what = format!("{name}: two holders have token {}", hold.token);
            verdict.refuse(Rule::TokensRise, what);
        }
    }
}
