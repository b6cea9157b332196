//! Leases on a quorum of independent Redis or Valkey servers, for when no single one may be trusted to keep its data.
//!
//! # When not to use it
//! **One server and a [fence](crate::fence) is enough for most.** A quorum does not make a lease mutual exclusion: a
//! process can be paused between its last check and its write, here as anywhere, and only storage that compares tokens
//! refuses its write. What a quorum adds is that grants and renewals go on while a minority of the servers is down or has
//! lost its data. It costs three or more servers that share no disk, no power line and no failover, twice the work for
//! each request, waiting in no order, and a keep-out: a new quorum, and each member that was restarted without its data,
//! takes no claims for the longest ttl. If your servers run under Sentinel or as a cluster, use
//! [`redis`](super::redis) with `acknowledged_by` instead.
//!
//! ```no_run
//! # #[tokio::main]
//! # async fn main() -> Result<(), leasehold::Error> {
//! use leasehold::{Client, store::quorum::Quorum};
//!
//! let store = Quorum::open("redis+quorum://a,b,c?max_ttl=60s")?;
//! let client = Client::builder().store(store).build().await?;
//! let lease = client.acquire("nightly-report").await?;
//! # Ok(())
//! # }
//! ```
//!
//! # URLs
//! `redis+quorum://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT],HOST[:PORT][/DB][?max_ttl=60s]`, and `rediss+quorum://` for
//! TLS, with the parameters of a [server alone](super::redis#urls). The credentials are the same for all members;
//! [`Quorum::builder`] takes a URL for each. The number of members is odd and at least 3. `max_ttl` is the longest ttl,
//! by default 60 s, and the same for all clients.
//!
//! # What it promises
//! | promise | rests on |
//! |---|---|
//! | No token is granted to two claims | No member forgets a token that it took, or it comes back with a floor above all of them (limit 2). **No other clock.** |
//! | A claim that is sent after a grant was told gets a higher token | the same |
//! | A lease ends for its holder before another holder gets the name | the same; each member's clock gains no more than the margin on the holder's within one ttl; a member that lost its data keeps out for the longest ttl |
//! | Once a higher token was granted, the older holder's renewals are refused | No member lost its data. No clock |
//! | Asked again, the holder gets the token that it has | The same store asks, or its watchdog |
//! | What is granted, half granted or on its way runs out at most one ttl after the last member heard of it | nothing |
//! | Grants and renewals go on | A majority is up, and has its data on disk or has been up for the keep-out |
//!
//! That the first two need no clock, but that of a member which lost its data, is what this store adds to Redlock. Two
//! claims that were under way *together* may be told in another order than that of their tokens if clocks are broken; a
//! fence is not disturbed by that.
//!
//! # Its limits
//! 1. If the clock of a member of the granting majority gains more than the margin within one ttl, two holders may both
//!    believe in their leases until the older one's deadline. The tokens are right, so the fence protects. If such a
//!    member then also comes back empty, the overtaken holder can even be told "renewed". A clock that loses time harms
//!    no one.
//! 2. A member that comes back empty takes only tokens that are more than two hours in front of its clock. So a token can
//!    repeat or fall if that clock is behind where it was by more than half of the time since the quorum was set up or
//!    another member came back empty, or by more than two hours; a floor that a caller gave shortens that. Start the server
//!    after the time is synchronised.
//! 3. A loss of data is seen by another run of the server, or by a missing `<prefix>:node`. Keys that are deleted by hand
//!    or evicted under memory pressure while that key stays are not noticed. Set `maxmemory-policy noeviction`.
//! 4. Each member is one process. Where Sentinel, a cluster or a balancer puts another process in its place, the member
//!    keeps out after each switch.
//! 5. All members on one machine, disk or power line fail as one. Restart members that have no trusted disk one at a time
//!    and a keep-out apart: with a majority away nothing is granted, and nothing breaks. A disk is trusted with
//!    `appendonly yes`, `appendfsync always` and no replica.
//! 6. A client that is cut off in the middle of a claim leaves it on a member: there the name is taken for one ttl.
//! 7. The members' clocks are several, so the watchdog cannot see a step of one of them.
//! 8. Waiting is not fair: [`WaitOrder::Fair`](crate::WaitOrder::Fair) is `Invalid`, because the members keep no common
//!    queue. Under heavy contention a grant takes more rounds.
//! 9. For four hours after a quorum was set up, or a member lost its data, tokens are in front of the clock: by two hours
//!    at first, then less and less. To move to another kind of store within that time, give a floor.
//!
//! # What it costs
//! Measured with three servers and all clients on two cores, nothing beside them (`cargo bench --all-features --bench
//! quorum`; medians, the spread in brackets). A round trip there is some 100 us.
//!
//! | case | measured |
//! |---|---|
//! | acquire and release, p50, against one server | 1.46 (1.3 to 1.7) |
//! | the same against rslock's Redlock on the same servers, which has no token | 1.24 (1.06 to 1.30) |
//! | p99 while one of the three servers stands still for half of the time, against rslock | 0.002: 2.3 ms and 984 ms |
//! | claims that no other one meets, in one round | all, also the first one of a process |
//! | 2, 10 and 50 clients ask for one free name at once: until one has it, p99 in round trips | 2.8, 17 (11 to 101) and 92 |
//!
//! # How it works
//! The client names the token and proposes it to every member at once; a member takes exactly that token, or refuses it.
//! A name is had by the holder that has it on a majority, and two majorities share a member, so no token is granted twice
//! and a later grant gets a higher one. Usually that is one round trip. A claim that gets no majority is taken back. A
//! member that lacks a lease which a majority has renewed gets it back. `README.md` beside the Redis store describes the
//! keys and scripts.
//!
//! ```text
//! Proposer ── token ──► every member ── Vote ──► Round ── Decision
//!    ▲                    │ Register: the lease and the counter of one name
//!    └── Proposals        │ Incarnation: whether the server still has its data
//! ```
//!
//! The parts in this picture decide, and know no clock, no runtime and no connection. The model in `tests/model` runs
//! them as they are; the scripts do the same as `Register` and `Incarnation`, step by step.

