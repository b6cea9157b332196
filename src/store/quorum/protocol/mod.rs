//! The protocol of the quorum, as plain functions: what a member does with a request, and what a client does with the
//! answers. Nothing here knows a connection, a runtime or a clock; `now` is always an argument.
//!
//! ```text
//!  client                                     member, one script for each function of `Node`
//!  propose ── claim, with its token ────────► Node::claim     ─┐
//!  renewal, and with a mark told back ──────► Node::renew      │ NameState: the lease of the name,
//!  release or taking back, eviction ────────► Node::release    │         the mark of its slot
//!  Answers ◄── MemberAnswer::Yes, Taken, ... ──── Node::evict     ─┘
//!  adoption ── the highest token ───────────► Node::look, Node::adopt     a member that was out comes in
//!  Closings ── the highest token ───────────► Node::close, Node::open     set-up, and change of members
//! ```
//!
//! `README.md` of the folder above has the rules and what they rest on; the model in `tests/model` runs these functions
//! in every order of events within its bounds, and the scripts are compared with them, answer by answer.

mod adoption;
mod answers;
mod member;
mod node;
mod proposals;

pub use self::adoption::{Closings, adoption};
pub use self::answers::{Answers, ClaimOutcome, RenewalOutcome};
pub use self::member::{MemberAnswer, MemberLease, MemberRequest, NameState, Standing};
pub use self::node::{Absence, At, FirstSeen, MemberId, Membership, Node, Writing};
pub use self::proposals::{LastToken, Rivalry, TokenMemory, propose};

/// Returns how many of `members` are a majority.
pub const fn majority(members: usize) -> usize {
    members / 2 + 1
}

/// Returns for how long a member keeps out, in microseconds: the longest ttl, and a hundredth more because the clocks
/// of the holders may be slower than the one that counts the keep-out.
pub const fn keep_out_us(max_ttl_us: u64) -> u64 {
    max_ttl_us + max_ttl_us / 100 + 2_000
}
