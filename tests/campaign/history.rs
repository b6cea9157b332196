//! The history of a run: one JSON object a line, in the order of one clock. `README.md` documents each field, so that a
//! history can be checked with other tools than ours.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::clock::Instant;
use serde::{Deserialize, Serialize};

use crate::harness::wait::now;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Event {
    /// Microseconds of the machine's boot clock, which all processes share.
    pub(crate) at_us: u64,
    /// Which process it happened to. One that was killed and started again has a new name.
    pub(crate) process: String,
    pub(crate) operation: Operation,
    pub(crate) phase: Phase,
    /// The same for the two ends of one call of this process.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) call: u64,
    #[serde(flatten)]
    pub(crate) facts: Facts,
}

/// What is known of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Facts {
    /// The name that is leased, or that the register has.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    /// The identity of the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holder: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<u64>,
    /// What was read or is written; no two writes of a run have the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<String>,
    /// Of a write: what its writer had read, and means to replace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) previous: Option<String>,
    /// Of a claim or a renewal: for how long the store was asked to keep the lease. Of a fault that has ended: how much longer
    /// it suspends its promises. Of a stall: how long it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_us: Option<u64>,
    /// Of a fault: which promises it suspends while it lasts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) suspends: Vec<Promise>,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) detail: String,
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    /// One request to the store for a name, as it left the client.
    Claim,
    /// One lease's part in a batch of renewals, as it left the client.
    Renew,
    /// A caller's wish for a name, from its first request until it has the lease.
    Acquire,
    /// The lease was asked whether it is held. Its time is from before the question.
    Check,
    /// The lease's cancellation reached the thread of its holder that waits for nothing else.
    Told,
    Release,
    /// The register was read, after the fence was raised.
    Read,
    Write,
    /// A job of the tool was alive at this moment.
    Beat,
    /// A fault was made to happen, until it was healed.
    Fault,
    /// The process was killed.
    Death,
    /// The process stood still for that long (`ttl_us`): a thread of it that sleeps for a few milliseconds again and
    /// again woke late. That of the runner means that the machine was busy.
    Stall,
    /// What the register has at the end.
    Final,
    /// The store has this at the end, though every lease is over.
    Left,
}

/// How far it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// It began. Without a later line of the same call its outcome is unknown.
    Invoke,
    /// It succeeded.
    Answer,
    /// It certainly did not happen.
    Refused,
    /// It may have happened, or may happen later.
    Unknown,
}

/// A promise that a fault can suspend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Promise {
    /// A holder is told before a rival is granted.
    Exclusion,
    /// Tokens rise.
    Tokens,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Where a process writes what happens to it.
#[derive(Debug, Clone)]
pub(crate) struct Scribe {
    process: Arc<str>,
    file: Arc<File>,
    calls: Arc<AtomicU64>,
}

impl Scribe {
    /// Writes to a file of this process in the folder.
    pub(crate) fn in_folder(folder: &Path, process: &str) -> Self {
        let file = folder.join(format!("{process}.jsonl"));
        let file = File::options().create(true).append(true).open(file);
        Self {
            process: process.into(),
            file: Arc::new(file.expect("the folder is ours")),
            calls: Arc::default(),
        }
    }

    /// Whose history it is.
    pub(crate) fn process(&self) -> &str {
        &self.process
    }

    /// Records the beginning of a call, and returns its number.
    pub(crate) fn invoke(&self, operation: Operation, facts: Facts) -> u64 {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        self.note_at(now(), operation, Phase::Invoke, call, facts);
        call
    }

    /// Records the end of a call.
    pub(crate) fn end(&self, operation: Operation, phase: Phase, call: u64, facts: Facts) {
        self.note_at(now(), operation, phase, call, facts);
    }

    /// Records what happened at one moment.
    pub(crate) fn note(&self, operation: Operation, phase: Phase, facts: Facts) {
        self.note_at(now(), operation, phase, 0, facts);
    }

    /// Records what happened to another process.
    pub(crate) fn note_of(&self, process: &str, operation: Operation, phase: Phase, facts: Facts) {
        let other = Self {
            process: process.into(),
            ..self.clone()
        };
        other.note(operation, phase, facts);
    }

    /// Records what happened at this moment. A line is written as a whole or, by a process that is killed, not at all.
    pub(crate) fn note_at(
        &self,
        at: Instant,
        operation: Operation,
        phase: Phase,
        call: u64,
        facts: Facts,
    ) {
        let event = Event {
            at_us: at.as_nanos() / 1_000,
            process: self.process.to_string(),
            operation,
            phase,
            call,
            facts,
        };
        let mut line = serde_json::to_vec(&event).expect("plain fields");
        line.push(b'\n');
        (&*self.file).write_all(&line).expect("the disk has room");
    }
}

impl Facts {
    pub(crate) fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    pub(crate) fn held(name: &str, holder: impl ToString, token: u64) -> Self {
        Self {
            name: name.into(),
            holder: Some(holder.to_string()),
            token: Some(token),
            ..Self::default()
        }
    }

    pub(crate) fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }
}

/// The time of so many microseconds.
pub(crate) const fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}

/// Returns all that the processes of a run wrote, in the order of time.
pub(crate) fn gather(folder: &Path) -> Vec<Event> {
    let files = fs::read_dir(folder).expect("the folder is ours").flatten();
    let files = files.map(|file| file.path());
    let is_history = |file: &PathBuf| file.extension().is_some_and(|ending| ending == "jsonl");
    let texts = files
        .filter(is_history)
        .map(|file| fs::read_to_string(file).expect("UTF-8"));
    let mut events: Vec<Event> = texts.flat_map(|text| parse(&text)).collect();
    events.sort_by_key(|event| event.at_us);
    events
}

/// Returns the events of these lines. The last line of a process that was killed may be torn.
pub(crate) fn parse(text: &str) -> Vec<Event> {
    let lines = text.lines();
    lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// Writes a history to one file.
pub(crate) fn write_events(events: &[Event], file: &Path) {
    let lines = events.iter().map(|event| {
        let line = serde_json::to_string(event).expect("plain fields");
        format!("{line}\n")
    });
    fs::write(file, lines.collect::<String>()).expect("the folder is ours");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written_and_a_torn_one_is_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let scribe = Scribe::in_folder(folder.path(), "w1");
        let call = scribe.invoke(Operation::Acquire, Facts::named("a"));
        let facts = Facts::held("a", "h", 7);
        scribe.end(Operation::Acquire, Phase::Answer, call, facts.clone());
        (&*scribe.file)
            .write_all(br#"{"at_us":1,"process":"w1","opera"#)
            .expect("written");
        let events = gather(folder.path());
        assert_eq!(events.len(), 2);
        assert_eq!(events[0].phase, Phase::Invoke);
        assert_eq!((events[1].call, &events[1].facts), (1, &facts));
        assert_eq!(events[1].operation, Operation::Acquire);
    }
}
