//! The memory that all connections of a store share, and the choice of the next token to propose.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::known::KnownQuorum;
use super::protocol::{GrantMemory, MembersClock};
use crate::clock::{Boottime, Clock as _, wall_clock_us};
use crate::error::Error;
use crate::telemetry::Sink;
use crate::token::Token;

/// State that the connections of one store share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) granted: Mutex<GrantMemory>,
    /// The highest mark that members reported, or token that was proposed.
    seen: AtomicU64,
    pub(super) known: Mutex<Option<Arc<KnownQuorum>>>,
    clock: Mutex<Option<MembersClock>>,
    pub(super) counts: &'static Sink,
}

impl Shared {
    pub(super) fn new(counts: &'static Sink) -> Self {
        Self {
            granted: Mutex::default(),
            seen: AtomicU64::new(0),
            known: Mutex::default(),
            clock: Mutex::default(),
            counts,
        }
    }

    pub(super) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    pub(super) fn note_seen(&self, token: u64) {
        self.seen.fetch_max(token, Ordering::Relaxed);
    }

    /// Records the current readings of the members' clocks.
    pub(super) fn read_clocks(&self, members: impl Iterator<Item = u64>) {
        *self.clock.lock() = MembersClock::read(members.collect(), Boottime.now());
    }

    /// Returns the clock from which tokens are minted.
    pub(super) fn clock_us(&self) -> u64 {
        let (ours, now) = (wall_clock_us(), Boottime.now());
        let members = *self.clock.lock();
        members.map_or(ours, |members| members.bound(ours, now))
    }

    /// Chooses the token to propose, and records it before it is sent. A proposal that was taken back may be freed at
    /// any later moment by a request on its way, so the next one is above it. Apart from that, a wrong choice costs a
    /// round and breaks no promise.
    ///
    /// # Errors
    /// As of [`Token::mint`].
    pub(super) fn propose(&self, floor: Option<Token>) -> Result<Token, Error> {
        // A mark above all tokens leaves none.
        let last = self.seen().clamp(1, Token::MAX.get());
        let token = Token::mint(Token::new(last).ok(), floor, self.clock_us())?;
        self.note_seen(token.get());
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_proposal_is_above_all_marks_and_a_mark_above_all_tokens_leaves_none() {
        let shared = Shared::new(Sink::of_store("quorum"));
        let first = shared.propose(None).expect("a token");
        assert!(shared.propose(None).expect("a token") > first);
        shared.note_seen(1 << 52);
        let above = shared.propose(Token::new(1).ok()).expect("a token");
        assert_eq!(above.get(), (1 << 52) + 1);
        shared.note_seen(u64::MAX);
        let error = shared.propose(None).expect_err("none is left");
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
    }
}
