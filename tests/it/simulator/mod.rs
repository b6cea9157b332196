//! The schedule and everything that it decides by, in a world of its own: seeded, in virtual time, without a runtime.
//!
//! ```text
//! world ── happens ──► process ── drives ──► Schedule, Claiming, Leaving (the real ones)
//!   │                     │
//!   │ faults              └─ requests ─► stage: network ─► model store
//!   └──────── ledger: what must hold, whatever happens ◄──────┘
//! ```
//!
//! Some stores fail over to a replica that missed the last writes, or come back empty. Half of those keep out: they grant
//! nothing for the longest ttl, and then no two holders may be told yes. Without keep-out that is beyond what is promised,
//! and a planted store that should keep out and does not must be found.
//!
//! In three of seven runs the store has a queue, and all users wait in [turn](turns).
//!
//! A campaign takes the seeds from 0 on: short ones are here, long ones in [`faults`](crate::faults).
//! `LEASEHOLD_SIMULATED` sets how many schedules are run, `LEASEHOLD_SIMULATED_FROM` the first seed;
//! `LEASEHOLD_SIMULATED_SEED` runs and prints one of them. A seed that was found to break a promise becomes a test with
//! the name of what was wrong.

mod claim;
mod contract;
mod ledger;
mod limits;
mod network;
mod plan;
mod planted;
mod pool;
mod process;
mod runner;
mod slot;
mod stage;
mod steps;
mod store;
mod taking;
mod time;
mod turns;
mod world;

use self::plan::Shape;
use self::planted::Bug;
use self::runner::{run_many, run_seed};
use self::world::World;

/// A number from the environment.
fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

/// Prints one run, if that is asked for.
fn show(shape: Shape) {
    if let Some(seed) = variable("LEASEHOLD_SIMULATED_SEED") {
        let ledger = World::new(seed, shape, None, true).run();
        assert!(ledger.violation.is_none(), "{}", ledger.violation.unwrap());
    }
}

/// Runs this many schedules of a few leases. Each keeps every promise, and together they check every promise.
pub(crate) fn small_schedules(count: u64) {
    show(Shape::Small);
    let count = variable("LEASEHOLD_SIMULATED").unwrap_or(count);
    let first = variable("LEASEHOLD_SIMULATED_FROM").unwrap_or(0);
    let summary = run_many(first, count, Shape::Small);
    println!("{summary}");
    assert_eq!(summary.unchecked(), []);
}

/// Runs this many schedules of two thousand leases, each of which keeps every promise.
pub(crate) fn large_schedules(count: u64) {
    show(Shape::Large);
    let summary = run_many(0, count, Shape::Large);
    println!("{summary}");
}

#[test]
fn five_thousand_schedules_keep_every_promise() {
    small_schedules(5_000);
}

#[test]
fn four_schedules_of_two_thousand_leases_keep_every_promise() {
    large_schedules(4);
}

/// Runs one seed that once broke a promise.
fn keeps_every_promise(seed: u64) {
    let ledger = run_seed(seed, Shape::Small, None);
    assert!(ledger.violation.is_none(), "{}", ledger.violation.unwrap());
}

#[test]
fn a_grant_used_up_by_a_step_of_the_servers_clock_is_not_returned() {
    keeps_every_promise(1_235);
}

#[test]
fn a_late_reply_from_before_a_step_back_of_the_servers_clock_ends_nothing() {
    keeps_every_promise(1_018_904);
}

#[test]
fn a_copied_claim_undone_by_a_failover_is_not_taken_for_the_first() {
    keeps_every_promise(70_033);
}

#[test]
fn drift_is_no_step_of_a_servers_clock_where_nothing_is_held() {
    keeps_every_promise(22_651);
}

#[test]
fn a_failover_that_kept_no_lease_but_forgot_a_token_may_need_the_clock() {
    keeps_every_promise(15_898);
}

#[test]
fn a_grant_that_a_late_reading_of_the_clock_shortens_is_renewed_at_once() {
    keeps_every_promise(12_238);
}

/// Runs up to 5,000 seeds with each bug, until it is caught.
pub(crate) fn each_bug_is_caught() {
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        let caught = (0..5_000)
            .find_map(|seed| Some((seed, run_seed(seed, Shape::Small, Some(bug)).violation?)));
        match caught {
            Some((seed, violation)) => println!("{bug:<32?} seed={seed:<5} {violation}"),
            None => missed.push(bug),
        }
    }
    assert_eq!(missed, []);
}
