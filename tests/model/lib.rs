//! Models: every order of events within some bounds, with promises that no order may break.
//!
//! - [`protocol`]: the quorum's protocol.
//! - [`permits`]: permits, shared and exclusive leases that are composed of ordinary leases.
//! - [`record`]: stores over a compare-and-set, and the removal of their records.
//! - [`waiting`]: waiting in a store's queue, and a release that grants.
//!
//! ```text
//! cargo test -p leasehold-model                     the bounds of `tests/run`: under two minutes
//! cargo test -p leasehold-model -- faults::         the larger bounds, of `tests/run --faults`
//! cargo test -p leasehold-model -- --nocapture      with the table of verdicts
//! ```

pub mod permits;
pub mod protocol;
pub mod record;
pub mod search;
pub mod serving;
#[cfg(test)]
mod verdict;
pub mod waiting;
