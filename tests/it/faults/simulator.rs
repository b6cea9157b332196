//! The simulator's long campaigns. Their settings are those of [the short ones](crate::simulator).

use crate::simulator::quorum::{SELDOM, each_is_caught, quorum_schedules};
use crate::simulator::{large_schedules, small_schedules};

#[test]
fn a_hundred_thousand_schedules_keep_every_promise() {
    small_schedules(100_000);
}

#[test]
fn a_hundred_schedules_of_two_thousand_leases_keep_every_promise() {
    large_schedules(100);
}

#[test]
fn a_quorum_keeps_every_promise_in_twenty_thousand_schedules() {
    quorum_schedules(20_000);
}

#[test]
fn planted_bugs_of_the_quorum_that_seldom_show_are_caught_by_chance() {
    each_is_caught(&SELDOM, 30_000);
}
