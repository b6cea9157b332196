//! Waiting runs are served in the order of their arrival.

use rusqlite::Connection;
use rustix::process::Signal;

use super::{HOLDER, Process, Sandbox, wait_until};

/// Enough that chance does not put them in order: one time in 120.
pub(super) const WAITERS: u32 = 5;

/// A job that says when it was its turn.
pub(super) fn turn(number: u32) -> String {
    format!("echo {number} >> turns")
}

impl Sandbox {
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
    let sandbox = Sandbox::new();
    let holder = sandbox.run(&[], HOLDER);
    sandbox.mark("first");
    let waiting: Vec<_> = (1..=WAITERS)
        .map(|clients| sandbox.in_line(clients))
        .collect();
    sandbox.let_go();
    sandbox.served(waiting.into_iter().chain([holder]), &[1, 2, 3, 4, 5]);
}

#[test]
fn a_run_that_was_ended_while_it_waited_leaves_the_line() {
    let sandbox = Sandbox::new();
    let holder = sandbox.run(&[], HOLDER);
    sandbox.mark("first");
    let first = sandbox.in_line(1);
    let mut second = sandbox.in_line(2);
    let third = sandbox.in_line(3);
    second.signal(Signal::TERM);
    assert_eq!(second.end().signal, Some(Signal::TERM.as_raw()));
    sandbox.has_line(2);
    sandbox.let_go();
    sandbox.served([first, third, holder], &[1, 3]);
}

#[test]
fn a_run_that_waits_in_turn_is_not_overtaken_by_a_later_one() {
    let sandbox = Sandbox::new();
    let holder = sandbox.run(&[], HOLDER);
    sandbox.mark("first");
    let first = sandbox.in_line(1);
    let second = sandbox.in_line(2);
    let later = sandbox.run(&[], &turn(3));
    later.wait_to_say("waiting for");
    sandbox.let_go();
    sandbox.served([first, second, later, holder], &[1, 2, 3]);
}

#[test]
fn the_option_fair_has_no_effect() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("fair.toml"), "fair = true\n").expect("written");
    let holder = sandbox.run(&[], HOLDER);
    sandbox.mark("first");
    let configured = ["--config", "fair.toml"];
    let undone = sandbox.run(&[&configured[..], &["--fair=false"]].concat(), &turn(1));
    sandbox.has_line(1);
    let fair = sandbox.run(&configured, &turn(2));
    sandbox.has_line(2);
    // What does not wait is no contradiction of the file's.
    let tried = [&configured[..], &["-n"]].concat();
    assert_eq!(sandbox.run(&tried, "true").end().code, Some(75));
    sandbox.let_go();
    sandbox.served([undone, fair, holder], &[1, 2]);
}
