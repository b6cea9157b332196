//! The bounds of the normal run: each rule that is replaced or left out is refuted, and the rules as they are hold.

use super::Promise::{
    EvictedIsNotRenewed, GivenUpStaysGivenUp, KeptIsNotGranted, OneHolder, OvertakenIsNotRenewed,
    ReachesARepair, Repaired, TokensRise,
};
use super::{Loss, Promise, Replacing, Setup, Without, Wrong};
use crate::search::{Space, search};
use crate::verdict::judged;

/// More states than any search of the normal run has.
const MOST: usize = 3_000_000;

/// All states are seen, and none breaks a promise.
pub(super) fn holds(what: &str, space: &impl Space) {
    judged(what, search(space, MOST)).holds();
}

/// None of so many states breaks a promise.
pub(super) fn finds_nothing(what: &str, most: usize, space: &impl Space) {
    judged(what, search(space, most)).finds_nothing();
}

/// Some state breaks a promise, or is the one that is looked for.
pub(super) fn breaks(what: &str, space: &impl Space) {
    judged(what, search(space, 10 * MOST)).breaks();
}

/// With this rule replaced some state breaks the promise.
pub(super) fn is_refuted(wrong: Wrong, promise: Promise, setup: Setup) {
    let what = format!("{wrong:?}, {promise:?}");
    let found = search(&setup.with(wrong).asking(&[promise]), 10 * MOST);
    judged(&what, found).breaks_as_the_page_says();
}

/// The first holder has so many rounds, the second one, without a further name.
pub(super) fn rounds(first: u8) -> Setup {
    Setup {
        rounds: vec![first, 1],
        tokens: vec![vec![1], vec![1, 2]],
        others: 0,
        ..Setup::least()
    }
}

/// The same where renewals are sent after the deadline too.
pub(super) fn late(first: u8) -> Setup {
    Setup {
        renews_late: true,
        ..rounds(first)
    }
}

/// The same with one loss and one adoption.
pub(super) fn losing(first: u8) -> Setup {
    rounds(first).losing()
}

/// The first holder has its name kept taken, and a member is restarted with its data. The release reaches the members
/// in any order, so this is the second of a rolling restart, too.
pub(super) fn kept() -> Setup {
    Setup {
        releases: true,
        keeps_names: true,
        tokens: vec![vec![1], vec![5]],
        ..coming_back(Loss::Restarted, losing(1))
    }
}

/// The first holder may claim twice, and takes back and releases. Each release moves the mark, by one at least: only a
/// token of 5 is above it after both.
pub(super) fn again() -> Setup {
    Setup {
        claims: vec![2, 1],
        releases: true,
        tokens: vec![vec![1, 2], vec![2, 5]],
        ..rounds(2)
    }
}

/// The same, and renews what it was granted then: the lease of the first claim may still be at a member.
pub(super) fn again_and_renewed() -> Setup {
    Setup {
        rounds: vec![3, 1],
        ..again()
    }
}

pub(super) fn evicting(setup: Setup) -> Setup {
    Setup {
        evictions: true,
        ..setup
    }
}

pub(super) fn coming_back(loss: Loss, setup: Setup) -> Setup {
    let kinds = vec![loss];
    Setup { kinds, ..setup }
}

/// One of three members is replaced.
pub(super) fn one_of_three() -> Replacing {
    Replacing {
        lists: vec![vec![0, 1, 2], vec![0, 1, 3]],
        claims: vec![0, 1],
        runs: vec![1],
        closed: vec![],
        begun: vec![],
        tokens: vec![vec![1], vec![1, 3]],
        losses: 0,
        copies: false,
        adoptions: 0,
        without: None,
    }
}

/// All members are replaced.
pub(super) fn all_of_three() -> Replacing {
    Replacing {
        lists: vec![vec![0, 1, 2], vec![3, 4, 5]],
        ..one_of_three()
    }
}

/// The command is run twice, at one time or one after the other, and a member is lost; both claims are of new clients.
/// The old quorum has one member, for the sake of room.
pub(super) fn run_again() -> Replacing {
    Replacing {
        runs: vec![1, 1],
        claims: vec![1, 1],
        tokens: vec![vec![2], vec![2]],
        losses: 1,
        lists: vec![vec![0], vec![1, 2, 3]],
        ..one_of_three()
    }
}

/// Two operators have different plans.
pub(super) fn two_plans() -> Replacing {
    Replacing {
        lists: vec![vec![0, 1, 2], vec![0, 3], vec![1, 4]],
        runs: vec![1, 2],
        claims: vec![1, 2],
        tokens: vec![vec![2], vec![2]],
        ..one_of_three()
    }
}

mod sound {
    use super::*;

    #[test]
    fn a_claim_with_a_renewal_and_a_rival_keep_every_promise() {
        holds(
            "2 + 1 rounds, renewals at any time, a further name",
            &Setup {
                others: 1,
                ..late(2)
            },
        );
        let setup = Setup {
            others: 1,
            ..late(3)
        };
        holds("3 + 1 rounds, the same", &setup);
    }

