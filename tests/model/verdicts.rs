//! The bounds of the normal run: each planted bug is refuted, and the protocol as it is built is exhausted.
//!
//! A bug is looked for in bounds that are wide enough for it and no wider, so that all of them together take seconds. The
//! sound protocol is searched in wider ones, also of the kinds in which the bugs are found.

use leasehold::store::Eviction;
use leasehold::store::quorum::planted::QuorumBug;

use crate::Promise::{
    EvictedIsNotRenewed, OneClaimPerToken, OneHolder, OvertakenIsNotRenewed,
    OvertakenWritesAreRefused, RunsOut, SameTokenAgain, TokensRise, ToldInOrder,
};
use crate::{GivesUp, Promise, Report, Setup, check};

/// Searches and shows what was found.
fn judged(what: &str, setup: Setup) -> Report {
    let report = check(setup);
    println!("{what:<64} {report}");
    report
}

/// All states are seen, and none breaks a promise.
pub(crate) fn holds(what: &str, setup: Setup) {
    let report = judged(what, setup);
    assert!(report.broken.is_none(), "{what}: {report:#?}");
}

/// Some state breaks this promise.
pub(crate) fn is_refuted(bug: QuorumBug, promise: Promise, setup: Setup) {
    let planted = Setup {
        bug: Some(bug),
        only: Some(promise),
        ..setup
    };
    let report = judged(&format!("{bug:?}"), planted);
    assert!(report.broken.is_some(), "{bug:?} was not found: {report}");
}

/// Without any bug some state breaks this promise: the assumptions of the promise are not kept, and they are needed.
pub(crate) fn needs_its_assumptions(what: &str, promise: Promise, setup: Setup) {
    let setup = Setup {
        only: Some(promise),
        ..setup
    };
    let report = judged(what, setup);
    assert!(
        report.broken.is_some(),
        "{what}: nothing was found: {report}"
    );
}

/// Two claims, of which the first asks twice: it proposes 1, then 2, and the other 3.
pub(crate) fn again(setup: Setup) -> Setup {
    Setup {
        asks: vec![2, 1],
        guesses: vec![1..=1, 3..=3],
        ..setup
    }
}

/// Two claims that propose these tokens.
pub(crate) fn proposing(first: u64, second: u64, setup: Setup) -> Setup {
    Setup {
        guesses: vec![first..=first, second..=second],
        ..setup
    }
}

/// The first claim asks again for what it was granted until it is lost, and then for a new token.
pub(crate) fn losing(setup: Setup) -> Setup {
    Setup {
        asks: vec![3, 1],
        gives_up: GivesUp::Never,
        hurries: false,
        ..proposing(1, 2, setup)
    }
}

/// One member comes back without its data, and the second claim asks twice.
pub(crate) fn with_a_loss(setup: Setup) -> Setup {
    Setup {
        restarts: 1,
        asks: vec![1, 2],
        gives_up: GivesUp::Never,
        ..setup
    }
}

#[test]
fn one_round_of_two_claims_keeps_every_promise() {
    let setup = Setup {
        ticks: 2,
        ..Setup::new()
    };
    holds("two claims of one round, clocks kept", setup);
}

#[test]
fn one_round_of_two_claims_keeps_tokens_rising_without_clocks() {
    let setup = Setup {
        releases: true,
        ..Setup::without_clocks()
    };
    holds("two claims of one round, releases, clocks broken", setup);
}

#[test]
fn a_renewal_and_a_repair_keep_tokens_rising_without_clocks() {
    let setup = Setup {
        renewals: vec![1, 0],
        ..proposing(1, 2, Setup::without_clocks())
    };
    holds("a renewal, a repair, clocks broken", setup);
}

#[test]
fn an_empty_restart_breaks_nothing() {
    let setup = with_a_loss(proposing(2, 1, Setup::without_clocks()));
    holds("a member without its data, clocks broken", setup);
}

#[test]
fn a_holder_that_asks_again_after_its_grant_was_lost_keeps_tokens_rising() {
    let setup = Setup {
        restarts: 1,
        gives_up: GivesUp::AfterALoss,
        ..losing(Setup::without_clocks())
    };
    holds(
        "a grant that is lost and asked for again, clocks broken",
        setup,
    );
}

#[test]
fn a_holder_that_asks_again_keeps_its_token_as_long_as_a_majority_has_it() {
    let setup = Setup {
        ticks: 2,
        ..losing(Setup::new())
    };
    holds("a grant that is asked for again, clocks kept", setup);
}

#[test]
fn taking_back_what_was_granted_before_a_loss_is_refuted() {
    let setup = Setup {
        restarts: 1,
        gives_up: GivesUp::AfterALoss,
        guesses: vec![1..=1, 1..=1],
        ..losing(Setup::without_clocks())
    };
    is_refuted(QuorumBug::LostGrantTakenBack, OneClaimPerToken, setup);
}

