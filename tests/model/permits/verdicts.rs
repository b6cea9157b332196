//! The bounds of the normal run: the rules hold, and each that is replaced or left out is refuted. A row of the table
//! names the promise that is broken, and the number of steps of the shortest way there.
//!
//! A row's name begins with a letter: H, K and L are the rules R, R' and R'' of [`Rule`], S asks whether each actor
//! can be served, E has leases that end early, F has a storage with a fence, V a wrong rule, N a share within a share,
//! and T newcomers.

use super::{Coming, Fence, GoesOn, Newcomers, Promise, Rule, Setup, Within, Wrong};
use crate::search::search;
use crate::serving::search_serving;
use crate::verdict::judged;

/// More states than any search of the normal run has.
const MOST: usize = 3_000_000;

/// The actors, the permits and the rule behind the door.
pub(super) fn title(name: &str, what: &str, setup: &Setup) -> String {
    let (readers, writers) = (setup.readers, setup.writers);
    let permits = setup.permits[..setup.actors()].iter().max();
    let permits = permits.copied().unwrap_or_default();
    let rule = setup.rule;
    format!("{name:<4} {readers} readers, {writers} writers, N = {permits}, {rule:?} {what}")
}

/// All states are seen, and none breaks a promise.
pub(super) fn holds_for(name: &str, what: &str, most: usize, setup: &Setup) {
    judged(&title(name, what, setup), search(setup, most)).holds();
}

/// The same, and each actor can be served from each of them.
pub(super) fn serves(name: &str, what: &str, most: usize, setup: Setup) {
    let setup = setup.dying();
    judged(&title(name, what, &setup), search_serving(&setup, most)).holds();
}

fn refutes(name: &str, what: &str, promise: Promise, steps: usize, setup: &Setup) {
    let found = search(setup, MOST);
    judged(&title(name, what, setup), found).breaks_in(promise.name(), steps);
}

/// Two readers who know different numbers of permits, and another actor.
pub(super) fn knowing(permits: [u8; 4], writers: usize) -> Setup {
    Setup {
        permits,
        ..Setup::new(3 - writers, writers, 2)
    }
}

pub(super) fn one_session(setup: Setup) -> Setup {
    Setup {
        one_session: true,
        ..setup
    }
}

pub(super) fn going_on(to: GoesOn, setup: Setup) -> Setup {
    let goes_on = Some(to);
    Setup { goes_on, ..setup }
}

/// The readers are tasks of one client.
pub(super) fn joining(setup: Setup) -> Setup {
    Setup {
        joins: true,
        ..setup
    }
}

/// A reader asks for a share within its own.
pub(super) fn within(how: Within, setup: Setup) -> Setup {
    let within = Some(how);
    Setup { within, ..setup }
}

mod sound {
    use super::*;
    use Setup as S;

    fn sound(name: &str, what: &str, setup: &Setup) {
        holds_for(name, what, MOST, setup);
    }

    #[test]
    fn a_writer_holds_alone_by_each_rule_behind_the_door() {
        for (letter, rule) in [
            ("H", Rule::Deadline),
            ("K", Rule::FreeOrOwn),
            ("L", Rule::Release),
        ] {
            for (number, setup) in [
                (1, S::new(2, 1, 1)),
                (2, S::new(2, 1, 2)),
                (3, S::new(1, 2, 1)),
                (4, S::new(1, 2, 2)),
            ] {
                sound(&format!("{letter}{number}"), "", &setup.by(rule));
            }
        }
        sound("H11", "", &S::new(2, 2, 1).by(Rule::Deadline));
        sound("L11", "", &S::new(2, 2, 1));
    }

    #[test]
    fn a_permit_has_one_holder_without_writers() {
        sound("L5", "takers", &S::new(3, 0, 2));
        let at_once = S::new(3, 0, 2).by(Rule::AtOnce).with(Wrong::DoorNotChecked);
        sound("L17", "takers, every permit counts at once", &at_once);
    }

    #[test]
    fn a_writer_who_checks_more_permits_than_readers_know_holds_alone() {
        sound("L10", "readers know 1 and 1", &knowing([1, 1, 2, 2], 1));
    }

    #[test]
    fn a_read_may_be_as_old_as_the_own_claim() {
        let what = "checks of one session";
        sound("L7", what, &one_session(S::new(1, 2, 2)));
        let by_poll = S::new(2, 1, 1).by(Rule::FreeOrOwn);
        sound("K6", what, &one_session(by_poll));
    }

