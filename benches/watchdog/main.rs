//! What holding costs: a check, a cancellation, a turn of the schedule, a hundred thousand leases, and renewals
//! compared with the bare script and rslock.
//!
//! ```text
//! cargo bench -p leasehold-benches --bench watchdog              # everything but the five minutes
//! cargo bench -p leasehold-benches --bench watchdog -- held      # the cases of one part
//! ```
//!
//! The parts are `check`, `cancel`, `schedule`, `survey`, `renewals`, `bytes`, `held`, and `five-minutes`.

#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures with the clock that stands still in no suspend it would survive"
)]

mod cancel;
mod held;
mod renewals;
mod schedule;
mod survey;

use std::hint::black_box;
use std::time::Instant;

use leasehold::store::memory::Memory;
use leasehold::{Attempt, Client, Lease};
use leasehold_benches as yardstick;
use leasehold_benches::many;
use leasehold_benches::stores;

use self::yardstick::{figure, seconds};

const RUNS: usize = 7;

async fn held(client: &Client, name: &str) -> Lease {
    match client.try_acquire(name).await.expect("the store answers") {
        Attempt::Acquired(lease) => lease,
        other => panic!("{other:?}"),
    }
}

async fn check() {
    const CHECKS: u32 = 1_000_000;
    let client = Client::builder()
        .store(Memory::new())
        .build()
        .await
        .expect("valid");
    let lease = held(&client, "a").await;
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let started = Instant::now();
        for _ in 0..CHECKS {
            black_box(&lease).check().expect("held");
        }
        runs.push(seconds(started) * 1e9 / f64::from(CHECKS));
    }
    figure("check_ns", "ns", &runs);
}

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let is_wanted = |part: &str| match wanted.as_slice() {
        [] => part != "five-minutes",
        wanted => wanted.iter().any(|word| word == part),
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if is_wanted("check") {
        runtime.block_on(check());
    }
    if is_wanted("cancel") {
        cancel::measure();
    }
    if is_wanted("schedule") {
        schedule::measure();
    }
    if is_wanted("survey") {
        survey::measure();
    }
    if is_wanted("renewals") {
        runtime.block_on(renewals::measure());
    }
    if is_wanted("bytes") {
        runtime.block_on(held::bytes());
    }
    if is_wanted("held") {
        runtime.block_on(held::measure(3, 60));
    }
    if is_wanted("five-minutes") {
        runtime.block_on(held::measure(1, 300));
    }
}
