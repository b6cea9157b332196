//! The larger bounds, which take minutes each. Where not all states are seen, the search ends at so many.

use super::Promise::{GivenUpStaysGivenUp, OvertakenIsNotRenewed, TokensRise};
use super::verdicts::{
    again, again_and_renewed, breaks, coming_back, evicting, finds_nothing, late, losing,
    one_of_three, rounds, run_again,
};
use super::{Loss, Replacing, Setup, Without};

/// Up to so many states: some three gigabytes.
const MANY: usize = 8_000_000;

#[test]
fn rounds_and_names() {
    let setup = Setup {
        others: 2,
        tokens: vec![vec![1, 2], vec![1, 2, 3]],
        ..late(3)
    };
    finds_nothing("3 + 1 rounds, two moves of a further name", MANY, &setup);
    let setup = Setup {
        names: vec![0, 1],
        rounds: vec![2, 2],
        tokens: vec![vec![1, 2, 3]; 2],
        releases: true,
        ..rounds(2)
    };
    finds_nothing(
        "two names of one slot, 2 + 2 rounds, releases",
        MANY,
        &setup,
    );
    finds_nothing(
        "a claim taken back and proposed again, 2 + 1 rounds",
        MANY,
        &again(),
    );
    finds_nothing(
        "the same, a further name",
        MANY,
        &Setup {
            others: 1,
            ..again()
        },
    );
    finds_nothing(
        "a claim taken back, proposed again and renewed, 3 + 1 rounds, a further name",
        MANY,
        &Setup {
            others: 1,
            ..again_and_renewed()
        },
    );
}

#[test]
fn clocks_broken() {
    let setup = Setup {
        keeps_time: false,
        others: 1,
        releases: true,
        tokens: vec![vec![1, 2], vec![1, 2, 3]],
        ..late(3)
    };
    let asked = [TokensRise, GivenUpStaysGivenUp, OvertakenIsNotRenewed];
    finds_nothing(
        "3 + 1 rounds, clocks broken, releases",
        MANY,
        &setup.asking(&asked),
    );
}

#[test]
fn evictions() {
    let setup = Setup {
        others: 1,
        ..rounds(3)
    };
    let what = "3 + 1 rounds, evictions, a further name";
    finds_nothing(what, MANY, &evicting(setup));
    let setup = Setup {
        others: 1,
        ..evicting(losing(2))
    };
    finds_nothing("2 + 1 rounds, evictions, one loss", MANY, &setup);
}

#[test]
fn one_loss() {
    for loss in [
        Loss::Empty,
        Loss::Restarted,
        Loss::Displaced,
        Loss::LateCopy,
    ] {
        let setup = Setup {
            others: 1,
            adoptions: 2,
            ..coming_back(loss, losing(2))
        };
        finds_nothing(
            &format!("2 + 1 rounds, one loss ({loss:?}), a further name"),
            MANY,
            &setup,
        );
    }
    let setup = Setup {
        names: vec![0, 1],
        rounds: vec![3, 1],
        ..losing(3)
    };
    finds_nothing(
        "two names of one slot, 3 + 1 rounds, one loss, vouched",
        MANY,
        &setup,
    );
    let setup = Setup {
        names: vec![0; 3],
        rounds: vec![1; 3],
        claims: vec![1; 3],
        tokens: vec![vec![2], vec![2, 5], vec![5, 6]],
        others: 1,
        ..losing(1)
    };
    finds_nothing("3 claims, one loss, a further name", MANY, &setup);
}

#[test]
fn two_losses() {
    let setup = Setup {
        losses: 2,
        adoptions: 2,
        has_a_clock: true,
        tokens: vec![vec![3], vec![3, 6]],
        others: 1,
        ..losing(1)
    };
    let what = "1 + 1 rounds, two losses, the clock, a further name";
    finds_nothing(what, MANY, &setup);
    let setup = Setup {
        rounds: vec![2, 1],
        ..setup
    };
    let what = "2 + 1 rounds, two losses, the clock, a further name";
    finds_nothing(what, MANY, &setup);
}

#[test]
fn five_members() {
    let five = Setup {
        servers: vec![0, 1, 2, 3, 4],
        others: 1,
        ..losing(1)
    };
    let what = "5 members, 1 + 1 rounds, one loss, a further name";
    finds_nothing(what, MANY, &five);
    let two = Setup {
        losses: 2,
        adoptions: 2,
        tokens: vec![vec![3], vec![3]],
        ..five
    };
    let what = "5 members, 1 + 1 rounds, two losses, a further name";
    finds_nothing(what, MANY, &two);
}

#[test]
fn a_late_copy() {
    let setup = Setup {
        others: 1,
        ..coming_back(Loss::LateCopy, losing(3))
    };
    finds_nothing("3 + 1 rounds, a late copy, a further name", MANY, &setup);
}

#[test]
fn members_that_were_closed_are_adopted() {
    let adopted = Replacing {
        adoptions: 1,
        ..one_of_three()
    };
    finds_nothing("replaced, a closed member adopted", MANY, &adopted);
    let copied = Replacing {
        claims: vec![1, 1],
        tokens: vec![vec![3], vec![2]],
        losses: 1,
        copies: true,
        ..adopted
    };
    finds_nothing(
        "the same, and one comes back with the copy of its closing",
        MANY,
        &copied,
    );
    let without = Some(Without::ClosedKeptItsData);
    breaks(
        "the same, and knows the highest token",
        &Replacing { without, ..copied },
    );
}

#[test]
fn members_are_replaced_again_and_while_one_is_lost() {
    finds_nothing("replaced, run again, one loss", MANY, &run_again());
    for without in [
        Without::Reservations,
        Without::TheCheck,
        Without::KeepOutOfReserved,
    ] {
        let without = Some(without);
        breaks(
            &format!("replaced, run again, {without:?} left out"),
            &Replacing {
                without,
                ..run_again()
            },
        );
    }
    let begun = Replacing {
        runs: vec![1],
        begun: vec![1, 2],
        ..run_again()
    };
    finds_nothing(
        "replaced, run again after two writes, one loss",
        MANY,
        &begun,
    );
    let without = Some(Without::Looks);
    breaks("the same, not read", &Replacing { without, ..begun });
    let setup = Replacing {
        losses: 1,
        adoptions: 1,
        ..one_of_three()
    };
    finds_nothing("replaced, one loss, adopted", MANY, &setup);
    let setup = Replacing {
        lists: vec![vec![0, 1, 2], vec![0, 1, 2, 3, 4]],
        ..one_of_three()
    };
    finds_nothing("three members become five", MANY, &setup);
}