    #[test]
    fn three_claims_keep_every_promise() {
        let setup = Setup {
            names: vec![0; 3],
            rounds: vec![1; 3],
            claims: vec![1; 3],
            tokens: vec![vec![1, 2, 3]; 3],
            ..Setup::least()
        };
        holds("3 claims, 3 tokens, a further name", &setup);
    }

    #[test]
    fn releases_and_taking_back_keep_every_promise() {
        let setup = Setup {
            others: 1,
            releases: true,
            tokens: vec![vec![1], vec![1, 2, 3]],
            ..rounds(1)
        };
        holds("1 + 1 rounds, releases, a further name", &setup);
    }

    #[test]
    fn tokens_rise_without_clocks() {
        let setup = Setup {
            keeps_time: false,
            others: 1,
            ..late(2)
        };
        holds("2 + 1 rounds, clocks broken, a further name", &setup);
    }

    #[test]
    fn two_names_of_a_slot_keep_every_promise() {
        let setup = Setup {
            names: vec![0, 1],
            tokens: vec![vec![1], vec![1, 2]],
            rounds: vec![2, 2],
            ..rounds(2)
        };
        holds("two names of one slot, 2 + 2 rounds", &setup);
    }

    #[test]
    fn a_kept_name_stays_kept_across_a_rolling_restart() {
        let setup = kept().asking(&[KeptIsNotGranted, OneHolder, TokensRise]);
        holds("a kept name, one restart", &setup);
    }

    #[test]
    fn evictions_keep_every_promise() {
        let setup = Setup {
            others: 1,
            rounds: vec![3, 0],
            ..rounds(3)
        };
        let what = "3 rounds of one holder, evictions, a further name";
        holds(what, &evicting(setup));
        holds("2 + 1 rounds, evictions", &evicting(rounds(2)));
    }

    #[test]
    fn a_loss_keeps_every_promise() {
        for loss in [
            Loss::Empty,
            Loss::Restarted,
            Loss::Displaced,
            Loss::LateCopy,
        ] {
            let setup = Setup {
                others: 1,
                ..coming_back(loss, losing(1))
            };
            let what = format!("1 + 1 rounds, one loss ({loss:?}), a further name");
            holds(&what, &setup);
        }
    }

    #[test]
    fn a_lease_is_put_back_at_a_member_that_was_adopted() {
        let setup = losing(2).asking(&[ReachesARepair]);
        breaks("a lease is put back at a member that was adopted", &setup);
    }

    #[test]
    fn members_are_replaced() {
        holds("one of three members replaced", &one_of_three());
        holds("all three members replaced", &all_of_three());
        holds(
            "replaced by two operators with different plans",
            &two_plans(),
        );
    }
}

/// A member that was closed and not written belongs to no quorum, unless it counts as one of the new that is away.
#[test]
fn a_replacement_that_stopped_is_finished_by_running_it_again() {
    for without in [Without::ClosedComesIn, Without::ClosesTheRest] {
        let without = Some(without);
        breaks(
            &format!("replaced, stopped anywhere, run again, {without:?} left out"),
            &Replacing {
                without,
                ..one_of_three()
            },
        );
    }
}

/// Claims of one name do not keep each other from it for long.
#[test]
fn claims_that_meet_end_soon() {
    for (contenders, most) in [(1, 2.0), (2, 8.0), (10, 12.5), (50, 60.0)] {
        let (half, slowest) = super::contention::slowest(contenders);
        println!(
            "{contenders} claims at once: {half:.1} round trips, {slowest:.1} of the slowest hundredth"
        );
        assert!(slowest <= most, "{contenders} claims: {slowest}");
    }
}

mod refuted {
    use super::*;

    #[test]
    fn adoption() {
        is_refuted(Wrong::AdoptionAsksEarly, TokensRise, losing(1));
        is_refuted(Wrong::AdoptionAsksFewer, TokensRise, losing(1));
        is_refuted(Wrong::NoFloor, TokensRise, losing(1));
        is_refuted(Wrong::ClaimBelowFloor, TokensRise, losing(1));
        is_refuted(Wrong::NoKeepOut, OneHolder, losing(1));
        is_refuted(
            Wrong::NoKeepOut,
            OneHolder,
            coming_back(Loss::Copy, losing(1)),
        );
        is_refuted(
            Wrong::LossUnseen,
            OneHolder,
            coming_back(Loss::Copy, losing(1)),
        );
        let twice = Setup {
            losses: 2,
            adoptions: 2,
            has_a_clock: true,
            ..losing(1)
        };
        is_refuted(Wrong::AdoptionOfAny, OneHolder, twice.clone());
        let tokens = vec![vec![3], vec![3]];
        is_refuted(Wrong::AdoptionSets, TokensRise, Setup { tokens, ..twice });
        let evicted = Setup {
            evictions_last: true,
            rounds: vec![2, 0],
            ..evicting(coming_back(Loss::Copy, losing(2)))
        };
        is_refuted(Wrong::AdoptionKeepsLeases, EvictedIsNotRenewed, evicted);
    }

    #[test]
    fn kept_names() {
        is_refuted(Wrong::AdoptionForgetsKept, KeptIsNotGranted, kept());
    }

