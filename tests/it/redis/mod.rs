//! The store on Redis under everything that servers, networks and operators do to it.

use std::sync::Arc;

use leasehold::store::{self, Store};

mod acknowledged;
mod batches;
mod behind_nat;
mod cluster;
pub(crate) mod connections;
pub(crate) mod crowds;
mod errors;
mod failover;
mod hand_offs;
mod hazards;
mod keep_out;
mod lost_replies;
mod moved_slots;
mod notices;
mod queue;
mod rights;
mod scripts;
mod sentinel;
mod taken_back;
mod tokens;
mod told_before_a_rival;
mod wire;

/// The store at a URL that is in order.
pub(crate) async fn open(url: &str) -> Arc<dyn Store> {
    store::open(url).await.expect("a URL in order")
}
