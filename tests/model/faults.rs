//! The larger bounds, which take minutes. Among them are those with three tokens: with two, the bug of a renewal that does not
//! compare its token is invisible.

use leasehold::store::Eviction;
use leasehold::store::quorum::planted::QuorumBug;

use crate::Promise::OneHolder;
use crate::verdicts::{again, holds, is_refuted, losing, proposing, with_a_loss};
use crate::{GivesUp, Setup};

/// Two claims, of which the first asks twice and renews once, with three tokens.
fn with_three_tokens() -> Setup {
    Setup {
        renewals: vec![1, 0],
        ticks: 2,
        gives_up: GivesUp::ToAskAgain,
        hurries: false,
        ..again(Setup::new())
    }
}

#[test]
fn a_renewal_that_ignores_the_token_is_refuted() {
    let setup = with_three_tokens();
    is_refuted(QuorumBug::RenewalIgnoresTheToken, OneHolder, setup);
}

#[test]
fn two_rounds_and_a_renewal_with_three_tokens_keep_every_promise() {
    let setup = with_three_tokens();
    holds("two rounds, a renewal, three tokens, clocks kept", setup);
}

#[test]
fn two_rounds_of_one_claim_keep_tokens_rising_without_clocks() {
    let setup = Setup {
        gives_up: GivesUp::ToAskAgain,
        ..again(Setup::without_clocks())
    };
    holds("two rounds of one claim, clocks broken", setup);
}

#[test]
fn two_rounds_of_one_claim_keep_tokens_rising_with_late_and_lost_replies() {
    let setup = Setup {
        has_late_replies: true,
        guesses: vec![1..=1, 2..=2],
        gives_up: GivesUp::ToAskAgain,
        hurries: false,
        ..again(Setup::without_clocks())
    };
    holds("the same, every reply late or lost", setup);
}

#[test]
fn one_round_with_lost_replies_releases_and_a_renewal_keeps_every_promise() {
    let setup = Setup {
        releases: true,
        loses_replies: true,
        renewals: vec![1, 0],
        ticks: 2,
        ..proposing(1, 2, Setup::new())
    };
    holds(
        "one round, releases, a renewal, lost replies, clocks kept",
        setup,
    );
}

#[test]
fn three_claims_keep_tokens_rising_without_clocks() {
    let setup = Setup {
        asks: vec![1, 1, 1],
        renewals: vec![0, 0, 0],
        guesses: vec![1..=1, 1..=1, 2..=2],
        releases: true,
        gives_up: GivesUp::Never,
        ..Setup::without_clocks()
    };
    holds("three claims of one round, clocks broken", setup);
}

#[test]
fn two_rounds_after_a_lost_grant_keep_tokens_rising_without_clocks() {
    let setup = Setup {
        asks: vec![4, 1],
        restarts: 1,
        gives_up: GivesUp::AfterALoss,
        ..losing(Setup::without_clocks())
    };
    holds("two rounds after a lost grant, clocks broken", setup);
}

#[test]
fn a_request_that_comes_twice_after_a_lost_grant_keeps_tokens_rising() {
    let setup = Setup {
        doubled: 1,
        renewals: vec![1, 0],
        gives_up: GivesUp::AfterALoss,
        ..losing(Setup::without_clocks())
    };
    holds(
        "a lost grant, a renewal, a request twice, clocks broken",
        setup,
    );
}

#[test]
fn an_evicted_holder_that_asks_again_keeps_tokens_rising() {
    let setup = Setup {
        evicts: Some(Eviction::Now),
        renewals: vec![1, 0],
        asks: vec![2, 1],
        gives_up: GivesUp::Never,
        hurries: false,
        ..proposing(1, 2, Setup::without_clocks())
    };
    holds("an eviction at once, asked again, clocks broken", setup);
}

#[test]
fn an_eviction_and_the_end_of_its_lease_break_nothing() {
    let setup = Setup {
        evicts: Some(Eviction::Marked),
        renewals: vec![1, 0],
        ticks: 2,
        gives_up: GivesUp::Never,
        hurries: false,
        ..proposing(1, 2, Setup::new())
    };
    holds("an eviction that is marked, clocks kept", setup);
}

#[test]
fn requests_that_come_twice_break_nothing() {
    let setup = Setup {
        doubled: 1,
        releases: true,
        ..Setup::without_clocks()
    };
    holds("a request that comes twice, clocks broken", setup);
}

#[test]
fn two_empty_restarts_break_nothing() {
    let setup = Setup {
        restarts: 2,
        ..with_a_loss(proposing(2, 1, Setup::without_clocks()))
    };
    holds("two empty restarts, clocks broken", setup);
}

#[test]
fn an_empty_restart_with_clocks_that_are_kept_breaks_nothing() {
    let setup = Setup {
        ttl: 2,
        ticks: 4,
        ..with_a_loss(proposing(1, 1, Setup::new()))
    };
    holds("an empty restart, clocks kept", setup);
}

#[test]
fn an_old_copy_breaks_nothing() {
    let setup = Setup {
        copies: 1,
        ..with_a_loss(proposing(2, 1, Setup::without_clocks()))
    };
    let setup = Setup {
        restarts: 0,
        ..setup
    };
    holds("an old copy of a member's data, clocks broken", setup);
}

#[test]
fn a_clock_that_gains_less_than_the_margin_breaks_nothing() {
    let setup = Setup {
        ticks: 3,
        ttl: 3,
        margin: 1,
        gains: 1,
        ..proposing(1, 2, Setup::new())
    };
    holds("a clock that gains as much as the margin", setup);
}
