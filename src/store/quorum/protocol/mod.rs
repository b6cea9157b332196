//! The protocol of the quorum, as plain functions: what a client does with the members' answers. Nothing here knows a
//! connection, a runtime or a clock; `now` is always an argument.
//!
//! ```text
//!  client                                     member: `names.lua` and `node.lua`
//!  propose ── claim, with its token ────────► claim     ─┐
//!  renewal, and with a mark sent back ──────► renew      │ the lease of the name, the mark of its slot
//!  release or taking back, eviction ────────► release    │
//!  Answers ◄── MemberAnswer::Yes, Taken, ... ──── evict     ─┘
//!  adoption ── the highest token ───────────► look, adopt     a member that was away comes in
//!  closing ── the highest token ────────────► close, open     set-up, and change of members
//! ```
//!
//! `README.md` of the folder above has the rules and what they rest on. The model in `tests/model` runs these functions
//! in every order of events within its bounds, with the members as plain functions too (`protocol/node.rs` there); the
//! scripts are compared with those, answer by answer.

mod adoption;
mod answers;
mod member;
mod proposals;

pub use self::adoption::{adoption, closing};
pub use self::answers::{Answers, ClaimOutcome};
pub use self::member::{Absence, MemberAnswer, MemberId, MemberLease, Membership};
pub use self::proposals::{GrantMemory, MembersClock, NotedGrant, Rivalry};

/// Returns how many of `members` are a majority.
pub const fn majority(members: usize) -> usize {
    members / 2 + 1
}

/// Returns how long a member keeps out, in microseconds: the longest ttl, and a hundredth more because the clocks of
/// the holders may be slower than the one that counts the keep-out.
pub const fn keep_out_us(max_ttl_us: u64) -> u64 {
    max_ttl_us.saturating_add(max_ttl_us / 100 + 2_000)
}
