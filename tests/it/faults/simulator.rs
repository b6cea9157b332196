//! The simulator's long campaigns. Their settings are those of [the short ones](crate::simulator).

use crate::simulator::{each_bug_is_caught, large_schedules, small_schedules};

#[test]
fn a_hundred_thousand_schedules_keep_every_promise() {
    small_schedules(100_000);
}

#[test]
fn a_hundred_schedules_of_two_thousand_leases_keep_every_promise() {
    large_schedules(100);
}

#[test]
fn every_planted_bug_is_caught() {
    each_bug_is_caught();
}
