//! Leases on a quorum of independent Redis or Valkey servers, for when no single one may be trusted to keep its data.
//!
//! # When not to use it
//! **One server and a [fence](crate::fence) is enough for most.** A quorum does not make a lease mutual exclusion: a
//! process can be paused between its last check and its write, here as anywhere, and only storage that compares tokens
//! refuses its write. What a quorum adds is that grants and renewals go on while a minority of the servers is down or
//! has lost its data. It costs three or more servers that share no disk, no power line and no failover, twice the work
//! for each request, waiting in no order ([`WaitOrder::Fair`](crate::WaitOrder::Fair) is `Invalid`), and a keep-out:
//! each member that was restarted takes no part for the longest ttl. If your servers run under Sentinel or as a
//! cluster, use [`redis`](super::redis) with `acknowledged_by` instead.
//!
//! # How to use it
//! ```console
//! $ leasehold init --store redis+quorum://a,b,c?max_ttl=60s
//! ```
//! once, or [`Quorum::init`]; without it a claim fails with `Misconfigured`. From then on the quorum grants.
//!
//! ```no_run
//! # #[tokio::main]
//! # async fn main() -> Result<(), leasehold::Error> {
//! use leasehold::{Client, store::quorum::Quorum};
//!
//! let store = Quorum::open("redis+quorum://a,b,c")?;
//! let client = Client::builder().store(store).build().await?;
//! let lease = client.acquire("nightly-report").await?;
//! # Ok(())
//! # }
//! ```
//!
//! # URLs
//! `redis+quorum://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT],HOST[:PORT][/DB][?max_ttl=60s]`, and `rediss+quorum://` for
//! TLS, with the parameters of a [server alone](super::redis#urls). The credentials are the same for all members;
//! [`Quorum::of`] takes each server with settings of its own. The number of members is odd and at least 3, and all
//! clients list them in the same order. `max_ttl` is the longest ttl: `init` writes it on the members, by default 60 s.
//!
//! # Restarting the members
//! 1. Restart one member.
//! 2. `leasehold status --members` shows it as away, with the time left: the longest ttl.
//! 3. Wait until it is up. Held leases come back to it with their next renewal, within a third of their ttl. Names that
//!    are kept taken come back from its disk, so give the members one (`appendonly yes`).
//! 4. Restart the next.
//! 5. With one member away and another one down, three members grant nothing: do not begin while one is down.
//!
//! # Other members
//! `leasehold init --store NEW --replace OLD` closes the old members and writes the new ones after the longest ttl. OLD
//! is the URL with which the old ones were set up. All leases end, and nothing is granted meanwhile. If it stops
//! half-way, run it again. Then shut the old members down that are left out.
//!
//! # What it promises
//! - Tokens rise, and no token is granted twice. This needs no clock while no member is lost. Across a loss, the
//!   keep-out has to be longer than any ttl as the holders measure it; if no majority is in, the clock of the client
//!   that takes the member in has to be ahead of every token.
//! - A lease ends for its holder before another holder gets the name, if each member's clock gains no more than the
//!   margin on the holder's within one ttl.
//! - Once a higher token was granted, the older holder's renewals are refused. This needs no clock while no member is
//!   lost, and the keep-out across a loss.
//! - A holder that asks again gets the token that it already has, if the same store asks, or its watchdog.
//! - What is granted, half granted or on its way runs out at most one ttl after the last member heard of it.
//! - Grants, renewals and releases go on while a majority is in.
//!
//! No disk and no replica is trusted: a member that was restarted or promoted is *out* for the longest ttl, and then
//! comes in without its leases and above all tokens. So does one with the data of another member, as after
//! `REPLICAOF`. Names that are kept taken (`hold_at_least`, and the fires of
//! `once` that were done) come in with it as far as its disk has them: a member that lost its data forgets them.
//!
//! # Its limits
//! 1. **The clocks of members.** If the clock of a member of the granting majority gains more than the margin within
//!    one ttl, two holders may both believe in their leases. The tokens are right, and the fence protects. The same
//!    holds for a member whose clock gains while it keeps out; there a token can fall too.
//! 2. **One dead and one out.** With three members nothing is granted until one of the two is in again. A restart of
//!    one member while another is dead loses the leases that lived on those two. Use five members, or
//!    [replace](Quorum::replace) them.
//! 3. **Data that changes unseen.** No balancer, no address that may go back to a server that was replaced without a
//!    restart, no snapshot of a machine: such a server passes for the one it was, with old data. `leasehold doctor`
//!    names a member two connections to which end at two servers; a balancer that goes to one server at a time is not
//!    seen. Nor are keys that are deleted by hand or evicted while `<prefix>:node` stays: set `maxmemory-policy
//!    noeviction`.
//! 4. **Set-up after a loss of all data.** [`init`](Quorum::init) opens blank servers at once. If all members have lost
//!    their data, wait for the longest ttl before you run it: a holder that was paused meanwhile believes in its lease
//!    for as long. `init` itself knows only of clients that have asked since.
//! 5. **Evictions across a loss.** If a member that carried out an eviction is lost within the same ttl, the holder may
//!    be renewed once more: evict again.
//!
//! # How it works
//! The client names the token and proposes it to every member at once; a member takes exactly that token, or refuses
//! it. A name is had by the holder that has it on a majority, and two majorities share a member, so no token is granted
//! twice and tokens rise. `README.md` in this folder has the rules, what they rest on, and the keys and scripts;
//! `protocol/` has the clients' part as plain functions, which know no clock, no runtime and no connection. The model
//! in `tests/model` runs these as they are, with the members as plain functions too, and the scripts are compared with
//! those, answer by answer.

mod claims;
mod failure;
mod known;
mod looks;
mod members;
#[cfg(not(feature = "internals"))]
#[expect(unreachable_pub, reason = "the models of the tests call it")]
mod protocol;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod protocol;
mod round;
mod setup;
mod store;

#[cfg(feature = "internals")]
pub(crate) use self::members::sources;
pub(crate) use self::setup::to_set_up;
pub use self::store::Quorum;

/// The label of this kind of store in metrics.
const KIND: &str = "quorum";

/// The longest ttl of a quorum that is set up without one.
pub const MAX_TTL: std::time::Duration = std::time::Duration::from_secs(60);
