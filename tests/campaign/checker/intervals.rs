//! No two holders of a name believe in it at a time, from when a caller has the lease until it was told, gave it up, or
//! its deadline. A fault that suspends the promise excuses the overlaps that it can have caused.

use std::collections::BTreeMap;

use super::told::{RUNNER, Stall, stalls};
use super::{Holds, Rule, Spell, Verdict, spells};
use crate::history::{Event, Operation, Promise};

/// How long a job may outlive its name. The tool kills its job a few hundred milliseconds before the name can be granted,
/// and a busy machine needs some of them: its documentation says so. So this is the one verdict that is not exact, and times in
/// which the machine stood still are added.
const JOBS_SLACK_US: u64 = 1_000_000;

/// A time during which one holder believed in a name.
#[derive(Debug)]
struct Belief<'h> {
    who: &'h str,
    /// From when the store may have had the lease, and so may have lost it.
    stored_us: u64,
    from_us: u64,
    to_us: u64,
    is_job: bool,
}

pub(super) fn judge(holds: &Holds, events: &[Event], verdict: &mut Verdict) {
    let suspended = spells(events, |fault| {
        fault.facts.suspends.contains(&Promise::Exclusion)
    });
    let stalls = stalls(events, &[RUNNER]);
    for (name, mut beliefs) in beliefs(holds, events) {
        beliefs.sort_by_key(|belief| belief.from_us);
        for (index, one) in beliefs.iter().enumerate() {
            let rivals = beliefs[index + 1..].iter();
            for rival in rivals.take_while(|rival| rival.from_us < one.to_us) {
                judge_pair(name, [one, rival], &suspended, &stalls, verdict);
            }
        }
    }
}

fn judge_pair(
    name: &str,
    [one, rival]: [&Belief<'_>; 2],
    suspended: &[Spell<'_>],
    stalls: &[Stall<'_>],
    verdict: &mut Verdict,
) {
    let overlap_us = one.to_us.min(rival.to_us).saturating_sub(rival.from_us);
    let is_of_job = one.is_job || rival.is_job;
    let near = stalls.iter().filter(|stall| {
        stall.from_us <= one.to_us && stall.to_us + 2 * JOBS_SLACK_US >= rival.from_us
    });
    let stalled_us: u64 = near.map(|stall| stall.to_us - stall.from_us).sum();
    let slack_us = if is_of_job {
        JOBS_SLACK_US + stalled_us
    } else {
        0
    };
    if overlap_us <= slack_us {
        return;
    }
    let is_excused = suspended
        .iter()
        .any(|spell| spell.meets(one.stored_us, rival.from_us));
    if is_excused {
        verdict.figures.excused += 1;
        return;
    }
    let rule = if is_of_job {
        Rule::JobsEnd
    } else {
        Rule::OneHolder
    };
    let what = format!(
        "{name}: {} and {} both believe for {overlap_us} us from {}",
        one.who, rival.who, rival.from_us
    );
    verdict.refuse(rule, what);
}

fn beliefs<'h>(holds: &'h Holds, events: &'h [Event]) -> BTreeMap<&'h str, Vec<Belief<'h>>> {
    let mut beliefs: BTreeMap<&str, Vec<Belief<'_>>> = BTreeMap::new();
    for hold in holds.believed() {
        beliefs.entry(&hold.name).or_default().push(Belief {
            who: &hold.process,
            stored_us: hold.asked_us,
            from_us: hold.believed_us.expect("it is believed"),
            to_us: hold.end_us(),
            is_job: false,
        });
    }
    let mut jobs: BTreeMap<&str, Belief<'_>> = BTreeMap::new();
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    for beat in events
        .iter()
        .filter(|event| event.operation == Operation::Beat)
    {
        let holder = beat.facts.holder.as_deref().expect("a job has one");
        names.insert(holder, &beat.facts.name);
        let job = jobs.entry(holder).or_insert(Belief {
            who: &beat.process,
            // The tool starts a job as soon as it has the lease.
            stored_us: beat.at_us.saturating_sub(JOBS_SLACK_US),
            from_us: beat.at_us,
            to_us: beat.at_us,
            is_job: true,
        });
        job.to_us = beat.at_us;
    }
    for (holder, job) in jobs {
        beliefs.entry(names[holder]).or_default().push(job);
    }
    beliefs
}
