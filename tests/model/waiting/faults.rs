//! The larger bounds, which take up to a minute and a half each.

use super::verdicts::{PAIR, THREE_CLIENTS, THREE_WAITERS, holds_for};
use super::{Fault, Kind, Setup};

/// More states than any of these searches has: some two gigabytes.
const MOST: usize = 40_000_000;

/// What no failover is part of.
const EACH: &[Fault] = &[
    Fault::Die,
    Fault::Disconnect,
    Fault::SeesToken,
    Fault::EvictNow,
    Fault::EvictMarked,
    Fault::Flush,
];

fn holds(setup: &Setup) {
    holds_for(setup, MOST);
}

#[test]
fn a_clients_next_waiter_takes_over_its_place() {
    holds(&Setup::new(THREE_WAITERS));
}

#[test]
fn three_clients_are_served_in_turn() {
    holds(&Setup::new(THREE_CLIENTS).lasting(2, 2));
}

#[test]
fn a_store_that_forgets_costs_the_order_at_most() {
    for kind in [
        Kind::Plain,
        Kind::KeepsOut,
        Kind::KeepsOutAsked,
        Kind::Sentinel,
        Kind::Acknowledged,
    ] {
        let setup = Setup::new(PAIR).of(kind).with(&[Fault::Failover]);
        holds(&Setup { gains: 0, ..setup });
    }
}

#[test]
fn a_fault_costs_a_client_with_two_waiters_no_more_than_it_must() {
    for kind in [Kind::Counts, Kind::KeepsOut] {
        holds(&Setup::new(THREE_WAITERS).calm().of(kind).with(EACH));
    }
}

/// Whoever lives listens there.
#[test]
fn a_fault_beside_long_terms_costs_no_more_than_it_must() {
    let each = &[
        Fault::Die,
        Fault::SeesToken,
        Fault::EvictNow,
        Fault::EvictMarked,
        Fault::Flush,
    ];
    let local = |waiters| Setup::new(waiters).of(Kind::Local).lasting(3, 3);
    holds(&local(PAIR).with(each));
    holds(&local(THREE_WAITERS).calm().with(each));
}

#[test]
fn two_faults_of_one_run_cost_no_more_than_they_must() {
    for kind in [Kind::Counts, Kind::KeepsOut] {
        let setup = Setup::new(PAIR).calm().of(kind).with(EACH);
        holds(&Setup { faults: 2, ..setup });
    }
}
