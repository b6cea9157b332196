//! A duration as it is typed in arguments and in the configuration file.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::exit::Failure;

/// A duration, and how it was typed.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span {
    pub time: Duration,
    pub typed: String,
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let typed = text.to_owned();
        duration(text).map(|time| Self { time, typed })
    }
}

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(typed: String) -> Result<Self, String> {
        let span = typed.parse();
        span.map_err(|error| format!("{typed:?}: {error}"))
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        span.typed
    }
}

/// A duration as programs read it.
pub fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Repeats durations as they were typed, wherever the message has them after the word for them.
pub fn as_typed(mut failure: Failure, spans: &[(&str, Option<&Span>)]) -> Failure {
    for (what, span) in spans {
        let Some(Span { time, typed }) = span else {
            continue;
        };
        let shown = format!("{what} {time:?}");
        failure.message = failure.message.replace(&shown, &format!("{what} {typed}"));
    }
    failure
}

/// Parses a duration such as `500ms` or `5min`.
fn duration(text: &str) -> Result<Duration, String> {
    const EXPECTED: &str = "expected a duration such as 500ms, 30s or 5min";
    if text.starts_with('-') {
        return Err(format!("it is negative; {EXPECTED}"));
    }
    if text.contains('M') {
        return Err(format!("M would be months; {EXPECTED}"));
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; {EXPECTED}"))
}

#[cfg(test)]
mod tests {
    use leasehold::clock::Timing;

    use super::*;

    #[test]
    fn a_refused_duration_is_repeated_as_it_was_typed_and_no_other() {
        let [ttl, margin]: [Span; 2] =
            ["5000ms", "25000ms"].map(|text| text.parse().expect("a duration"));
        let error = Timing::new(ttl.time, Some(margin.time)).expect_err("too long a margin");
        let spans = [("ttl", Some(&ttl)), ("margin", Some(&margin))];
        let message = as_typed(error.into(), &spans).message;
        assert!(message.starts_with("margin 25000ms refused"), "{message}");
        assert!(message.ends_with("of the ttl 5000ms"), "{message}");
    }
}
