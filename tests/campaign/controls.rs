//! The controls: what must be seen to lose under the same faults, or the faults are too tame and the campaign proves
//! nothing.

use crate::checker::Rule;
use crate::fault::Fault;
use crate::grounds::Site;
use crate::normal::seed;
use crate::rivals::Rival;
use crate::run::{Plan, run_at_once};
use crate::witness::Bug;
use crate::worker::Kind;

/// How many faults a control may take to lose. Most lose in the first or second.
const FAULTS: usize = 40;

/// A control that loses by this rule.
fn control(title: &str, kind: Kind, only: &[Fault], rule: Rule) -> Plan {
    Plan {
        title: format!("control-{title}"),
        site: Site::Redis,
        seed: seed(),
        faults: FAULTS,
        only: only.to_vec(),
        kind,
        has_pools: matches!(kind, Kind::Planted(Bug::BlindPolls)),
        until: Some(rule),
    }
}

fn assert_all_lose(plans: Vec<Plan>) {
    let count = plans.len();
    let runs = run_at_once(plans);
    assert_eq!(runs.len(), count, "each run came to its end");
    for run in &runs {
        let rule = run.plan.until.expect("a control has one");
        let figures = &run.verdict.figures;
        assert!(
            run.verdict.breaks(rule),
            "{} did not lose by {rule:?} in {FAULTS} faults: {figures:?} {}",
            run.plan.title,
            run.file.display()
        );
    }
}

#[test]
fn without_a_fence_or_with_a_lock_that_has_no_token_writes_are_lost() {
    let paused = [Fault::WorkerStoppedBeforeWrite];
    let loser = |title, kind| control(title, kind, &paused, Rule::WritesAreKept);
    let mut unfenced_on_sqlite = loser("unfenced-sqlite", Kind::Unfenced);
    unfenced_on_sqlite.site = Site::Sqlite;
    assert_all_lose(vec![
        unfenced_on_sqlite,
        loser("unfenced", Kind::Unfenced),
        loser("setnx", Kind::Rival(Rival::SetNx)),
        loser("getset", Kind::Rival(Rival::GetSet)),
        loser("rslock", Kind::Rival(Rival::Rslock)),
    ]);
}

#[test]
fn each_bug_that_is_planted_in_the_leases_is_found() {
    let planted = |title, bug, only: &[Fault], rule| control(title, Kind::Planted(bug), only, rule);
    assert_all_lose(vec![
        planted(
            "optimistic-renewal",
            Bug::OptimisticRenewal,
            &[Fault::BlackHole],
            Rule::NoLateYes,
        ),
        planted(
            "ignored-refusal",
            Bug::IgnoredRefusal,
            &[Fault::EvictedNow],
            Rule::NoLateYes,
        ),
        planted(
            "long-deadline",
            Bug::LongDeadline,
            &[Fault::BlackHole],
            Rule::NoLateYes,
        ),
        planted(
            "reused-token",
            Bug::ReusedToken,
            &[Fault::Cut],
            Rule::TokensRise,
        ),
        planted(
            "skipped-comparison",
            Bug::SkippedComparison,
            &[Fault::WorkerStoppedBeforeWrite],
            Rule::WritesAreKept,
        ),
        planted(
            "blind-looks",
            Bug::BlindPolls,
            &[Fault::WorkerStopped],
            Rule::NoReaderBesideWriter,
        ),
    ]);
}
