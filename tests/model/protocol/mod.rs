//! A model of the protocol that the quorum is to run: every order of events within some bounds, with promises that no
//! order may break.
//!
//! The rules are those of the library (`store::quorum::protocol`), called as the members and the clients call them. The
//! model adds what is around them: requests that arrive late, never or twice, answers that are counted late or never,
//! members that are lost and come back, clients that stop anywhere.
//!
//! # What it assumes
//! - **Time is in events.** A round is one request of a holder to all members; it *lapses* when one ttl has passed since
//!   its send. A lease ends at a member at that member's own moment, once all rounds that set its end have lapsed, and a
//!   keep-out once all rounds have lapsed that were under way at the loss. So all ttls are covered, equal or not, and no
//!   member's clock is compared with another's.
//! - **Tokens are free choices**, up to a bound, and a further name of the slot moves a mark at any moment.
//! - Members are alike, so states that differ only in their order are one.

mod clients;
#[cfg(test)]
mod contention;
#[cfg(test)]
mod faults;
mod library;
mod members;
#[cfg(test)]
mod membership;
mod node;
#[cfg(test)]
mod node_names;
mod promises;
mod replace;
mod rules;
mod setup;
mod steps;
#[cfg(test)]
mod verdicts;
mod world;

pub use self::replace::{Exchange, Exchanging, Replacing, Without};
pub use self::rules::{Rules, Wrong};
pub use self::setup::{ALL, Setup};
pub use self::world::{Loss, Promise, Step, World};
