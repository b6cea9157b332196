//! Shows what a waiting command waits for: one line on a terminal, otherwise a message now and then; and, in either
//! case, outages of the store.
//!
//! The line is printed here and not by a library: it goes through the one queue that never waits for a terminal, and
//! has no colour that `NO_COLOR` would have to turn off.

use std::cell::Cell;
use std::convert::Infallible;
use std::time::Duration;

use leasehold::Error;
use leasehold::clock::{Clock, Instant, Monotonic};
use leasehold::store::Held;
use tokio::sync::watch::Receiver;

use crate::export::JobMetrics;
use crate::row::{in_words, span};
use crate::run::service::Service;
use crate::say;
use crate::table::cut_end;

/// Interval between updates of the line.
const REFRESH: Duration = Duration::from_secs(1);

/// Silence of the store after which it is reported, and the interval between later reports.
const OUTAGE: Duration = Duration::from_secs(5);
const OUTAGE_AGAIN: Duration = Duration::from_secs(60);

/// Interval between messages of a run without a terminal that it still waits.
const STILL: Duration = Duration::from_secs(300);

/// Goes back to the first column and clears the line.
const WIPE: &str = "\r\x1b[K";

/// The last result of a waiting command's requests.
pub type Report = Option<Result<Held, Error>>;

/// Where a wait is announced, in addition to the messages.
#[derive(Default)]
pub struct Outputs<'a> {
    pub service: Option<&'a Service>,
    pub metrics: Option<&'a JobMetrics>,
    /// An outage was reported, and not its end.
    pub is_outage: Cell<bool>,
}

/// Announces the wait until the future is dropped.
pub async fn announce(
    name: &str,
    held: Held,
    mut reports: Receiver<Report>,
    outputs: &Outputs<'_>,
) -> Infallible {
    let mut wait = Wait::new(name, held, Monotonic.now());
    let has_line = say::is_for_people() && say::width().is_some();
    let _line = has_line.then(|| StatusLine);
    if !has_line {
        say::note("waiting", wait.beginning());
    }
    loop {
        let now = Monotonic.now();
        if let Some(message) = wait.due(now, !has_line) {
            outputs.tell(&message, has_line);
        }
        if has_line {
            let width = say::width().unwrap_or(80).saturating_sub(1);
            say::raw(WIPE.to_owned() + &cut_end(&wait.line(now), width));
        }
        tokio::select! {
            Ok(()) = reports.changed() => {
                let report = reports.borrow_and_update().clone();
                let message = report.and_then(|report| wait.reported(report, Monotonic.now()));
                if let Some(message) = message {
                    outputs.tell(&message, has_line);
                }
            }
            () = Monotonic.sleep_until(now.after(REFRESH)) => {}
        }
    }
}

impl Outputs<'_> {
    fn tell(&self, message: &Message, has_line: bool) {
        if has_line {
            say::raw(WIPE.into());
        }
        let (is_outage, text) = match message {
            Message::Outage(text) => (true, text),
            Message::Back(text) => (false, text),
            Message::Still(text) => return say::note("waiting", text),
        };
        self.is_outage.set(is_outage);
        if let Some(service) = self.service {
            service.status(text);
        }
        if let Some(metrics) = self.metrics {
            metrics.waits(is_outage);
        }
        // Last: who reads it finds the metrics true.
        match is_outage {
            true => say::fault("store_unreachable", text),
            false => say::fault("store_back", text),
        }
    }

    /// Announces the end of an outage, if the wait ended during one.
    pub fn ended(&self) {
        if self.is_outage.take() {
            say::fault("store_back", "the store is back");
        }
    }
}

/// A message to print.
#[derive(Debug, PartialEq, Eq)]
enum Message {
    Outage(String),
    Back(String),
    Still(String),
}

/// A wait, as far as it is known. Pure: `now` is an argument.
struct Wait {
    name: String,
    began: Instant,
    held: Held,
    seen_at: Instant,
    outage: Option<Outage>,
    still_at: Instant,
}

struct Outage {
    began: Instant,
    cause: String,
    said_at: Option<Instant>,
}

impl Wait {
    fn new(name: &str, held: Held, now: Instant) -> Self {
        Self {
            name: name.into(),
            began: now,
            held,
            seen_at: now,
            outage: None,
            still_at: now.after(STILL),
        }
    }

