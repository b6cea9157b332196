//! Each mistake that people make when they build a fence is found, and by the check that was written for it.

use std::sync::Arc;

use leasehold::fence::conformance;

use super::wrong_guard::{GuardBug, WrongGuard};

#[tokio::test]
async fn a_fence_in_memory_without_a_mistake_keeps_the_contract() {
    conformance::check(Arc::new(WrongGuard::new(GuardBug::None))).await;
}

#[tokio::test]
async fn each_mistake_is_found_by_its_check() {
    for (bug, check) in [
        (GuardBug::OnlyGreater, "a_holder_writes_many_times"),
        (GuardBug::OnlyEqual, "a_successor_writes"),
        (
            GuardBug::HolderIgnored,
            "an_equal_token_of_another_holder_is_a_conflict",
        ),
        (GuardBug::NameIgnored, "another_lease_name_is_a_conflict"),
        (
            GuardBug::RaisedByTheFirstWrite,
            "a_raise_bars_the_older_before_any_write",
        ),
        (
            GuardBug::TwoSteps,
            "a_raise_beside_a_slow_write_loses_nothing",
        ),
        (
            GuardBug::TokenPerProcess,
            "two_leases_of_one_process_have_passes_of_their_own",
        ),
        (
            GuardBug::MissingWavedThrough,
            "a_missing_pass_is_refused_and_changes_nothing",
        ),
        (
            GuardBug::KeptAfterTheWrite,
            "a_write_cut_short_keeps_its_raise",
        ),
    ] {
        let checked = tokio::spawn(conformance::check(Arc::new(WrongGuard::new(bug)))).await;
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
