//! The library's log on standard error, printed if `LEASEHOLD_LOG` or `RUST_LOG` is set.
//!
//! The lines take the way of all messages, so a reader that stops reading blocks nothing.

use std::io;

use tracing_subscriber::EnvFilter;

use crate::exit::Failure;
use crate::say;

/// Filters as `tracing-subscriber` does, such as `leasehold=debug`.
const VARIABLES: [&str; 2] = ["LEASEHOLD_LOG", "RUST_LOG"];

/// Set to `json` for one object a line.
const FORMAT: &str = "LEASEHOLD_LOG_FORMAT";

/// Starts the log if one of the variables is set.
pub fn start() -> Result<(), Failure> {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let Some(filter) = VARIABLES.into_iter().find_map(set) else {
        return Ok(());
    };
    let filter = EnvFilter::try_new(&filter)
        .map_err(|error| Failure::usage(format!("log filter {filter:?} refused: {error}")))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(|| Lines);
    match set(FORMAT).as_deref() {
        Some("json") => log.json().init(),
        None | Some("text") => log.init(),
        Some(other) => {
            return Err(Failure::usage(format!(
                "{FORMAT} {other:?} refused: expected text or json"
            )));
        }
    }
    Ok(())
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
