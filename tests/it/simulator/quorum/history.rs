//! What was told to whom, and the promises that it has to keep.

use std::collections::HashMap;
use std::fmt;

use leasehold::{Holder, Token};

/// The promises of a quorum, by their names in its documentation of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum QuorumPromise {
    /// No token is granted to two claims.
    T1,
    /// A claim that is sent after a grant was told gets a higher token.
    T2,
    /// Claims under way together are told in the order of their tokens.
    T3,
    /// No holder believes to hold while another does.
    X,
    /// After a higher token was told, no renewal is told to have succeeded.
    Z,
    /// A holder that asks again gets the token that it has.
    I,
    /// Everything runs out, at most one ttl after a member last heard of it.
    F,
}

impl QuorumPromise {
    pub(super) const ALL: [Self; 7] = [
        Self::T1,
        Self::T2,
        Self::T3,
        Self::X,
        Self::Z,
        Self::I,
        Self::F,
    ];
}

/// A promise that was broken.
#[derive(Debug, Clone)]
pub(super) struct Breach {
    pub(super) promise: QuorumPromise,
    what: String,
}

#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) breach: Option<Breach>,
    /// How often each promise was looked at.
    pub(super) checks: HashMap<QuorumPromise, u64>,
    pub(super) grants: u64,
    told: HashMap<Token, Holder>,
    of: HashMap<Holder, Token>,
}

impl History {
    pub(super) fn check(
        &mut self,
        promise: QuorumPromise,
        is_kept: bool,
        what: impl FnOnce() -> String,
    ) {
        *self.checks.entry(promise).or_default() += 1;
        if !is_kept && self.breach.is_none() {
            let what = what();
            self.breach = Some(Breach { promise, what });
        }
    }

    /// The highest token that was told to another holder.
    pub(super) fn told_to_others(&self, holder: Holder) -> Option<Token> {
        let others = self.told.iter().filter(|(_, to)| **to != holder);
        others.map(|(token, _)| *token).max()
    }

    /// The token that this holder was told last.
    pub(super) fn granted(&self, holder: Holder) -> Option<Token> {
        self.of.get(&holder).copied()
    }

    /// A holder is told of its grant. `before` is the highest token that another had been told when the claim was sent.
    pub(super) fn tell(&mut self, holder: Holder, token: Token, before: Option<Token>) {
        self.grants += 1;
        let owner = self.told.get(&token).copied();
        let is_own = owner.is_none_or(|owner| owner == holder);
        self.check(QuorumPromise::T1, is_own, || {
            format!("{token} is granted to {owner:?} and to {holder}")
        });
        let is_above = self.granted(holder) == Some(token) || before < Some(token);
        self.check(QuorumPromise::T2, is_above, || {
            format!("{holder} gets {token} although {before:?} was told before")
        });
        self.told.insert(token, holder);
        self.of.insert(holder, token);
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.what)
    }
}
