//! Storage that refuses a stale holder, on the real storage.

pub(crate) mod control;
mod gate;
mod http;
mod lease;
pub(crate) mod object_store;
mod postgres;
mod redis;
mod sqlite;
mod wrong_guard;
mod wrong_guards;

use leasehold::ClientId;
use leasehold::fence::Pass;
use leasehold::{Holder, Name, Token};

/// The pass of a claim of this test's client.
pub(crate) fn pass(claim: u64, token: u64) -> Pass {
    pass_for("nightly", claim, token)
}

fn pass_for(name: &str, claim: u64, token: u64) -> Pass {
    Pass::new(
        Name::new(name).expect("valid"),
        Holder::new(ClientId::from_u128(7), claim),
        Token::new(token).expect("valid"),
    )
}
