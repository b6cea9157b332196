//! What is left of a job when the next holder begins, for every way a lease ends.

use crate::tool::{boundary, schedules};

#[test]
fn nothing_of_the_job_lives_when_the_next_holder_begins_however_its_lease_ended() {
    if !crate::sqlite::surroundings::are_allowed() {
        return;
    }
    boundary::end_each_way(&boundary::ALL);
}

#[test]
fn in_a_thousand_schedules_no_rival_finds_a_process_of_the_job() {
    schedules::play_at_random(1_000);
}
