//! The campaign: workers on every store, a nemesis, and a checker of what happened. `README.md` says how to run it and what
//! came of it.
#![expect(
    clippy::unwrap_used,
    reason = "tests speak through their names and fail by panic"
)]

mod bucket;
mod checker;
mod controls;
mod crew;
mod ear;
mod fault;
mod faults;
mod forked;
mod grounds;
mod history;
mod idle;
mod job;
mod nemesis;
mod normal;
mod pool;
mod register;
mod report;
mod rivals;
mod run;
mod witness;
mod worker;

use leasehold_harness as harness;
