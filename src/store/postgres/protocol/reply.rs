//! Parses the replies of the functions. A reply of any other form is an error; nothing is guessed.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::super::failure::Failure;
use crate::name::Name;
use crate::store::{Answer, Grant, Held, HeldState, Outcome, Release};
use crate::token::Token;

/// Returns whether the reply says that notices must be sent.
pub(in super::super) fn tells(rows: &[Row]) -> Result<bool, Failure> {
    get(only(rows)?, "tell")
}

/// Parses the reply of `acquire_1`.
pub(in super::super) fn acquired(rows: &[Row], name: &Name) -> Result<Answer, Failure> {
    let row = only(rows)?;
    let detail = || Ok::<_, Failure>(get::<Option<String>>(row, "detail")?.unwrap_or_default());
    match get(row, "outcome")? {
        "granted" => {
            let token = token(row)?.ok_or_else(|| odd(row))?;
            Ok(Answer::Granted(Grant::new(token)))
        }
        "held" => {
            let mut held = held(row, name.clone())?;
            held.ahead = number(row, "ahead")?;
            Ok(Answer::Held(Box::new(held)))
        }
        "invalid" => Err(invalid(detail()?)),
        "broken" => Err(Failure::Exhausted(detail()?)),
        _ => Err(odd(row)),
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
pub(in super::super) fn renewed(
    rows: &[Row],
    count: usize,
) -> Result<(Vec<Option<Outcome>>, Duration), Failure> {
    let row = only(rows)?;
    let letters: &str = get(row, "letters")?;
    let micros: i64 = get(row, "server_us")?;
    let outcome = |letter| match letter {
        b'y' => Ok(Some(Outcome::Renewed)),
        b'n' => Ok(Some(Outcome::Refused)),
        b'e' => Ok(Some(Outcome::Evicted)),
        b'x' => Ok(None),
        _ => Err(odd(row)),
    };
    let outcomes: Vec<_> = letters.bytes().map(outcome).collect::<Result<_, _>>()?;
    match u64::try_from(micros) {
        Ok(micros) if outcomes.len() == count => Ok((outcomes, Duration::from_micros(micros))),
        _ => Err(odd(row)),
    }
}

/// Parses the reply of `release_1`.
pub(in super::super) fn released(rows: &[Row]) -> Result<Release, Failure> {
    outcome(rows, "released").map(|was_held| match was_held {
        true => Release::Released,
        false => Release::NotHeld,
    })
}

/// Parses the reply of `evict_1`: whether any holder had the name.
pub(in super::super) fn evicted(rows: &[Row]) -> Result<bool, Failure> {
    outcome(rows, "evicted")
}

/// Returns whether the outcome is this one, and not that the name was not held.
fn outcome(rows: &[Row], done: &str) -> Result<bool, Failure> {
    let row = only(rows)?;
    match get(row, "outcome")? {
        "not_held" => Ok(false),
        outcome if outcome == done => Ok(true),
        _ => Err(odd(row)),
    }
}

/// Parses the reply of `inspect_1`.
pub(in super::super) fn inspected(rows: &[Row], name: &Name) -> Result<Option<Held>, Failure> {
    match rows {
        [] => Ok(None),
        rows => held(only(rows)?, name.clone()).map(Some),
    }
}

/// Parses the reply of `list_1`.
pub(in super::super) fn listed(rows: &[Row]) -> Result<Vec<Held>, Failure> {
    let read = |row| {
        let name = Name::new(get::<&str>(row, "name")?).map_err(|_| odd(row))?;
        held(row, name)
    };
    rows.iter().map(read).collect()
}

/// Parses the reply of `await_1` to `count` names: their channels; none for a name whose row is locked.
pub(in super::super) fn channels(
    rows: &[Row],
    count: usize,
) -> Result<Vec<Option<String>>, Failure> {
    let row = only(rows)?;
    let channels: Vec<Option<String>> = get(row, "await_1")?;
    if channels.len() == count {
        Ok(channels)
    } else {
        Err(odd(row))
    }
}

/// Parses the reply of `survey_1`.
pub(in super::super) fn surveyed(rows: &[Row]) -> Result<Map<String, Value>, Failure> {
    let row = only(rows)?;
    serde_json::from_str(get(row, "survey_1")?).map_err(|_| odd(row))
}

/// Parses the facts about a taken name. A value that cannot be parsed is left out.
fn held(row: &Row, name: Name) -> Result<Held, Failure> {
    let state = match get(row, "state")? {
        0_i16 => HeldState::Leased,
        2 => HeldState::Kept,
        3 => HeldState::Offered,
        5 => HeldState::KeepOut,
        // A state of a later version is taken, and no holder can renew it.
        _ => HeldState::Evicted,
    };
    let mut held = Held::new(name);
    held.remaining = number(row, "left_us")?.map(Duration::from_micros);
    held.state = state;
    // Only `inspect_1` and `list_1` count the waiting clients.
    held.waiting = number(row, "waiting").unwrap_or_default();
    if matches!(state, HeldState::Offered | HeldState::KeepOut) {
        return Ok(held);
    }
    let since = number(row, "since_us")?.map(Duration::from_micros);
    held.by = get::<&str>(row, "holder")?.parse().ok();
    held.token = token(row)?;
    held.info = serde_json::from_str(get(row, "info")?).unwrap_or_default();
    held.since = since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
    Ok(held)
}

fn token(row: &Row) -> Result<Option<Token>, Failure> {
    let token = number(row, "token")?;
    Ok(token.and_then(|token: u64| Token::new(token).ok()))
}

/// Returns a number, unless it is null or below zero.
fn number<T: TryFrom<i64>>(row: &Row, column: &str) -> Result<Option<T>, Failure> {
    let number: Option<i64> = get(row, column)?;
    Ok(number.and_then(|number| number.try_into().ok()))
}

fn only(rows: &[Row]) -> Result<&Row, Failure> {
    match rows {
        [row] => Ok(row),
        rows => Err(Failure::Odd(format!("rows={}", rows.len()))),
    }
}

fn get<'a, T: FromSql<'a>>(row: &'a Row, column: &str) -> Result<T, Failure> {
    row.try_get(column)
        .map_err(|_| Failure::Odd(format!("column={column}")))
}

fn odd(row: &Row) -> Failure {
    Failure::Odd(format!("columns={}", row.len()))
}
