//! Those who wait are served in the order in which they came.

use rusqlite::Connection;
use rustix::process::Signal;

use super::{HOLDER, Place, Process, wait_until};

/// Enough that chance does not put them in order: one time in 120.
pub(super) const WAITERS: u32 = 5;

/// A job that says when it was its turn.
pub(super) fn turn(place: u32) -> String {
    format!("echo {place} >> turns")
}

impl Place {
    /// Starts a run that waits in turn, once it stands in line as the last of so many.
    fn in_line(&self, clients: u32) -> Process {
        let run = self.run(&[], &turn(clients));
        self.has_line(clients);
        run
    }

    pub(super) fn has_line(&self, clients: u32) {
        let file = Connection::open(self.store()).expect("opened");
        let count = || file.query_row("SELECT count(holder) FROM line", (), |row| row.get(0));
        wait_until("the line", || {
            count().is_ok_and(|count: u32| count == clients)
        });
    }

    /// All have ended well, in this order.
    pub(super) fn served(&self, runs: impl IntoIterator<Item = Process>, order: &[u64]) {
        for mut run in runs {
            let ended = run.end();
            assert_eq!(ended.code, Some(0), "{ended:?}");
        }
        assert_eq!(self.numbers("turns"), order);
    }
}

#[test]
fn runs_on_one_file_are_served_in_the_order_in_which_they_came() {
    let place = Place::new();
    let holder = place.run(&[], HOLDER);
    place.mark("first");
    let waiting: Vec<_> = (1..=WAITERS)
        .map(|clients| place.in_line(clients))
        .collect();
    place.let_go();
    place.served(waiting.into_iter().chain([holder]), &[1, 2, 3, 4, 5]);
}

#[test]
fn a_run_that_was_ended_while_it_waited_leaves_the_line() {
    let place = Place::new();
    let holder = place.run(&[], HOLDER);
    place.mark("first");
    let first = place.in_line(1);
    let mut second = place.in_line(2);
    let third = place.in_line(3);
    second.signal(Signal::TERM);
    assert_eq!(second.end().signal, Some(Signal::TERM.as_raw()));
    place.has_line(2);
    place.let_go();
    place.served([first, third, holder], &[1, 3]);
}

#[test]
fn a_run_that_waits_in_turn_is_not_overtaken_by_a_later_one() {
    let place = Place::new();
    let holder = place.run(&[], HOLDER);
    place.mark("first");
    let first = place.in_line(1);
    let second = place.in_line(2);
    let later = place.run(&[], &turn(3));
    later.wait_to_say("waiting for");
    place.let_go();
    place.served([first, second, later, holder], &[1, 2, 3]);
}

#[test]
fn the_option_fair_has_no_effect() {
    let place = Place::new();
    std::fs::write(place.path("fair.toml"), "fair = true\n").expect("written");
    let holder = place.run(&[], HOLDER);
    place.mark("first");
    let configured = ["--config", "fair.toml"];
    let undone = place.run(&[&configured[..], &["--fair=false"]].concat(), &turn(1));
    place.has_line(1);
    let fair = place.run(&configured, &turn(2));
    place.has_line(2);
    // What does not wait is no contradiction of the file's.
    let tried = [&configured[..], &["-n"]].concat();
    assert_eq!(place.run(&tried, "true").end().code, Some(75));
    place.let_go();
    place.served([undone, fair, holder], &[1, 2]);
}
