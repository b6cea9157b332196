//! What a person who waits at a terminal sees: who holds the name, since when, and for how long yet.
//!
//! A line of our own and not indicatif: it goes through the one queue that never waits for a terminal, and has no colour that
//! `NO_COLOR` would have to switch off.

use std::convert::Infallible;
use std::io::IsTerminal;
use std::time::Duration;

use leasehold::Client;
use leasehold::clock::{Clock, Monotonic};
use leasehold::store::Held;

use super::plan::Plan;
use crate::say;
use crate::status::rfc3339;

/// How often the line changes: the time left is shown to the second.
const REFRESH: Duration = Duration::from_secs(1);

/// Back to the first column, and what stood there wiped.
const WIPE: &str = "\r\x1b[K";

/// Keeps one line up to date until it is dropped; for ever without a word where nobody watches.
pub async fn show(client: &Client, plan: &Plan) -> Infallible {
    if !std::io::stderr().is_terminal() || !say::is_for_people() {
        return std::future::pending().await;
    }
    let began = Monotonic.now();
    let _line = Line;
    loop {
        Monotonic.sleep_until(Monotonic.now().after(REFRESH)).await;
        let held = client.store().inspect(&plan.name, REFRESH).await;
        let waited = Monotonic.now().since(began).as_secs();
        let text = match held {
            Ok(Some(held)) => describe(&held),
            Ok(None) => "free in a moment".into(),
            Err(error) => error.to_string(),
        };
        say::raw(format!("{WIPE}leasehold: waiting for {waited}s: {text}"));
    }
}

fn describe(held: &Held) -> String {
    match held.since.and_then(rfc3339) {
        Some(since) => format!("{held} since={since}"),
        None => held.to_string(),
    }
}

/// The line, wiped at the end.
struct Line;

impl Drop for Line {
    fn drop(&mut self) {
        say::raw(WIPE.into());
    }
}