    #[test]
    fn who_goes_on_in_another_mode_keeps_apart() {
        let as_reader = going_on(GoesOn::AsReader, S::new(1, 2, 1));
        sound("L15", "writers go on as readers", &as_reader);
        let as_writer = going_on(GoesOn::AsWriter, S::new(2, 1, 1));
        sound("L16", "readers go on as writers", &as_writer);
    }

    #[test]
    fn a_door_that_a_reader_holds_may_count_as_free() {
        let setup = S::new(2, 1, 1).with(Wrong::ReadersDoorIsFree);
        sound("L8", "a reader's door counts as free", &setup);
    }

    #[test]
    fn one_turn_of_the_door_serves_several_tasks() {
        let what = "readers are tasks of one client";
        sound("L18", what, &joining(S::new(2, 1, 2)));
    }

    #[test]
    fn a_share_within_a_share_joins_it_or_is_refused_while_a_writer_waits() {
        let served = |name: &str, what: &str, setup: Setup| serves(name, what, MOST, setup);
        let joins = within(Within::Joins, S::new(2, 1, 1));
        sound("N1", "a share within a share is the same", &joins);
        served("N2", "a share within a share is the same", joins);
        let refused = within(Within::IsRefused, S::new(2, 1, 2));
        sound("N3", "a share within a share is refused", &refused);
        served("N4", "a share within a share is refused", refused);
    }

    #[test]
    fn each_living_actor_can_be_served() {
        let served = |name: &str, what: &str, setup: Setup| serves(name, what, MOST, setup);
        served("S1", "", S::new(2, 1, 1).by(Rule::Deadline));
        served("S2", "", S::new(1, 2, 1).by(Rule::Deadline));
        served("S3", "", S::new(2, 1, 1).by(Rule::FreeOrOwn));
        served("S6", "takers", S::new(3, 0, 1).by(Rule::Deadline));
        let as_reader = going_on(GoesOn::AsReader, S::new(1, 2, 1).by(Rule::Deadline));
        served("S9", "writers go on as readers", as_reader);
        served("S12", "", S::new(2, 1, 1));
        served("S13", "", S::new(1, 2, 1));
    }

    #[test]
    fn leases_that_end_early_leave_no_writer_with_a_reader_for_good() {
        sound(
            "E2",
            "",
            &S::new(2, 1, 1).by(Rule::FreeOrOwn).ending_early(),
        );
        sound("E3", "", &S::new(2, 1, 1).ending_early());
        sound("E4", "", &S::new(1, 2, 2).ending_early());
    }

    #[test]
    fn a_late_write_is_refused_while_a_fenced_reader_reads() {
        sound("F17", "readers through the door", &S::new(1, 1, 2).fenced());
        let above = |setup: Setup| setup.fencing(Fence::AboveTheLast);
        let what = "fast readers raise above the last token";
        sound("F9", what, &above(S::new(1, 1, 1).by(Rule::Deadline)));
        sound("F18", what, &above(S::new(1, 1, 1)));
    }

    #[test]
    fn newcomers_who_queue_remember_or_check_first_take_a_permit_once() {
        for (name, coming) in [
            ("T1", Coming::ToQueue),
            ("T3", Coming::ToTryAndRemember),
            ("T5", Coming::ToCheckFirst),
        ] {
            for newcomers in waiters(coming) {
                judged(&newcomers.row(name), search(&newcomers, MOST)).holds();
                let once = Newcomers {
                    is_bound: true,
                    ..newcomers
                };
                judged(&once.row(name), search(&once, MOST)).holds();
            }
        }
    }
}

impl Newcomers {
    fn row(&self, name: &str) -> String {
        let Self {
            coming, permits, ..
        } = self;
        let waiter = if self.is_writer { "writer" } else { "reader" };
        let asked = if self.is_bound { "once" } else { "for ever" };
        let limited = if self.is_limited {
            ", a limit at the door"
        } else {
            ""
        };
        format!(
            "{name:<4} {waiter} at the door, N = {permits}, newcomers {coming:?}{limited}: {asked}"
        )
    }
}

/// A writer and a reader at the door, of one permit and of two.
fn waiters(coming: Coming) -> [Newcomers; 4] {
    [(true, 1), (false, 1), (true, 2), (false, 2)].map(|(is_writer, permits)| Newcomers {
        coming,
        is_writer,
        permits,
        is_bound: false,
        is_limited: false,
    })
}

mod refuted {
    use super::Promise::{Apart, ApartForGood, Fenced};
    use super::*;

    fn pair() -> Setup {
        Setup::new(1, 1, 1)
    }

    /// With this rule replaced a writer does not hold alone.
    fn wrong(name: &str, steps: usize, wrong: Wrong, setup: Setup) {
        let what = format!("{wrong:?}");
        refutes(name, &what, Apart, steps, &setup.with(wrong));
    }