#[cfg(feature = "redis")]
mod builder;
#[cfg(feature = "redis")]
mod claims;
#[cfg(feature = "redis")]
mod frees;
mod incarnation;
mod local;
#[cfg(feature = "redis")]
mod looks;
#[cfg(feature = "redis")]
mod members;
mod memory;
#[cfg(feature = "redis")]
mod merged;
#[doc(hidden)]
pub mod planted;
mod propose;
mod register;
mod renewal;
#[cfg(feature = "redis")]
mod renewals;
mod round;
#[cfg(feature = "redis")]
mod store;

use std::time::Duration;

#[cfg(feature = "redis")]
pub use self::builder::Builder;
#[doc(hidden)]
pub use self::incarnation::{Incarnation, Rules};
#[doc(hidden)]
pub use self::local::{LocalNode, RunNumber, hold_at};
#[doc(hidden)]
pub use self::memory::{LastProposal, NextProposal, Proposals};
#[doc(hidden)]
pub use self::propose::{Proposer, SPREAD, TooFarAhead, Wish};
#[doc(hidden)]
pub use self::register::{
    Attempted, Counter, Freed, Proposal, Purpose, Register, TakenBack, Tenure, Vote,
};
#[doc(hidden)]
pub use self::renewal::{Extension, Tally};
#[doc(hidden)]
pub use self::round::{Decision, Round};
#[cfg(feature = "redis")]
pub use self::store::Quorum;
#[cfg(feature = "redis")]
pub(crate) use self::store::open_url;

/// The label of this kind of store in metrics.
#[doc(hidden)]
pub const KIND: &str = "quorum";

/// How far in front of a member's clock a token may be. Also how far a member that lost its data lifts its tokens: it
/// took none that was further ahead, unless its clock has gone back.
pub const AHEAD: Duration = Duration::from_secs(2 * 60 * 60);

/// The longest ttl of a quorum whose builder sets none, and so the time for which a member that lost its data grants
/// nothing.
pub const MAX_TTL: Duration = Duration::from_secs(60);

/// How long a member remembers the last token of a name after its clock has passed that token.
pub const TOKEN_MEMORY: Duration = Duration::from_secs(60 * 60);

/// Returns for how long a member takes no claims that came back without its data: the longest ttl, and a hundredth more
/// because the clocks of the holders may be slower than the member's.
#[doc(hidden)]
pub fn keep_out(max_ttl: Duration) -> Duration {
    max_ttl + max_ttl / 100 + Duration::from_millis(2)
}

/// Returns how many of `members` are a majority.
#[doc(hidden)]
pub const fn majority(members: usize) -> usize {
    members / 2 + 1
}

/// Returns a duration in microseconds, the unit of tokens and of the members' clocks.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
