//! The larger bounds, which take up to a minute each.

use super::verdicts::{going_on, holds_for, joining, knowing, one_session, serves};
use super::{Fence, GoesOn, Rule, Setup, Wrong};

/// More states than any of these searches has: some two gigabytes.
const MOST: usize = 40_000_000;

fn holds_sound(name: &str, what: &str, setup: &Setup) {
    holds_for(name, what, MOST, setup);
}

#[test]
fn four_actors_keep_apart() {
    holds_sound("H12", "", &Setup::new(2, 2, 2).by(Rule::Deadline));
    holds_sound("H13", "", &Setup::new(3, 1, 2).by(Rule::Deadline));
    holds_sound("L12", "", &Setup::new(2, 2, 2));
    holds_sound("L13", "", &Setup::new(3, 1, 2));
    let tasks = joining(Setup::new(2, 2, 2));
    holds_sound("L19", "readers are tasks of one client", &tasks);
}

#[test]
fn the_deadline_alone_keeps_apart_while_clocks_are_right() {
    let sound = |name: &str, what: &str, setup: Setup| {
        holds_sound(name, what, &setup.by(Rule::Deadline));
    };
    sound("H5", "takers", Setup::new(3, 0, 2));
    sound("H9", "takers who know 1, 2, 2", knowing([1, 2, 2, 2], 0));
    sound("H10", "readers know 1 and 1", knowing([1, 1, 2, 2], 1));
    sound("H14", "readers know 1 and 2", knowing([1, 2, 2, 2], 1));
    let what = "checks of one session";
    sound("H6", what, one_session(Setup::new(2, 1, 2)));
    sound("H7", what, one_session(Setup::new(1, 2, 2)));
    let free = Setup::new(2, 1, 2).with(Wrong::ReadersDoorIsFree);
    sound("H8", "a reader's door counts as free", free);
    let as_reader = going_on(GoesOn::AsReader, Setup::new(1, 2, 2));
    sound("H15", "writers go on as readers", as_reader);
    let as_writer = going_on(GoesOn::AsWriter, Setup::new(2, 1, 2));
    sound("H16", "readers go on as writers", as_writer);
}

#[test]
fn one_of_two_permits_keeps_a_writer_away() {
    holds_sound("L14", "readers know 1 and 2", &knowing([1, 2, 2, 2], 1));
    let what = "checks of one session";
    holds_sound("L6", what, &one_session(Setup::new(2, 1, 2)));
    let by_poll = Setup::new(2, 1, 2).by(Rule::FreeOrOwn);
    holds_sound("H17", what, &one_session(by_poll));
    let as_reader = going_on(GoesOn::AsReader, Setup::new(1, 2, 2));
    holds_sound("L15", "writers go on as readers", &as_reader);
}

#[test]
fn each_living_actor_can_be_served() {
    let served = |name: &str, what: &str, setup: Setup| serves(name, what, MOST, setup);
    served("S4", "", Setup::new(2, 1, 2).by(Rule::Deadline));
    served("S5", "", Setup::new(1, 2, 2).by(Rule::Deadline));
    served("S7", "takers", Setup::new(3, 0, 2).by(Rule::Deadline));
    served("S11", "", Setup::new(2, 1, 2));
    let tasks = joining(Setup::new(2, 1, 2));
    served("S14", "readers are tasks of one client", tasks);
}

#[test]
fn leases_that_end_early_leave_no_writer_with_a_reader_for_good() {
    holds_sound("E5", "", &Setup::new(2, 1, 2).ending_early());
    let tasks = joining(Setup::new(2, 1, 2)).ending_early();
    holds_sound("E6", "readers are tasks of one client", &tasks);
}

#[test]
fn a_late_write_is_refused_while_a_reader_reads_that_came_through_the_door() {
    for (two_readers, two_writers, rule) in [
        ("F1", "F2", Rule::Deadline),
        ("F4c", "F4b", Rule::OwnByToken),
        ("F12", "F11", Rule::Release),
    ] {
        let what = "readers through the door";
        holds_sound(two_readers, what, &Setup::new(2, 1, 1).by(rule).fenced());
        holds_sound(two_writers, what, &Setup::new(1, 2, 1).by(rule).fenced());
    }
}

#[test]
fn a_late_write_is_refused_while_a_writer_goes_on_as_a_fenced_reader() {
    let as_reader = going_on(GoesOn::AsReader, Setup::new(1, 1, 1));
    holds_sound("F19", "writers go on as readers", &as_reader.fenced());
}

#[test]
fn a_late_write_is_refused_while_a_fenced_reader_reads() {
    let above = |setup: Setup| setup.fencing(Fence::AboveTheLast);
    let what = "fast readers raise above the last token";
    let pair = above(Setup::new(1, 1, 2));
    holds_sound("F10", what, &pair.clone().by(Rule::Deadline));
    holds_sound("F14", what, &pair);
    let some = Setup::new(2, 1, 1).fencing(Fence::BehindTheDoor);
    holds_sound("F16", "fast readers do not count on the fence", &some);
}
