//! Tokens that are ahead of the clock: while the server remembers them, nothing is wrong; without them, tokens would fall.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, Value};

use super::super::REPLACE_EVERY;
use super::super::connection::budget::Budget;
use super::super::connection::server::Server;
use super::super::failure::Failure;
use super::super::fleet::{Call, Fleet};
use super::super::protocol::keys::Keys;
use super::super::protocol::reply;
use super::super::protocol::slot::SLOTS;
use super::allowed;
use crate::clock;
use crate::store::check::{Check, found};
use crate::store::{Hazard, Severity};

/// How far a token may be ahead before it is reported: so much do clocks differ between which a name moves.
const AHEAD: Duration = Duration::from_secs(60);
/// How many marks one command reads.
const AT_ONCE: usize = 1_024;

/// Reads the marks of all slots.
pub(super) async fn look(
    fleet: &Fleet,
    keys: &Keys,
    servers: &[Arc<Server>],
    budget: Budget,
) -> Result<Option<Hazard>, Failure> {
    let marks = (0..SLOTS).map(|slot| (slot, keys.mark_of(slot)));
    let mut highest = 0;
    if let Some(many) = fleet.cluster() {
        let calls = marks.map(|(slot, mark)| Call {
            slot,
            is_write: false,
            command: get("GET", &[mark]),
        });
        let calls: Vec<_> = calls.collect();
        // What a node does not tell is left out.
        let (replies, _) = many.run_each(&calls, budget, REPLACE_EVERY).await;
        highest = replies.iter().flatten().map(token_in).max().unwrap_or(0);
    } else {
        let marks: Vec<_> = marks.map(|(_, mark)| mark).collect();
        let [server] = servers else {
            return Ok(None);
        };
        for marks in marks.chunks(AT_ONCE) {
            let read = get("MGET", marks);
            let told = server
                .connections
                .request(&read, budget, REPLACE_EVERY)
                .await;
            let Some(told) = allowed(told)? else {
                return Ok(None);
            };
            highest = reply::items(&told)?
                .iter()
                .map(token_in)
                .fold(highest, u64::max);
        }
    }
    let ahead = Duration::from_micros(highest.saturating_sub(clock::wall_clock_us()));
    Ok(CHECK.judge(&ahead))
}

fn get(word: &str, marks: &[String]) -> Cmd {
    let mut read = Cmd::new();
    read.arg(word).arg(marks);
    read
}

/// The token in a mark; 0 if there is none.
fn token_in(mark: &Value) -> u64 {
    reply::number(mark).unwrap_or(0)
}

/// Judges how far the highest token is ahead of this machine's clock.
const CHECK: Check<Duration> = Check::new(
    Severity::Warning,
    "redis-tokens-ahead",
    |ahead| {
        let minutes = ahead.as_secs().div_ceil(60);
        let shown = match minutes {
            0..120 => format!("{minutes} min"),
            _ => format!("{} h", minutes.div_ceil(60)),
        };
        let what = format!("the highest token is {shown} ahead of this machine's clock");
        found(*ahead > AHEAD, what)
    },
    "if the servers lose it, later tokens are lower, and fenced storage refuses their holders until the clock has come \
     as far",
    "Keep the data until then, or copy the marks before it is removed",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_follow_the_clock_are_no_hazard() {
        const MINUTE: Duration = Duration::from_secs(60);
        assert_eq!(CHECK.judge(&Duration::ZERO), None);
        assert_eq!(CHECK.judge(&MINUTE), None);
        let told = |ahead| CHECK.judge(&ahead).expect("told").to_string();
        assert!(told(90 * MINUTE).contains("90 min ahead"));
        assert!(told(48 * 60 * MINUTE).contains("48 h ahead"));
    }
}
