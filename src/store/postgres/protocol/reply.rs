//! Parses the replies of the functions. A reply of any other form is an error; nothing is guessed.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};
use tokio_postgres::Row;

use super::super::failure::Failure;
use super::results::{Results, value};
use crate::name::Name;
use crate::store::{Answer, Grant, Held, HeldState, Outcome, Place, Release};
use crate::token::Token;

// The results of the functions, in their order there.
const ACQUIRED: &[&str] = &[
    "outcome", "token", "state", "holder", "info", "since_us", "left_us", "height", "ahead",
    "detail",
];
const RENEWED: &[&str] = &["letters", "server_us"];
/// Of `release_1` and `evict_1`.
const FREED: &[&str] = &["outcome", "tell"];
const LISTED: &[&str] = &[
    "name", "token", "state", "holder", "info", "since_us", "left_us", "waiting",
];
const INSPECTED: &[&str] = LISTED.split_first().expect("the name").1;

/// Parses the reply of `acquire_1`.
pub(crate) fn acquired(rows: &[Row], name: &Name) -> Result<Answer, Failure> {
    let results = Results::new(only(rows)?, ACQUIRED)?;
    let detail = || Ok::<_, Failure>(results.get::<Option<String>>("detail")?.unwrap_or_default());
    match results.get("outcome")? {
        "granted" => {
            let token = token(&results)?.ok_or_else(|| results.odd())?;
            Ok(Answer::Granted(Grant::new(token)))
        }
        "held" => {
            let mut held = held(&results, name.clone())?;
            let place = number(&results, "height")?.zip(number(&results, "ahead")?);
            held.place = place.map(|(height, ahead)| Place::new(height, ahead));
            Ok(Answer::Held(Box::new(held)))
        }
        "invalid" => Err(invalid(detail()?)),
        "broken" => Err(Failure::Exhausted(detail()?)),
        _ => Err(results.odd()),
    }
}

/// Distinguishes the one refusal that a store remembers.
fn invalid(detail: String) -> Failure {
    let ttls = detail.strip_prefix("ttl_ms=");
    let ttls = ttls.and_then(|rest| rest.split_once(" max_ttl_ms="));
    let ttls = ttls.and_then(|(ttl, most)| Some((ttl.parse().ok()?, most.parse().ok()?)));
    match ttls {
        Some((ttl_ms, max_ttl_ms)) => Failure::TooLong { ttl_ms, max_ttl_ms },
        None => Failure::Argument(detail),
    }
}

/// Parses the reply of `renew_1` to `count` renewals: the outcomes in their order, and the server's clock, since 1970.
/// `None`: another transaction has the row locked.
pub(crate) fn renewed(
    rows: &[Row],
    count: usize,
) -> Result<(Vec<Option<Outcome>>, Duration), Failure> {
    let results = Results::new(only(rows)?, RENEWED)?;
    let letters: &str = results.get("letters")?;
    let micros: i64 = results.get("server_us")?;
    let outcome = |letter| match letter {
        b'y' => Ok(Some(Outcome::Renewed)),
        b'n' => Ok(Some(Outcome::Refused)),
        b'e' => Ok(Some(Outcome::Evicted)),
        b'x' => Ok(None),
        _ => Err(results.odd()),
    };
    let outcomes: Vec<_> = letters.bytes().map(outcome).collect::<Result<_, _>>()?;
    match u64::try_from(micros) {
        Ok(micros) if outcomes.len() == count => Ok((outcomes, Duration::from_micros(micros))),
        _ => Err(results.odd()),
    }
}

/// Parses the reply of `release_1`. With the answer, whether notices must be sent.
pub(crate) fn released(rows: &[Row]) -> Result<(Release, bool), Failure> {
    let (was_held, is_awaited) = freed(rows, "released")?;
    match was_held {
        true => Ok((Release::Released, is_awaited)),
        false => Ok((Release::NotHeld, is_awaited)),
    }
}

/// Parses the reply of `evict_1`: whether any holder had the name, and whether notices must be sent.
pub(crate) fn evicted(rows: &[Row]) -> Result<(bool, bool), Failure> {
    freed(rows, "evicted")
}

/// Returns whether the outcome is this one, and not that the name was not held, and whether notices must be sent.
fn freed(rows: &[Row], done: &str) -> Result<(bool, bool), Failure> {
    let results = Results::new(only(rows)?, FREED)?;
    let was_held = match results.get("outcome")? {
        "not_held" => false,
        outcome if outcome == done => true,
        _ => return Err(results.odd()),
    };
    Ok((was_held, results.get("tell")?))
}

/// Parses the reply of `inspect_1`.
pub(crate) fn inspected(rows: &[Row], name: &Name) -> Result<Option<Held>, Failure> {
    match rows {
        [] => Ok(None),
        rows => held(&Results::new(only(rows)?, INSPECTED)?, name.clone()).map(Some),
    }
}

/// Parses the reply of `list_1`.
pub(crate) fn listed(rows: &[Row]) -> Result<Vec<Held>, Failure> {
    let read = |row| {
        let results = Results::new(row, LISTED)?;
        let name = Name::new(results.get::<&str>("name")?).map_err(|_| results.odd())?;
        held(&results, name)
    };
    rows.iter().map(read).collect()
}

/// Parses the reply of `await_1` to `count` names: their channels; none for a name whose row is locked.
pub(crate) fn channels(rows: &[Row], count: usize) -> Result<Vec<Option<String>>, Failure> {
    let channels: Vec<Option<String>> = value(only(rows)?)?;
    if channels.len() == count {
        Ok(channels)
    } else {
        Err(Failure::Odd(format!("channels={}", channels.len())))
    }
}

/// Parses the reply of `survey_1`.
pub(crate) fn surveyed(rows: &[Row]) -> Result<Map<String, Value>, Failure> {
    let facts: &str = value(only(rows)?)?;
    serde_json::from_str(facts).map_err(|error| Failure::Odd(error.to_string()))
}

/// Parses the facts about a taken name. A value that cannot be parsed is left out.
fn held(results: &Results<'_>, name: Name) -> Result<Held, Failure> {
    let state = match results.get("state")? {
        0_i16 => HeldState::Leased,
        2 => HeldState::Kept,
        5 => HeldState::KeepOut,
        // A state of another version is taken, and no holder can renew it.
        _ => HeldState::Evicted,
    };
    let mut held = Held::new(name);
    held.remaining = number(results, "left_us")?.map(Duration::from_micros);
    held.state = state;
    // Only `inspect_1` and `list_1` count the waiting clients.
    held.waiting = number(results, "waiting").unwrap_or_default();
    if state == HeldState::KeepOut {
        return Ok(held);
    }
    let since = number(results, "since_us")?.map(Duration::from_micros);
    held.by = results.get::<&str>("holder")?.parse().ok();
    held.token = token(results)?;
    held.info = serde_json::from_str(results.get("info")?).unwrap_or_default();
    held.since = since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
    Ok(held)
}

fn token(results: &Results<'_>) -> Result<Option<Token>, Failure> {
    let token = number(results, "token")?;
    Ok(token.and_then(|token: u64| Token::new(token).ok()))
}

/// Returns a number, unless it is null or below zero.
fn number<T: TryFrom<i64>>(results: &Results<'_>, column: &str) -> Result<Option<T>, Failure> {
    let number: Option<i64> = results.get(column)?;
    Ok(number.and_then(|number| number.try_into().ok()))
}

fn only(rows: &[Row]) -> Result<&Row, Failure> {
    match rows {
        [row] => Ok(row),
        rows => Err(Failure::Odd(format!("rows={}", rows.len()))),
    }
}
