//! A model of the quorum's protocol: every order of events within some bounds, with promises that no order may break.
//!
//! The rules are not written down a second time. A member is the [`Register`] and the [`Incarnation`] of the library, a
//! claim chooses its tokens with the library's [`Proposer`] and counts votes with its [`Round`] and [`Tally`]. The model
//! adds what is around them: requests that are late, lost, doubled or out of order, clocks, restarts, and clients that give
//! up half-way.
//!
//! ```text
//! cargo test -p leasehold-model                     the bounds of `tests/run`: under a minute
//! cargo test -p leasehold-model -- faults::         the larger bounds, of `tests/run --faults`
//! cargo test -p leasehold-model -- --nocapture      with the table of verdicts
//! ```
//!
//! # What it assumes
//! Members are alike, so states that differ only in the members' order are one. A tick is the unit of time; a member's
//! lease and keep-out end at ticks, and within one tick events happen in any order. With [`Clocks::Broken`] they end at
//! any moment, which no clock can be worse than, and the promises that rest on clocks are not asked for. Tokens are in
//! front of every member's clock, so no clock helps a counter.
//!
//! [`Register`]: leasehold::store::quorum::Register
//! [`Incarnation`]: leasehold::store::quorum::Incarnation
//! [`Proposer`]: leasehold::store::quorum::Proposer
//! [`Round`]: leasehold::store::quorum::Round
//! [`Tally`]: leasehold::store::quorum::Tally

mod asking;
mod moves;
mod outside;
mod report;
mod setup;
mod world;

#[cfg(test)]
mod faults;
#[cfg(test)]
mod verdicts;

pub use self::report::{Report, check};
pub use self::setup::{Clocks, GivesUp, Setup};
pub use self::world::{Promise, Step, World};
