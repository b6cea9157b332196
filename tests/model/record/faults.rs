//! The larger bounds, which take up to a minute and a half each.

use super::verdicts::{DATED, DATED_EVICTS, EVICTS, clears_for, holds_for, serves_for};
use super::{Kind, Removal, Setup};

/// More states than any of these searches has: some two gigabytes.
const MOST: usize = 40_000_000;

fn holds(setup: &Setup) {
    holds_for(setup, MOST);
}

#[test]
fn three_clients() {
    holds(&Setup::new(3).once());
}

#[test]
fn the_stores_clock() {
    holds(&Setup::new(2).of(DATED));
    let stamps_early = true;
    holds(&Setup {
        stamps_early,
        ..Setup::new(2).of(DATED)
    });
    holds(&Setup::new(2).of(Kind::Dated { apart: 2 }).once());
}

#[test]
fn evictions() {
    holds(&Setup::new(2).evicting(EVICTS));
    holds(&Setup::new(2).of(DATED).once().evicting(DATED_EVICTS));
    holds(&Setup::new(2).of(Kind::Ending).evicting(EVICTS));
    let faults = 2;
    holds(&Setup {
        faults,
        ..Setup::new(2).calm().evicting(EVICTS)
    });
    holds(&Setup {
        faults,
        ..Setup::new(2).of(DATED).calm().evicting(DATED_EVICTS)
    });
}

#[test]
fn keeps() {
    for keeps_by_stamp in [false, true] {
        holds(&Setup {
            keeps_by_stamp,
            ..Setup::new(2).of(DATED).once().keeping(2)
        });
    }
    holds(&Setup::new(2).keeping(3));
}

#[test]
fn new_processes() {
    serves_for(&Setup::new(2).of(DATED).fresh(), MOST);
    serves_for(&Setup::new(2).of(Kind::Ending).fresh().keeping(2), MOST);
}

#[test]
fn removers_and_claimers_of_two_names() {
    clears_for(&Removal::new(1, 2).of_two(), MOST);
    clears_for(&Removal::new(2, 1).of_two().emptying(), MOST);
    let last = 3;
    clears_for(
        &Removal {
            last,
            ..Removal::new(2, 2).of_two()
        },
        MOST,
    );
}
