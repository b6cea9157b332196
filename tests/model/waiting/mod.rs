//! A model of waiting in a store's queue: a release grants the name to the first place in it, for the rest of the term
//! that the last poll of its client confirmed, and a notice tells the client.
//!
//! A *poll* is a claim that brings a term: it takes the name, or makes or refreshes its client's place, any number of
//! times. A *place* has the claim of its client's first waiter; it is *vacant* once that waiter left and its client has
//! others. Whoever frees the name grants it to the first place that is neither vacant nor past its term, and whose
//! client listens, as far as the store knows. Where the store and its clients share a kernel ([`Kind::Local`]), it
//! knows who is dead: their places are removed, and terms can be long. There it grants for a short time only, and the
//! notice tells the end.
//!
//! The answer to a poll that waits tells the *height*: the highest token that was given away. The client counts a
//! notice under the deadline that it has already: if the holder is its first waiter's claim, the token is above the
//! height that this claim's last answer told and above all that the client has seen, the poll of that answer was sent
//! since the subscription was made, and its deadline has not passed, nor the end that the notice tells. Any other
//! notice only makes it poll, which it may do at any time.
//!
//! # What is promised
//! The promises are those of [`Promise`], the wrong rules that break them those of [`Wrong`]; `README.md` has the
//! shortest way to each.
//!
//! # What it assumes
//! - **Time is in ticks**, and what is left of each time is counted, so runs have no end and the states are finitely
//!   many. The margin is one tick, and the store's clock may gain one in a run.
//! - **A request is carried out** at any moment after it was sent, or never. One that its client gave up may be carried
//!   out any number of times, within one ttl.
//! - **A notice comes** at any later moment, often or never, until the subscription breaks. The oldest of three to one
//!   client is lost.
//! - Tokens count by their order. The clock that mints them, and is part of the height, survives a loss of data.
//! - A client knows whether it has more waiters when its release is carried out. If it was another when the release was
//!   sent, a vacant place may stay for its term, which nobody waits for.

mod clients;
#[cfg(test)]
mod faults;
mod numbers;
mod promises;
mod setup;
mod steps;
mod store;
#[cfg(test)]
mod verdicts;
mod world;

pub use self::setup::{Kind, Setup, Wrong};
pub use self::world::{Act, Fault, Of, Promise, Step, World};
