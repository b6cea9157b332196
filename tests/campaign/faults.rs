//! The long campaign: 1,000 faults over all stores, and the same stores without a fence. It prints the table of
//! `README.md`.

use crate::checker::Rule;
use crate::grounds::Site;
use crate::normal::seed;
use crate::report::{table, unfenced_table};
use crate::run::{Plan, Run, run_at_once};
use crate::worker::Kind;

/// How many faults each store has; the sum is 1,000 and some more.
const FAULTS: usize = 91;
/// How many stores have their faults at once. Of all at once on two cores, some servers do not start in a minute.
const AT_ONCE: usize = 5;

#[test]
fn every_promise_holds_on_every_store_in_a_thousand_faults() {
    let seed = seed();
    let told = std::env::var("LEASEHOLD_CAMPAIGN_FAULTS").ok();
    let faults = told.map_or(FAULTS, |told| told.parse().expect("a number of faults"));
    let only = std::env::var("LEASEHOLD_CAMPAIGN_STORE").ok();
    let is_told = |site: &Site| {
        only.as_ref()
            .is_none_or(|only| only.split(',').any(|only| only == format!("{site:?}")))
    };
    let sites: Vec<Site> = Site::ALL.into_iter().filter(is_told).collect();
    let sound = sites.iter().map(|site| Plan::sound(*site, seed, faults));
    let runs = run_in_turn(sound.collect());
    let unfenced = sites.iter().map(|site| Plan {
        title: format!("unfenced-{site:?}").to_lowercase(),
        kind: Kind::Unfenced,
        has_pools: false,
        ..Plan::sound(*site, seed, faults / 2)
    });
    let unfenced = run_in_turn(unfenced.collect());
    println!("{}{}", table(&runs, &unfenced), unfenced_table(&unfenced));
    runs.iter().for_each(Run::assert_sound);
    // What the leases promise does not rest on the fence.
    for run in &unfenced {
        let of_fence = [Rule::WritesAreKept, Rule::WritesAreInOrder];
        let mut broken = run.verdict.broken.iter();
        let others = broken.find(|broken| !of_fence.contains(&broken.rule));
        assert_eq!(others, None, "{} {}", run.plan.title, run.file.display());
    }
    let lost = unfenced.iter().map(|run| run.verdict.figures.lost_us.len());
    assert!(lost.sum::<usize>() > 0, "the control loses");
    assert_eq!(runs.len(), sites.len(), "each run came to its end");
    assert_eq!(unfenced.len(), sites.len(), "each run came to its end");
}

fn run_in_turn(plans: Vec<Plan>) -> Vec<Run> {
    let parts = plans.chunks(AT_ONCE);
    parts.flat_map(|part| run_at_once(part.to_vec())).collect()
}
