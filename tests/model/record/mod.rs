//! A model of stores over a compare-and-set: a record for each name, and puts that succeed only on the version that was
//! read.
//!
//! A claim reads the record and puts itself on its version, if it is free or over. It is *over* by the first rule
//! once the client has had this version in hand for the record's whole ttl, counted from the arrival of the read that
//! showed it; and by the second one when the store's clock says that it was written the ttl and a skew ago. A holder
//! counts its ttl from before it sent the put, and renews by puts of the same record, each with another version. A
//! release puts a free record, or one that is kept until an end in the store's time. Where it finds another's record,
//! and the version is one on which a put of its own was not answered, it puts a free record there, so that this put
//! fails: it *poisons* it. The decisions are in `rules.rs`.
//!
//! [`Removal`] is a second space, of records that are removed once they have been over for long. `README.md` lists the
//! rules, and the shortest way to a broken promise for each that is replaced by a wrong one ([`Wrong`], [`Careless`]).
//!
//! # What is promised
//! The promises are those of [`Promise`], and X3: from every state each client that waits comes to hold by some way on
//! which no client dies, gives up or is evicted. Of removal: tokens of a name rise whatever is removed, no record is
//! removed that is not over, and each that is over can be.
//!
//! # What it assumes
//! - **Time is in ticks.** The margin is one tick, and the clocks of the store and of observers may gain one in a run
//!   on those of holders. A stamp of the store is that of the server that carried out the put, as far apart from
//!   another's as [`Kind::Dated`] says.
//! - **A request is carried out** at any moment after it was sent, or never, and its reply is heard at any later
//!   moment. A put that its client gave up may be carried out as long as its version is the record's, and its reply
//!   heard. Of two puts of one client in doubt the second one is lost, if it was not carried out.
//! - **Reads are linearizable**, and a version never comes back. A record that does not exist is a version that does,
//!   which only removal brings about: a put for it is under way for less time than a record is over before it is
//!   removed.
//! - A client has two holders in turn. It may draw the second one while a put of the first one is in doubt.
//! - An operator's read and put are one step, which is any put that it could decide on this version.

mod clients;
#[cfg(test)]
mod faults;
mod promises;
mod removal;
mod rules;
mod setup;
mod steps;
mod store;
#[cfg(test)]
mod verdicts;
mod world;

pub use self::removal::{Careless, Move, Prefix, Removal};
pub use self::setup::{Kind, Setup, Wrong};
pub use self::world::{Act, Evict, Promise, Step, World};