    #[test]
    fn checks_the_door() {
        wrong("V1", 10, Wrong::DoorCheckedEarly, pair());
        wrong("V2", 8, Wrong::DoorNotChecked, pair());
        wrong("V6", 10, Wrong::DoorCheckIsStale, pair());
        wrong("V9", 10, Wrong::OwnByClient, pair());
        let fast = Setup {
            slow: false,
            ..pair()
        };
        wrong("V11", 16, Wrong::DoorCheckKept, fast);
    }

    #[test]
    fn checks_the_permits() {
        wrong("V3", 10, Wrong::PermitsCheckedEarly, pair());
        wrong("V6b", 10, Wrong::PermitCheckIsStale, pair());
        wrong("V7", 15, Wrong::PermitChecksKept, pair());
        let permits = [2, 1, 1, 1];
        let fewer = Setup { permits, ..pair() };
        refutes("V5", "the writer checks 1 of 2", Apart, 10, &fewer);
    }

    #[test]
    fn permits_behind_the_door() {
        let slow = |rule: Rule| Setup {
            fast: false,
            ..pair().by(rule)
        };
        refutes("V4", "", Apart, 13, &slow(Rule::AtOnce));
        refutes("V4b", "", Apart, 13, &slow(Rule::DeadlineAtClaim));
        wrong("V10", 15, Wrong::OwnByClient, slow(Rule::FreeOrOwn));
        let early = pair().by(Rule::Deadline).ending_early();
        refutes("E1", "leases end early", ApartForGood, 12, &early);
        let late = joining(Setup::new(2, 1, 2));
        wrong("V15", 19, Wrong::LateTasksCount, late);
    }

    #[test]
    fn fences() {
        let by_poll = pair().by(Rule::FreeOrOwn).fenced();
        refutes("F3", "", Fenced, 20, &by_poll);
        let by_holder = Setup::new(1, 2, 1).by(Rule::OwnByHolder).fenced();
        refutes("F4", "", Fenced, 21, &by_holder);
        let fast = pair().fencing(Fence::CountedOn);
        refutes("F5", "fast readers do not raise", Fenced, 14, &fast);
    }

    #[test]
    fn what_is_kept_while_queueing() {
        let stuck = |name: &str, what: &str, steps: usize, setup: Setup| {
            let setup = setup.dying();
            let found = search_serving(&setup, MOST);
            judged(&title(name, what, &setup), found).breaks_in("X3", steps);
        };
        let kept = pair().with(Wrong::PermitKeptInQueue);
        stuck("S8", "a reader keeps its permit in the queue", 5, kept);
        let both = going_on(GoesOn::AsWriter, Setup::new(2, 0, 2));
        stuck("S10", "two readers go on as writers", 12, both);
    }

    #[test]
    fn shares_within_shares() {
        let what = "a share within a share takes a permit past the door";
        let passes = within(Within::PassesTheDoor, Setup::new(2, 1, 2));
        refutes("N5", what, Apart, 16, &passes);
        let queues = within(Within::Queues, Setup::new(2, 1, 2)).dying();
        let what = "a share within a share queues at the door";
        let found = search_serving(&queues, MOST);
        judged(&title("N6", what, &queues), found).breaks_in("X3", 8);
    }

    /// As a writer's did whose limit counted while it waited for readers.
    #[test]
    fn a_limit_that_counts_at_the_door_keeps_a_waiter_away_for_ever() {
        for (coming, steps) in [
            (Coming::ToQueue, [8, 8, 10, 10]),
            (Coming::ToCheckFirst, [8, 8, 10, 10]),
        ] {
            for (newcomers, steps) in waiters(coming).into_iter().zip(steps) {
                let is_limited = true;
                let newcomers = Newcomers {
                    is_limited,
                    ..newcomers
                };
                let found = search(&newcomers, MOST);
                judged(&newcomers.row("T7"), found).breaks_in("T", steps);
            }
        }
    }

    #[test]
    fn newcomers_who_try_again_keep_a_waiter_away_for_ever() {
        // Of a writer and a reader with one permit, and with two. With one permit the search remembers, a newcomer
        // claims, checks and releases, and the waiter tries between.
        for (name, coming, steps) in [
            ("T2", Coming::ToTry, [5, 5, 6, 7]),
            ("T4", Coming::EverNew, [6, 6, 7, 8]),
            ("T6", Coming::PastReaders, [5, 5, 6, 7]),
        ] {
            for (newcomers, steps) in waiters(coming).into_iter().zip(steps) {
                let found = search(&newcomers, MOST);
                judged(&newcomers.row(name), found).breaks_in("T", steps);
            }
        }
    }
}
