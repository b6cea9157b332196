//! The effects of a server's set-up on claims: whether it has room for them, and what it would grant in another role.

use std::time::Duration;

use super::{KnownAs, ServerFacts};
use crate::store::Severity::Warning;
use crate::store::kit::check::{Check, Weakness, found};

/// Maximum lead of a replica's clock over ours that is not reported: the travel time of an answer may add this much.
const LEAST_AHEAD: Duration = Duration::from_millis(100);

/// The connections of a client: for requests, for the watchdog, and for notices.
const CONNECTIONS_OF_A_CLIENT: u64 = 3;

/// The faults of this sort.
pub(super) const CHECKS: &[Check<ServerFacts>] = &[
    Check::new(
        Warning,
        "redis-few-connections",
        |facts| {
            let most: u64 = facts.setting("maxclients")?.parse().ok()?;
            let used: u64 = facts.info("connected_clients")?.parse().ok()?;
            let room = most.saturating_sub(used) / CONNECTIONS_OF_A_CLIENT;
            let what = format!(
                "maxclients is {most}, and {used} connections are in use: there is room for {room} more clients, with \
                 {CONNECTIONS_OF_A_CLIENT} connections each"
            );
            found(used.saturating_mul(4) >= most.saturating_mul(3), what)
        },
        "a server that is full lets no holder in again whose connection broke, and its leases are lost by their deadline",
        "Raise maxclients, or run fewer clients",
    ),
    Check::new(
        Warning,
        "redis-writable-replica",
        |facts| {
            let takes_writes = facts.setting("replica-read-only") == Some("no");
            found(takes_writes, "replica-read-only is no")
        },
        "once it is a replica it goes on granting names to clients that are connected to it, which its master grants too",
        "Set it to yes",
    ),
    Check::new(
        Warning,
        "redis-replica-clock-ahead",
        |facts| {
            let ahead = facts.clock_us.saturating_sub(facts.now_us);
            let ahead = Duration::from_micros(ahead);
            let is_awaited = facts.known_as == KnownAs::Replica && facts.awaited > 0;
            let what = format!("a replica's clock is {ahead:.1?} ahead of this machine's");
            // The default margin is a fiftieth of the ttl and 20 ms.
            let outlived = ahead.saturating_sub(Duration::from_millis(20)) * 50;
            let is_ahead = ahead > LEAST_AHEAD;
            (is_awaited && is_ahead).then(|| Weakness(what.into(), Some(outlived)))
        },
        "is safe with acknowledged_by: promoted, the replica ends it by its own clock, and grants the held name again",
        "Run a time daemon on the master and its replicas",
    ),
    Check::new(
        Warning,
        "redis-alone",
        |facts| {
            let but = match facts.replicas() {
                0 => "",
                _ => ", and it has replicas",
            };
            let what = format!("the store says alone=yes of this server{but}");
            found(facts.is_alone, what)
        },
        "after a restart it grants at once what a replica that was promoted meanwhile has granted",
        "Leave it out, unless the server never has a replica and no other server takes its address",
    ),
];
