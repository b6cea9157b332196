//! Shows a user who waits at a terminal the holder of the name, the start of its lease, and the time left.
//!
//! The line is printed here and not by indicatif: it goes through the one queue that never waits for a terminal, and
//! has no colour that `NO_COLOR` would have to turn off.

use std::convert::Infallible;
use std::io::IsTerminal;
use std::time::Duration;

use leasehold::Client;
use leasehold::clock::{Clock, Monotonic};

use super::plan::Plan;
use crate::say;
use crate::status::facts;

/// How often the line changes: the time left is shown to the second.
const REFRESH: Duration = Duration::from_secs(1);

/// Goes back to the first column and clears the line.
const WIPE: &str = "\r\x1b[K";

/// Updates one line until the future is dropped. Prints nothing if standard error is not a terminal.
pub async fn show(client: &Client, plan: &Plan) -> Infallible {
    if !std::io::stderr().is_terminal() || !say::is_for_people() {
        return std::future::pending().await;
    }
    let began = Monotonic.now();
    let _line = StatusLine;
    loop {
        Monotonic.sleep_until(Monotonic.now().after(REFRESH)).await;
        let held = client.store().inspect(&plan.name, REFRESH).await;
        let waited = Monotonic.now().since(began).as_secs();
        let text = match held {
            Ok(Some(held)) => format!("held by {}", facts(&held)),
            Ok(None) => "free in a moment".into(),
            Err(error) => error.to_string(),
        };
        say::raw(format!("{WIPE}leasehold: waiting for {waited}s: {text}"));
    }
}

/// The line on the terminal, which is cleared at the end.
struct StatusLine;

impl Drop for StatusLine {
    fn drop(&mut self) {
        say::raw(WIPE.into());
    }
}
