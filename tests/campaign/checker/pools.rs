//! No pool has more holders at a time than permits, and no reader believes in its share while a writer believes that it
//! is alone. A fault that suspends exclusion excuses what it can have caused.

use super::{Hold, Holds, Rule, Spell, Verdict, spells};
use crate::history::{Event, Promise};
use crate::pool::{PERMITS, POOL, SHARED, is_permit_of};

pub(super) fn judge(holds: &Holds, events: &[Event], verdict: &mut Verdict) {
    let suspended = spells(events, |fault| {
        fault.facts.suspends.contains(&Promise::Exclusion)
    });
    let mut believed: Vec<&Hold> = holds.believed().collect();
    believed.sort_by_key(|hold| hold.believed_us);
    for (index, newest) in believed.iter().enumerate() {
        let from_us = newest.believed_us.expect("it is believed");
        let before = believed[..index].iter().copied();
        let at_once = before.filter(|earlier| earlier.end_us() > from_us);
        let (rule, rivals): (_, Vec<&Hold>) = if is_permit_of(POOL, &newest.name) {
            let others = at_once
                .filter(|other| is_permit_of(POOL, &other.name))
                .collect();
            (Rule::PermitsAreCounted, others)
        } else {
            let rivals = at_once.filter(|other| are_apart(&newest.name, &other.name));
            (Rule::NoReaderBesideWriter, rivals.collect())
        };
        let most = match rule {
            Rule::PermitsAreCounted => usize::from(PERMITS) - 1,
            _ => 0,
        };
        if newest.end_us() > from_us && rivals.len() > most {
            judge_one(rule, newest, &rivals, &suspended, verdict);
        }
    }
}

/// Returns whether one of these leases is for a writer and the other for a reader.
fn are_apart(one: &str, other: &str) -> bool {
    let is_reader = |name| is_permit_of(SHARED, name);
    one == SHARED && is_reader(other) || is_reader(one) && other == SHARED
}

fn judge_one(
    rule: Rule,
    newest: &Hold,
    rivals: &[&Hold],
    suspended: &[Spell<'_>],
    verdict: &mut Verdict,
) {
    let from_us = newest.believed_us.expect("it is believed");
    let stored_us = rivals.iter().map(|rival| rival.asked_us).min();
    let stored_us = stored_us.expect("there are rivals");
    if suspended
        .iter()
        .any(|spell| spell.meets(stored_us, from_us))
    {
        verdict.figures.excused += 1;
        return;
    }
    let rivals: Vec<_> = rivals
        .iter()
        .map(|rival| format!("{} {}", rival.process, rival.name))
        .collect();
    let what = format!(
        "{} has {} from {from_us}, beside {}",
        newest.process,
        newest.name,
        rivals.join(", ")
    );
    verdict.refuse(rule, what);
}
