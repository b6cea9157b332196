//! A model of the quorum's protocol: every order of events within some bounds, with promises that no order may break.
//!
//! ```text
//! cargo test -p leasehold-model                     the bounds of `tests/run`: under a minute
//! cargo test -p leasehold-model -- faults::         the larger bounds, of `tests/run --faults`
//! cargo test -p leasehold-model -- --nocapture      with the table of verdicts
//! ```

pub mod protocol;
