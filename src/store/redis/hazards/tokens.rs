//! Tokens that are ahead of the clock: while the server remembers them, nothing is wrong; without them, tokens would
//! fall.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::Pipeline;

use super::super::connection::server::Server;
use super::super::failure::Failure;
use super::super::protocol::keys::Keys;
use super::super::protocol::reply;
use super::super::protocol::slot::SLOTS;
use crate::clock;
use crate::store::kit::budget::Budget;
use crate::store::kit::check::{Check, found, judge};
use crate::store::{Hazard, Severity};

/// Lead above which a token is reported: clocks of servers between which a name moves may differ by this much.
const AHEAD: Duration = Duration::from_secs(60);
/// Number of marks that one request reads: about a millisecond of the server's time.
const AT_ONCE: usize = 1_024;

/// The marks of all slots, summed up.
#[derive(Debug, Default)]
struct MarkFacts {
    /// Lead of the highest token, if it is too large.
    ahead: Option<Duration>,
    /// Why a mark could not be read.
    refusal: Option<Failure>,
}

/// Reads the marks of all slots from each server. A server answers for a mark of another one with a redirection.
pub(super) async fn find(
    keys: &Keys,
    servers: &[Arc<Server>],
    budget: Budget,
) -> Result<Vec<Hazard>, Failure> {
    let slots: Vec<_> = (0..SLOTS).collect();
    let (mut highest, mut facts) = (0, MarkFacts::default());
    for server in servers {
        for slots in slots.chunks(AT_ONCE) {
            let mut reads = Pipeline::with_capacity(slots.len());
            for slot in slots {
                reads.cmd("GET").arg(keys.mark_of(*slot).to_string());
            }
            for answer in server.ask_all(&reads, None, budget).await? {
                match answer {
                    Ok(mark) => highest = highest.max(reply::number(&mark).unwrap_or(0)),
                    Err(failure) if failure.is_refusal() => facts.refusal = Some(failure),
                    Err(_) => {}
                }
            }
        }
    }
    facts.ahead = lead(highest, clock::wall_clock_us());
    Ok(judge(CHECKS, &facts))
}

/// Returns the lead of the highest token over the clock, if it has to be reported.
pub(crate) fn lead(highest: u64, now_us: u64) -> Option<Duration> {
    let ahead = Duration::from_micros(highest.saturating_sub(now_us));
    (ahead > AHEAD).then_some(ahead)
}

/// Faults in the tokens that the servers remember.
const CHECKS: &[Check<MarkFacts>] = &[
    Check::new(
        Severity::Warning,
        "redis-tokens-ahead",
        |facts| {
            let minutes = facts.ahead?.as_secs().div_ceil(60);
            let ahead = humantime::format_duration(Duration::from_secs(minutes * 60));
            let what = format!("the highest token is {ahead} ahead of this machine's clock");
            found(true, what)
        },
        "if the servers lose it, later tokens are lower, and fenced storage refuses their holders until the clock has \
         come as far",
        "Keep the data until then, or copy the marks before it is removed",
    ),
    Check::new(
        Severity::Unknown,
        "redis-tokens-refused",
        |facts| {
            let refusal = facts.refusal.as_ref()?;
            found(
                true,
                format!("a mark of the highest token cannot be read: {refusal}"),
            )
        },
        "tokens that are ahead of the clock are not seen",
        "Grant `+get` on all keys of the prefix, or read the marks by hand",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn told(ahead: Duration) -> String {
        let highest = u64::try_from(ahead.as_micros()).expect("a token");
        let facts = MarkFacts {
            ahead: lead(highest, 0),
            refusal: None,
        };
        let hazards = judge(CHECKS, &facts).into_iter();
        hazards.map(|hazard| hazard.to_string()).collect()
    }

    #[test]
    fn tokens_that_follow_the_clock_are_no_hazard() {
        const MINUTE: Duration = Duration::from_secs(60);
        assert_eq!(told(Duration::ZERO), "");
        assert_eq!(told(MINUTE), "");
        assert!(told(90 * MINUTE).contains("1h 30m ahead"));
        assert!(told(48 * 60 * MINUTE).contains("2days ahead"));
    }
}
