//! What happens to a lease in each fault, and what to do about each kind of error.
//!
//! # Faults
//! | fault | what happens | what protects the data |
//! |---|---|---|
//! | The holder is paused (`SIGSTOP`, a migrated virtual machine) | The lease runs out at the store, and the name can be granted again. When the process runs again, `check()` fails and the cancellation token is cancelled. | A fence. |
//! | The holder is killed | The name stays taken for the rest of the ttl. | The ttl. |
//! | The machine is suspended | With a store on a server the lease runs on, and is lost on waking if the suspension was longer. With SQLite the lease's clock stands still, as it does for every rival. | The clock that the store names. |
//! | The user's runtime is blocked or gone | Renewals go on, and holders are told of losses: the watchdog has its own thread. Dropping a lease needs no runtime. | The watchdog. |
//! | The store cannot be reached | The lease stays held until its deadline, and renewals are retried. It is at risk after two thirds of the ttl, and lost at the deadline. | The deadline. |
//! | A reply is lost | A renewal is retried. The outcome of a claim is unknown (it is *doubtful*): the client repeats its release until one ttl after the claim was last sent. | The ttl. |
//! | The store lost its data (flush, restart without data, failover to a replica that missed the grant) | The next renewal is refused, and the lease is lost with the reason `refused`. Until then another holder can have been granted the name. | A fence. Tokens still rise. |
//! | An operator evicts the holder | The next renewal is refused, with the reason `evicted`. The name stays taken for the rest of the ttl, unless the operator frees it at once. | The ttl; a fence where the name was freed at once. |
//! | The server's clock is stepped forward | The watchdog sees it in the next reply to a renewal and moves the deadlines earlier by the same amount. | A fence, until that reply. |
//! | The wall clock of the holder is changed | Nothing: leases are measured by clocks that only go forward. | |
//! | The process forks | In the child every call of the inherited client and [`Lease::pass`](crate::Lease::pass) fail with `Closed`, and drops do nothing. A copy of a lease counts there until the deadline that it had at the fork, and its `CancellationToken` is never cancelled. | The parent keeps its leases. A fence, once it has released one. |
//! | The work panics | [`run`](crate::Client::run) releases the lease and passes the panic on. Elsewhere the guard is dropped, which releases the lease. | |
//! | The watchdog's thread ends | All leases of the client are lost with the reason `watchdog_died`, and acquiring fails. | |
//!
//! # Errors
//! [`Error::kind`](crate::Error::kind) says what to do.
//!
//! | kind | meaning | what to do |
//! |---|---|---|
//! | `Invalid` | a value is outside its limits | change the call |
//! | `Unavailable` | the store cannot be reached, or cannot answer now | retry later |
//! | `TimedOut` | the limit of the call ran out first; if another holder had the name, the source says which | retry later, or give up |
//! | `Denied` | authentication failed, or a permission is missing | fix the credentials |
//! | `Misconfigured` | the store is there but cannot do its work | fix the store |
//! | `Lost` | the lease is no longer held | stop the work |
//! | `Stale` | storage has seen a newer token | stop the work, never retry |
//! | `Closed` | the client was shut down, or belongs to the parent of a forked process | build a new client |
//!
//! [`is_transient`](crate::Error::is_transient) returns true for `Unavailable` and `TimedOut`. After these the
//! outcome of the request is unknown: it may have been carried out. The client releases its own doubtful claims. For
//! your own writes, the docs of the fence say how to find the outcome.
//!
//! # Between the loss and the end of the work
//! A loss ends the renewals and cancels the holder, but the release is sent only when the guard is dropped. So a lease
//! that ends by a limit of the holder's own (`max_hold`, `progress_within`, a shutdown) keeps the name taken while the
//! work winds down, for the rest of its ttl at most. Drop the guard when the work has stopped, not before.
//!
//! # What a shutdown does
//! [`Client::shutdown`](crate::Client::shutdown) cancels the holders, waits for their guards, sends the releases, leaves
//! the store's queues and closes the store, all within its limit. Without it a guard that is dropped still releases in
//! the background, but a process that exits at once can leave its names taken for the rest of their ttls.