    #[test]
    fn what_the_promises_rest_on() {
        let servers = vec![0, 0, 1];
        breaks(
            "two names of one server",
            &Setup {
                servers,
                ..losing(1)
            }
            .asking(&[TokensRise]),
        );
        let broken = Setup {
            keeps_time: false,
            keeps_out: false,
            ..losing(1)
        };
        breaks(
            "a keep-out that ends at any moment",
            &broken.asking(&[TokensRise]),
        );
        let majority = Setup {
            losses: 2,
            adoptions: 2,
            ..losing(1)
        };
        breaks(
            "a majority lost at once, no clock",
            &majority.asking(&[TokensRise]),
        );
        let evicted = Setup {
            evictions_last: true,
            rounds: vec![3, 0],
            ..evicting(losing(3))
        };
        breaks(
            "an eviction, and a loss of a member that did it",
            &evicted.asking(&[EvictedIsNotRenewed]),
        );
    }

    #[test]
    fn counting() {
        is_refuted(Wrong::CountedLate, TokensRise, losing(1));
        is_refuted(Wrong::AnyYesCounts, OneHolder, again());
        is_refuted(Wrong::HalfIsEnough, OneHolder, rounds(1));
        is_refuted(Wrong::BelievesLonger, OneHolder, rounds(1));
    }

    #[test]
    fn claims() {
        is_refuted(Wrong::EqualTokenTaken, TokensRise, rounds(1));
        is_refuted(Wrong::HolderIgnored, OneHolder, rounds(1));
        is_refuted(Wrong::MarkForgotten, TokensRise, rounds(1));
        is_refuted(Wrong::SameTokenAgain, OneHolder, again());
        is_refuted(Wrong::ReleaseByHolder, OneHolder, again());
        is_refuted(Wrong::ReleaseLeavesMark, GivenUpStaysGivenUp, again());
    }

    #[test]
    fn renewals_and_repairs() {
        is_refuted(Wrong::Shortens, OneHolder, rounds(2));
        is_refuted(Wrong::RepairAnyMark, GivenUpStaysGivenUp, rounds(2));
        is_refuted(Wrong::RepairAnyMark, OvertakenIsNotRenewed, late(3));
        is_refuted(Wrong::RepairEqualMark, GivenUpStaysGivenUp, rounds(2));
        is_refuted(
            Wrong::RepairBelowFloor,
            OvertakenIsNotRenewed,
            Setup {
                renews_late: true,
                ..losing(2)
            },
        );
        is_refuted(Wrong::VouchAnyMark, OvertakenIsNotRenewed, late(3));
        is_refuted(Wrong::VouchLate, OvertakenIsNotRenewed, late(3));
        is_refuted(Wrong::VouchAlone, OvertakenIsNotRenewed, late(3));
        is_refuted(
            Wrong::VouchBelowMark,
            Repaired,
            Setup {
                others: 1,
                ..rounds(2)
            },
        );
        let evicted = Setup {
            evictions_last: true,
            rounds: vec![2, 0],
            ..evicting(coming_back(Loss::Copy, losing(2)))
        };
        is_refuted(Wrong::OutCounts, EvictedIsNotRenewed, evicted);
        let outside = coming_back(Loss::LateCopy, losing(3));
        is_refuted(
            Wrong::OutCounts,
            OneHolder,
            Setup {
                tokens: vec![vec![2], vec![3]],
                ..outside
            },
        );
    }

    #[test]
    fn evictions() {
        is_refuted(
            Wrong::EvictionBySlot,
            EvictedIsNotRenewed,
            evicting(rounds(2)),
        );
        is_refuted(
            Wrong::EvictionLeavesNothing,
            EvictedIsNotRenewed,
            evicting(rounds(3)),
        );
        is_refuted(
            Wrong::EvictionNotLonger,
            EvictedIsNotRenewed,
            evicting(rounds(3)),
        );
    }

    #[test]
    fn replacing_members() {
        for without in [Without::Closing, Without::KeepOut, Without::Names] {
            let without = Some(without);
            breaks(
                &format!("replaced, {without:?} left out"),
                &Replacing {
                    without,
                    ..all_of_three()
                },
            );
        }
        let after = |closed: &[u8]| Replacing {
            lists: vec![vec![0, 1, 2], vec![3]],
            runs: vec![],
            closed: closed.to_vec(),
            begun: vec![3],
            losses: 2,
            adoptions: 2,
            tokens: vec![vec![5], vec![2]],
            ..one_of_three()
        };
        breaks("replaced, a majority closed and lost", &after(&[0, 1]));
        holds("replaced, all closed and two lost", &after(&[0, 1, 2]));
        let without = Some(Without::ClosedForAdoption);
        breaks(
            "replaced, all closed and two lost, ClosedForAdoption left out",
            &Replacing {
                without,
                ..after(&[0, 1, 2])
            },
        );
        let without = Some(Without::TheFirstSuccessor);
        breaks(
            &format!("replaced, {without:?} left out"),
            &Replacing {
                without,
                ..two_plans()
            },
        );
    }
}