    /// Takes in a report. Returns the message about it.
    fn reported(&mut self, report: Result<Held, Error>, now: Instant) -> Option<Message> {
        match report {
            Ok(held) => {
                (self.held, self.seen_at) = (held, now);
                let outage = self.outage.take()?;
                let (lasted, name) = (span(now.since(outage.began)), &self.name);
                outage.said_at.map(|_| {
                    let text = format!("the store is back after {lasted}: waiting for {name}");
                    Message::Back(text)
                })
            }
            Err(error) => {
                let outage = self.outage.get_or_insert_with(|| Outage {
                    began: now,
                    cause: String::new(),
                    said_at: None,
                });
                outage.cause = format!("{error:#}");
                None
            }
        }
    }

    /// Returns the message that is due now, once.
    fn due(&mut self, now: Instant, with_still: bool) -> Option<Message> {
        if let Some(outage) = &mut self.outage {
            let due = match outage.said_at {
                Some(said) => said.after(OUTAGE_AGAIN),
                None => outage.began.after(OUTAGE),
            };
            if now >= due {
                outage.said_at = Some(now);
                let (name, why) = (&self.name, outage.text(now));
                return Some(Message::Outage(format!("still waiting for {name}: {why}")));
            }
        } else if with_still && now >= self.still_at {
            self.still_at = now.after(STILL);
            return Some(Message::Still(self.line(now)));
        }
        None
    }

    fn beginning(&self) -> String {
        format!("waiting for {}: {}", self.name, in_words(&self.held))
    }

    fn line(&self, now: Instant) -> String {
        let waited = span(now.since(self.began));
        let why = match &self.outage {
            Some(outage) => outage.text(now),
            None => {
                let mut held = self.held.clone();
                let passed = now.since(self.seen_at);
                held.remaining = held.remaining.map(|left| left.saturating_sub(passed));
                in_words(&held)
            }
        };
        format!("waiting {waited} for {}: {why}", self.name)
    }
}

impl Outage {
    fn text(&self, now: Instant) -> String {
        let lasts = span(now.since(self.began));
        format!("the store cannot be reached for {lasts}: {}", self.cause)
    }
}

/// The line on the terminal, which is cleared at the end.
struct StatusLine;

impl Drop for StatusLine {
    fn drop(&mut self) {
        say::raw(WIPE.into());
    }
}

#[cfg(test)]
mod tests {
    use leasehold::{ErrorKind, Name};

    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn held() -> Held {
        let mut held = Held::new(Name::new("x").expect("valid"));
        held.info.host = "vm".into();
        held.info.pid = 7;
        held
    }

    fn gone() -> Result<Held, Error> {
        Err(Error::new(ErrorKind::Unavailable, "connection refused"))
    }

    #[test]
    fn an_outage_is_reported_after_five_seconds_then_once_a_minute_and_at_its_end() {
        let mut wait = Wait::new("x", held(), at(0));
        let mut said = Vec::new();
        for second in 0..200 {
            let report = if (10..150).contains(&second) {
                gone()
            } else {
                Ok(held())
            };
            let reported = wait.reported(report, at(second));
            let messages = [reported, wait.due(at(second), true)].into_iter().flatten();
            said.extend(messages.map(|message| (second, message)));
        }
        let when: Vec<_> = said.iter().map(|(second, _)| *second).collect();
        assert_eq!(when, [15, 75, 135, 150], "{said:?}");
        assert!(
            matches!(&said[0].1, Message::Outage(text) if text.contains("for 5s: connection refused"))
        );
        assert!(matches!(&said[3].1, Message::Back(text) if text.contains("after 2m20s")));
    }

    #[test]
    fn a_short_silence_is_not_said_and_shown_in_the_line() {
        let mut wait = Wait::new("x", held(), at(0));
        assert_eq!(wait.reported(gone(), at(1)), None);
        assert_eq!(wait.due(at(4), true), None);
        let line = wait.line(at(4));
        assert!(line.contains("cannot be reached for 3s"), "{line}");
        assert_eq!(wait.reported(Ok(held()), at(5)), None);
        assert_eq!(wait.due(at(5), true), None);
        assert_eq!(wait.line(at(12)), "waiting 12s for x: vm:7 has it");
    }

    #[test]
    fn without_a_line_a_wait_is_said_every_five_minutes() {
        let mut wait = Wait::new("x", held(), at(0));
        let said = (0..1_000).filter(|second| wait.due(at(*second), true).is_some());
        assert_eq!(said.collect::<Vec<_>>(), [300, 600, 900]);
    }
}
