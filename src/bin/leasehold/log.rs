//! The library's log on standard error, printed if `LEASEHOLD_LOG` or `RUST_LOG` is set.
//!
//! The lines take the way of all messages, so a reader that stops reading blocks nothing.

use std::io;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

use crate::exit::Failure;
use crate::say;

/// Levels as `tracing-subscriber` writes them: `debug`, or `leasehold=debug,warn`.
const VARIABLES: [&str; 2] = ["LEASEHOLD_LOG", "RUST_LOG"];

/// `json` for one object per line.
const FORMAT: &str = "LEASEHOLD_LOG_FORMAT";

/// Starts the log if one of the variables is set.
pub fn start() -> Result<(), Failure> {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let Some(filter) = VARIABLES.into_iter().find_map(set) else {
        return Ok(());
    };
    let levels = levels(&filter)?;
    let log = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(|| Lines);
    match set(FORMAT).as_deref() {
        Some("json") => log.json().finish().with(levels).init(),
        None | Some("text") => log.finish().with(levels).init(),
        Some(other) => {
            return Err(Failure::usage(format!(
                "{FORMAT} {other:?} refused: expected text or json"
            )));
        }
    }
    Ok(())
}

/// Parses the levels. Filters by span and field are refused: the log of the library has no spans, and such a filter
/// would bring a library of regular expressions.
fn levels(filter: &str) -> Result<Targets, Failure> {
    let refused = |why: &str| {
        Failure::usage(format!(
            "log filter {filter:?} refused: {why}; expected levels such as debug or leasehold=debug,warn"
        ))
    };
    if filter.contains(['[', '{']) {
        return Err(refused("it names a span or a field"));
    }
    filter
        .parse()
        .map_err(|error: tracing_subscriber::filter::ParseError| refused(&error.to_string()))
}

/// Writes the log, one line at a time.
struct Lines;

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        say::raw(String::from_utf8_lossy(bytes).into_owned());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
