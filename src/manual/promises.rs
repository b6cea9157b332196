//! What leasehold guarantees, and under which assumptions.
//!
//! # 0. A lease alone is not mutual exclusion
//! A process can be paused between its last check and its write: by the scheduler, by a debugger, by the
//! migration of its virtual machine. The lease runs out meanwhile, another process is granted the name, and the first
//! one wakes up and writes. No clock inside the process can prevent that. Only storage that compares tokens is safe;
//! see [fencing](super::fencing). The promises below shorten the overlap as far as that is possible without storage.
//!
//! # 1. Tokens rise
//! Each grant of a name carries a [`Token`](crate::Token) greater than that of every earlier grant of the name: across
//! release, expiry, crash, flush, eviction, a restart without data, failover, and a restore from a snapshot.
//!
//! *Assumption:* none while the store keeps its counter. If the counter is lost or stale, the clock that mints the
//! next token must not be behind the clock that minted the last one by more than the time between the two grants, and
//! the last token must not have been ahead of its clock by more than that: a floor lifts it by up to a day, and a clock
//! that was set back leaves it ahead. `leasehold doctor` reports tokens that are ahead of a Redis server's clock.
//!
//! A client that sees a token fall refuses the grant and releases it. When a fence refuses a pass, the client raises
//! its floor for that name, so the token of the next grant is above what storage has seen.
//!
//! # 2. The holder is told in time
//! [`Lease::check`](crate::Lease::check) never succeeds at or after the deadline, `sent_at + ttl - margin`. `sent_at` is
//! read *before* the last confirmed acquire or renewal is sent, because the store may have started the term that early.
//! The [cancellation token](crate::Lease::cancellation_token) is cancelled at the deadline, or as soon as the process
//! runs again. That needs no reply from the store, and user code that blocks a runtime, a log or a metrics exporter
//! cannot delay it: the watchdog has a thread of its own.
//!
//! So a lease has ended in its holder's process before the same server can grant the name again.
//!
//! *Assumption:* the server's clock gains no more than the margin on the client's clock within one ttl. The default
//! margin is `ttl/50 + 20 ms`. A failover, a flush or an operator can grant the name earlier; then the holder is told
//! at its next renewal, about a third of the ttl later, and only a fence protects the data until then.
//!
//! # 3. Stale writes are refused
//! From the moment the new holder has raised a [`fence`](crate::fence), every write under an older pass is refused. The
//! comparison and the write are one atomic step.
//!
//! *Assumption:* every writer of the resource goes through the fence, and the storage keeps what it acknowledged.
//!
//! # 4. Nothing is left behind
//! Dropped futures, lost replies, panics and crashes leave no lease for longer than one ttl after the store last heard
//! of it, and no renewal goes on without a live [`Lease`](crate::Lease). Every public async function says under *Cancel
//! safety* what happens when its future is dropped.