#[test]
fn a_grant_that_counts_as_lost_without_a_majority_is_refuted() {
    let setup = losing(Setup::without_clocks());
    is_refuted(QuorumBug::LostWithoutAMajority, SameTokenAgain, setup);
}

#[test]
fn a_fenced_storage_refuses_the_writes_of_the_overtaken() {
    let setup = Setup {
        writes: 2,
        releases: true,
        gives_up: GivesUp::Never,
        ..Setup::without_clocks()
    };
    holds("two writes of each of two claims, clocks broken", setup);
}

#[test]
fn an_eviction_that_leaves_the_name_taken_breaks_nothing() {
    let setup = Setup {
        evicts: Some(Eviction::Marked),
        renewals: vec![1, 0],
        ticks: 1,
        gives_up: GivesUp::Never,
        hurries: false,
        ..proposing(1, 2, Setup::new())
    };
    holds("an eviction that is marked, clocks kept", setup);
}

#[test]
fn an_eviction_at_once_keeps_tokens_rising() {
    let setup = Setup {
        evicts: Some(Eviction::Now),
        renewals: vec![1, 0],
        gives_up: GivesUp::Never,
        hurries: false,
        ..proposing(1, 2, Setup::without_clocks())
    };
    holds("an eviction at once, clocks broken", setup);
}

#[test]
fn claims_that_are_told_in_the_order_of_no_token_are_refuted() {
    let setup = proposing(1, 2, Setup::new());
    is_refuted(QuorumBug::NoOwnerCheck, ToldInOrder, setup);
}

#[test]
fn a_renewal_that_adds_up_is_refuted() {
    let setup = Setup {
        renewals: vec![1, 0],
        ticks: 1,
        ..proposing(1, 2, Setup::new())
    };
    is_refuted(QuorumBug::RenewalAddsTheTtl, RunsOut, setup);
}

#[test]
fn a_fence_cannot_help_where_tokens_do_not_rise() {
    let setup = Setup {
        writes: 1,
        ..with_a_loss(proposing(2, 1, Setup::without_clocks()))
    };
    let what = OvertakenWritesAreRefused;
    is_refuted(QuorumBug::LossWithoutFloor, what, setup);
}

#[test]
fn an_eviction_that_keeps_the_holder_is_refuted() {
    let setup = Setup {
        evicts: Some(Eviction::Now),
        asks: vec![2, 0],
        renewals: vec![1, 0],
        gives_up: GivesUp::Never,
        ..proposing(1, 2, Setup::without_clocks())
    };
    let what = EvictedIsNotRenewed;
    is_refuted(QuorumBug::EvictionKeepsTheHolder, what, setup);
}

#[test]
fn two_may_believe_if_a_clock_gains_more_than_the_margin() {
    let setup = Setup {
        ticks: 2,
        ttl: 3,
        margin: 1,
        gains: 2,
        ..proposing(1, 2, Setup::new())
    };
    needs_its_assumptions("a clock that gains more than the margin", OneHolder, setup);
}

#[test]
fn two_may_believe_if_a_clock_gains_more_than_the_margin_during_a_keep_out() {
    let setup = Setup {
        ticks: 1,
        gains: 2,
        ..with_a_loss(proposing(1, 1, Setup::new()))
    };
    let what = "a clock that gains more than the margin, keeping out";
    needs_its_assumptions(what, OneHolder, setup);
}

#[test]
fn an_overtaken_holder_may_be_renewed_after_an_empty_restart_with_broken_clocks() {
    let setup = Setup {
        restarts: 1,
        renewals: vec![2, 0],
        gives_up: GivesUp::Never,
        hurries: false,
        ..proposing(1, 2, Setup::without_clocks())
    };
    let what = "an empty restart and broken clocks";
    needs_its_assumptions(what, OvertakenIsNotRenewed, setup);
}

#[test]
fn members_that_count_on_their_own_are_refuted() {
    let setup = again(Setup::without_clocks());
    is_refuted(QuorumBug::MembersCount, OneClaimPerToken, setup);
}

#[test]
fn members_that_count_by_their_clocks_are_refuted() {
    let setup = Setup {
        gains: 1,
        ..again(Setup::without_clocks())
    };
    is_refuted(QuorumBug::MembersCountByClock, OneClaimPerToken, setup);
}

#[test]
fn an_equal_token_that_is_taken_is_refuted() {
    let setup = proposing(1, 1, Setup::without_clocks());
    is_refuted(QuorumBug::EqualTokenTaken, OneClaimPerToken, setup);
}

#[test]
fn a_last_token_without_its_holder_is_refuted() {
    let setup = proposing(1, 1, Setup::without_clocks());
    is_refuted(QuorumBug::HolderOfTheLastIgnored, OneClaimPerToken, setup);
}

#[test]
fn a_member_that_does_not_look_at_the_holder_is_refuted() {
    let setup = proposing(1, 2, Setup::new());
    is_refuted(QuorumBug::NoOwnerCheck, OneHolder, setup);
}

