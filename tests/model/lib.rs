//! Models: every order of events within some bounds, with promises that no order may break.
//!
//! - [`protocol`]: the quorum's protocol.
//!
//! ```text
//! cargo test -p leasehold-model                     the bounds of `tests/run`: under a minute
//! cargo test -p leasehold-model -- faults::         the larger bounds, of `tests/run --faults`
//! cargo test -p leasehold-model -- --nocapture      with the table of verdicts
//! ```

pub mod protocol;
pub mod search;
#[cfg(test)]
mod verdict;
