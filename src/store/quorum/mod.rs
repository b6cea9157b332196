//! The protocol of leases on a quorum of independent servers, each of which knows nothing of the others.
//!
//! The client names the token and proposes it to every member at once; a member takes exactly that token, or refuses
//! it. A name is had by the holder that has it on a majority, and two majorities share a member, so no token is granted
//! twice and a later grant gets a higher one. Neither needs a clock.
//!
//! ```text
//! Proposer ── token ──► every member ── Vote ──► Round ── Decision
//!    ▲                    │ Register: the lease and the counter of one name
//!    └── Proposals        │ Incarnation: whether the server still has its data
//! ```
//!
//! These are the parts that decide. They know no clock, no runtime and no connection, and the model in `tests/model`
//! runs them as they are. The store that asks real servers comes on top of them.

mod incarnation;
mod local;
mod memory;
pub mod planted;
mod propose;
mod register;
mod renewal;
mod round;

use std::time::Duration;

pub use self::incarnation::{Incarnation, Rules};
pub use self::local::{LocalNode, RunNumber, hold_at};
pub use self::memory::{NextProposal, Proposals};
pub use self::propose::{Proposer, TooFarAhead, Wish};
pub use self::register::{
    Attempted, Counter, Freed, Proposal, Purpose, Register, TakenBack, Tenure, Vote,
};
pub use self::renewal::{Extension, Tally};
pub use self::round::{Decision, Round};

/// How far in front of a member's clock a token may be. Also how far a member that lost its data lifts its tokens: it
/// took none that was further ahead, unless its clock has gone back by more than this.
pub const AHEAD: Duration = Duration::from_secs(2 * 60 * 60);

/// The longest ttl of a quorum whose builder sets none, and so the time for which a member that lost its data grants
/// nothing.
pub const MAX_TTL: Duration = Duration::from_secs(60);

/// How long a member remembers the last token of a name after its clock has passed that token.
pub const TOKEN_MEMORY: Duration = Duration::from_secs(60 * 60);

/// Returns how many of `members` are a majority.
pub const fn majority(members: usize) -> usize {
    members / 2 + 1
}

/// Returns a duration in microseconds, the unit of tokens and of the members' clocks.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