#[test]
fn a_yes_to_an_earlier_proposal_that_counts_is_refuted() {
    let setup = Setup {
        has_late_replies: true,
        gives_up: GivesUp::Never,
        guesses: vec![1..=1, 2..=2],
        ..again(Setup::without_clocks())
    };
    is_refuted(QuorumBug::AnyYesCounts, OneClaimPerToken, setup);
}

#[test]
fn half_of_the_members_as_a_majority_is_refuted() {
    let setup = Setup {
        members: 2,
        ..Setup::new()
    };
    is_refuted(QuorumBug::HalfIsAMajority, OneClaimPerToken, setup.clone());
    is_refuted(QuorumBug::HalfIsAMajority, OneHolder, setup);
}

#[test]
fn taking_back_by_holder_is_refuted() {
    let setup = again(Setup::new());
    is_refuted(QuorumBug::TakenBackByHolder, OneHolder, setup);
}

#[test]
fn the_same_token_after_taking_back_is_refuted() {
    let setup = again(Setup::new());
    is_refuted(QuorumBug::SameTokenAfterTakingBack, OneHolder, setup);
}

#[test]
fn taking_back_a_grant_is_refuted() {
    let setup = Setup {
        guesses: vec![1..=1, 1..=1],
        ..again(Setup::without_clocks())
    };
    is_refuted(QuorumBug::GrantTakenBack, OneClaimPerToken, setup);
}

#[test]
fn a_renewal_that_creates_is_refuted() {
    let setup = Setup {
        renewals: vec![1, 0],
        ..proposing(1, 2, Setup::without_clocks())
    };
    is_refuted(QuorumBug::RenewalCreates, OvertakenIsNotRenewed, setup);
}

#[test]
fn an_unchecked_repair_is_refuted() {
    let setup = Setup {
        renewals: vec![2, 0],
        ..proposing(1, 2, Setup::without_clocks())
    };
    is_refuted(QuorumBug::RepairUnchecked, OvertakenIsNotRenewed, setup);
}

#[test]
fn a_fresh_token_for_a_holder_that_asks_again_is_refuted() {
    let setup = again(Setup::new());
    is_refuted(QuorumBug::FreshWhenAskedAgain, SameTokenAgain, setup);
}

#[test]
fn a_loss_that_is_ignored_is_refuted() {
    let setup = with_a_loss(proposing(2, 1, Setup::without_clocks()));
    is_refuted(QuorumBug::LossIgnored, TokensRise, setup);
    let setup = with_a_loss(proposing(1, 1, Setup::new()));
    is_refuted(QuorumBug::LossIgnored, OneHolder, setup);
}

#[test]
fn a_loss_without_a_floor_is_refuted() {
    let setup = with_a_loss(proposing(2, 1, Setup::without_clocks()));
    is_refuted(QuorumBug::LossWithoutFloor, TokensRise, setup);
}

#[test]
fn a_loss_with_too_low_a_floor_is_refuted() {
    let setup = with_a_loss(proposing(2, 1, Setup::without_clocks()));
    is_refuted(QuorumBug::FloorTooLow, TokensRise, setup);
}

#[test]
fn a_loss_without_a_keep_out_is_refuted() {
    let setup = Setup {
        ticks: 1,
        ..with_a_loss(proposing(1, 1, Setup::new()))
    };
    is_refuted(QuorumBug::LossWithoutKeepOut, OneHolder, setup);
}

#[test]
fn a_keep_out_that_is_too_short_is_refuted() {
    let setup = Setup {
        ttl: 3,
        ticks: 2,
        ..with_a_loss(proposing(1, 1, Setup::new()))
    };
    is_refuted(QuorumBug::KeepOutTooShort, OneHolder, setup);
}

#[test]
fn a_counter_that_is_forgotten_early_is_refuted() {
    let setup = Setup {
        ticks: 2,
        ..proposing(2, 1, Setup::new())
    };
    is_refuted(QuorumBug::CounterForgottenEarly, TokensRise, setup);
}

#[test]
fn an_old_copy_that_is_trusted_is_refuted() {
    let setup = Setup {
        copies: 1,
        ..proposing(2, 1, Setup::without_clocks())
    };
    is_refuted(QuorumBug::OldCopyTrusted, TokensRise, setup);
}

#[test]
fn a_deadline_from_the_reply_is_refuted() {
    let setup = Setup {
        ticks: 2,
        has_late_replies: true,
        ..proposing(1, 2, Setup::new())
    };
    is_refuted(QuorumBug::DeadlineFromTheReply, OneHolder, setup);
}

#[test]
fn a_lease_without_a_margin_is_refuted() {
    let setup = Setup {
        ticks: 2,
        ttl: 3,
        margin: 1,
        gains: 1,
        ..proposing(1, 2, Setup::new())
    };
    is_refuted(QuorumBug::NoMargin, OneHolder, setup);
}
