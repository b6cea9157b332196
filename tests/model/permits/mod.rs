//! A model of permits, shared and exclusive leases: each is composed of ordinary leases, on the *door* (the name
//! itself) and on N *permits* (`name#1` to `name#N`).
//!
//! A *reader* takes a permit. It claims one at random, then checks the door: if the door is free, the permit counts.
//! If it is taken, the reader gives the permit back and queues at the door; there it takes a permit and releases the
//! door, and the permit counts if the answer to that release says that the door was still held with this token
//! ([`Rule::Release`]). A *writer* takes the door, then checks each permit, and holds exclusively once it saw each
//! one free.
//!
//! # What is promised
//! - **X1**: no writer believes that it holds while another actor believes that it holds.
//! - **X2**: two actors never hold one permit, and never more than N hold one each.
//! - **X3**: from every state each living actor comes to hold by some way on which no other one dies, gives up or
//!   loses a lease that it renews.
//! - **X4**: no write lands at a storage with a fence while a reader believes that raised the fence before.
//! - **X5**: the fence refuses no writer that believes.
//! - **X1L**: where leases end early, the store never has the leases of a writer and a reader who both believe.
//! - **T**: newcomers cannot keep the waiter that has the door from its permit for ever ([`Newcomers`]).
//!
//! # What it assumes
//! - **A request is executed** at any moment after it was sent, often or never; an answer is heard at any later
//!   moment, or never. A claim that its actor is done with stays a *leftover*: it may take its name at any later
//!   moment, and its lease ends at any moment.
//! - **Time is in events.** The deadline of a claim passes at any moment after it was sent; the store ends the lease
//!   at any moment after that, and not before, except where leases end early. Renewals only put that moment off.
//! - **Actors go on for ever**, and tokens count by their order, so the states are finitely many and rounds are not
//!   bounded.
//! - Permits are alike, and so are actors of one kind: states that differ only in their order are one.
//! - The queue at the door has any order.
//! - A limit of the hold begins when the lease is handed over, so it is one of the moments when a holder leaves.
//!   One that counts at the door is refuted ([`Newcomers::is_limited`]).

mod actors;
#[cfg(test)]
mod faults;
mod newcomers;
mod promises;
mod setup;
mod steps;
mod storage;
mod store;
#[cfg(test)]
mod verdicts;
mod world;

pub use self::newcomers::{Coming, Newcomers, Race, Stride};
pub use self::setup::{Fence, GoesOn, Rule, Setup, Within, Wrong};
pub use self::world::{Act, Fate, Promise, Step, World};
