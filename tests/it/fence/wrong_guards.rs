//! Each mistake that people make when they build a fence is found, and by the check that was written for it.

use super::keeps_the_contract;
use super::wrong_guard::{GuardBug, WrongGuard};

#[tokio::test]
async fn a_fence_in_memory_without_a_mistake_keeps_the_contract() {
    keeps_the_contract(WrongGuard::new(GuardBug::None)).await;
}

#[tokio::test]
async fn each_mistake_is_found_by_its_check() {
    let rule = "every_pair_of_steps_is_judged_by_the_rule";
    for (bug, check) in [
        (GuardBug::OnlyGreater, rule),
        (GuardBug::OnlyEqual, rule),
        (GuardBug::HolderIgnored, rule),
        (GuardBug::NameIgnored, rule),
        (GuardBug::RaisedByTheFirstWrite, rule),
        (
            GuardBug::TwoSteps,
            "a_raise_beside_a_slow_write_loses_nothing",
        ),
        (GuardBug::TokenPerProcess, rule),
        (
            GuardBug::MissingWavedThrough,
            "a_missing_pass_is_refused_and_changes_nothing",
        ),
        (
            GuardBug::KeptAfterTheWrite,
            "a_write_cut_short_keeps_its_raise",
        ),
    ] {
        let checked = tokio::spawn(keeps_the_contract(WrongGuard::new(bug))).await;
        let Err(broken) = checked else {
            panic!("{bug:?} is not found");
        };
        let broken = broken.to_string();
        assert!(
            broken.contains(&format!("breaks `{check}`")),
            "{bug:?}: {broken}"
        );
    }
}
