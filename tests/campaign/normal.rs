//! The campaign of each day: SQLite, Redis, and one more store that the seed draws. It also draws the one of the three
//! on which permits and shares are taken.

use fastrand::Rng;

use crate::grounds::Site;
use crate::run::{Plan, Run, run_at_once};

/// How many faults each store has.
const FAULTS: usize = 24;

#[test]
fn every_promise_holds_on_three_stores_in_seventy_two_faults() {
    let seed = seed();
    let others = [
        Site::Postgres,
        Site::Zookeeper,
        Site::Ensemble,
        Site::Sentinel,
        Site::Cluster,
        Site::Quorum,
    ];
    let mut random = Rng::with_seed(seed);
    let other = others[random.usize(..others.len())];
    let sites = [Site::Sqlite, Site::Redis, other];
    let with_pools = sites[random.usize(..sites.len())];
    let plans = sites.map(|site| Plan {
        has_pools: site == with_pools,
        ..Plan::sound(site, seed, FAULTS)
    });
    let runs = run_at_once(plans.into());
    assert_eq!(runs.len(), sites.len(), "each run came to its end");
    runs.iter().for_each(Run::assert_sound);
}

/// The seed that was told, or one of now.
pub(crate) fn seed() -> u64 {
    let told = std::env::var("LEASEHOLD_TEST_SEED").ok();
    let seed = told.map_or_else(
        || fastrand::u64(..),
        |told| {
            let digits = told.trim_start_matches("0x");
            u64::from_str_radix(digits, 16).expect("a number in hexadecimal digits")
        },
    );
    eprintln!("campaign: LEASEHOLD_TEST_SEED={seed:#x}");
    seed
}
