//! A duration as it is typed in arguments and in the configuration file.

use std::time::Duration;

use serde::Deserialize;

/// A duration, and how it was typed.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct Span {
    pub time: Duration,
    pub typed: String,
}

/// The one parser of durations in arguments.
pub const SPAN: fn(&str) -> Result<Span, String> = |text| {
    let typed = text.to_owned();
    duration(text).map(|time| Span { time, typed })
};

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(typed: String) -> Result<Self, String> {
        SPAN(&typed).map_err(|error| format!("{typed:?}: {error}"))
    }
}

/// Parses a duration such as `500ms` or `5min`.
pub fn duration(text: &str) -> Result<Duration, String> {
    const EXPECTED: &str = "expected a duration such as 500ms, 30s or 5min";
    if text.starts_with('-') {
        return Err(format!("it is negative; {EXPECTED}"));
    }
    if text.contains('M') {
        return Err(format!("M would be months; {EXPECTED}"));
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; {EXPECTED}"))
}
