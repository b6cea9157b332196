//! Prints the tool's messages on standard error, without ever waiting for their reader.
//!
//! A pager that is not scrolled, a log driver that hangs: a message written directly would delay the very process that
//! has to end a job in time. So messages go through a bounded queue to a thread that prints them; a message is dropped
//! and counted if the queue is full.

use std::convert::Infallible;
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

use crate::exit::{Exit, Failure};

/// Enough for all messages of one run; it fills up only if the reader stops reading.
const QUEUE: usize = 256;

/// Maximum time that the tool waits at its end until its last messages are read.
const FLUSH: Duration = Duration::from_secs(1);

static PRINTER: OnceLock<Option<Printer>> = OnceLock::new();
static LOUDNESS: AtomicU8 = AtomicU8::new(Loudness::Normal as u8);

/// The name that the JSON objects are about, if messages are printed as JSON.
static JSON_NAME: OnceLock<String> = OnceLock::new();

/// A message of `run --json`, one object per line on standard error. Lines of the library's log (`LEASEHOLD_LOG`) may
/// appear in between.
#[derive(Debug, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Event<'a> {
    /// Version of this format.
    version: u32,
    /// What happened, as in the table below.
    event: &'a str,
    /// The name that the run was asked for.
    name: &'a str,
    /// The message as people read it. Its text may change.
    message: String,
}

/// Amount of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loudness {
    /// Only errors: why the tool failed, or ended the job.
    Quiet,
    /// Messages that the user has to know.
    Normal,
    /// Each step.
    Verbose,
}

/// Sets how much is printed from now on.
pub fn set_loudness(loudness: Loudness) {
    LOUDNESS.store(loudness as u8, Ordering::Relaxed);
}

/// Prints each message as one JSON object, about this name.
pub fn as_json(name: &str) {
    let _ = JSON_NAME.set(name.into());
}

/// Returns whether messages are for people, and more than errors are printed.
pub fn is_for_people() -> bool {
    JSON_NAME.get().is_none() && LOUDNESS.load(Ordering::Relaxed) >= Loudness::Normal as u8
}

/// Returns the width of the terminal that messages go to, if they do.
pub fn width() -> Option<usize> {
    width_of(std::io::stderr())
}

/// Returns the width of the terminal that the output goes to, if it does.
pub fn output_width() -> Option<usize> {
    width_of(std::io::stdout())
}

fn width_of(stream: impl IsTerminal + AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(&stream).ok();
    // A terminal that does not know its size.
    let width = size
        .map(|size| usize::from(size.ws_col))
        .filter(|width| *width > 0);
    stream.is_terminal().then(|| width.unwrap_or(80))
}

/// Returns whether the user wants colours where a terminal can show them.
pub fn are_colours_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Writes the output of a command. A reader that closed the pipe early is no fault; output that is lost is one.
pub fn output(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut stdout = std::io::stdout();
    match stdout
        .write_all(text.as_ref())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::new(
            Exit::Unwritten,
            format!("cannot write the output: {error}"),
        )),
        _ => Ok(()),
    }
}

/// Returns an answer to a program, for [`output`].
pub fn json(answer: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(answer)
        .map(|text| text + "\n")
        .map_err(|error| Failure::internal("cannot write JSON", &error))
}

/// Prints an error, at every loudness.
pub fn fault(event: &'static str, message: impl Display) {
    line(Loudness::Quiet, event, message);
}

/// Prints what the user has to know. The event is its name for programs.
pub fn note(event: &'static str, message: impl Display) {
    line(Loudness::Normal, event, message);
}

/// Prints a step, with `--verbose`.
pub fn detail(event: &'static str, message: impl Display) {
    line(Loudness::Verbose, event, message);
}

/// Prints a text without changes, such as a line of a log.
pub fn raw(text: String) {
    if let Some(printer) = PRINTER.get_or_init(start) {
        printer.send(text);
    }
}

/// Waits up to a second until all messages are printed.
pub fn flush() {
    let Some(Some(printer)) = PRINTER.get() else {
        return;
    };
    let dropped = printer.dropped.swap(0, Ordering::Relaxed);
    if dropped > 0 {
        note(
            "dropped",
            format_args!("{dropped} messages were not printed"),
        );
    }
    printer.flush(FLUSH);
}

/// Prints a message at this loudness and above.
pub fn line(loudness: Loudness, event: &'static str, message: impl Display) {
    let json = JSON_NAME.get();
    // Programs get every event and select by name.
    if json.is_none() && loudness as u8 > LOUDNESS.load(Ordering::Relaxed) {
        return;
    }
    match json {
        Some(name) => {
            let event = Event {
                version: 1,
                event,
                name,
                message: message.to_string(),
            };
            // A struct of texts and numbers is always JSON.
            raw(serde_json::to_string(&event).unwrap_or_default() + "\n");
        }
        None => raw(format!("leasehold: {message}\n")),
    }
}

fn start() -> Option<Printer> {
    let mut is_prepared = false;
    let print = move |text: String| {
        // While the job has the terminal the tool is in the background, where `stty tostop` would stop it for printing.
        if !std::mem::replace(&mut is_prepared, true) {
            let mut quiet = SigSet::empty();
            quiet.add(Signal::SIGTTOU);
            let _ = quiet.thread_block();
        }
        let _ = std::io::stderr().write_all(text.as_bytes());
    };
    Printer::start(QUEUE, print).ok()
}

/// The bounded queue to the thread that prints.
struct Printer {
    queue: SyncSender<Queued>,
    dropped: AtomicU64,
}

enum Queued {
    Text(String),
    /// Dropped when every text before it was printed.
    Flush(SyncSender<Infallible>),
}

impl Printer {
    fn start(
        capacity: usize,
        mut print: impl FnMut(String) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (queue, queued) = sync_channel(capacity);
        let thread = std::thread::Builder::new().name("say".into());
        thread.spawn(move || {
            for next in queued {
                match next {
                    Queued::Text(text) => print(text),
                    Queued::Flush(done) => drop(done),
                }
            }
        })?;
        let dropped = AtomicU64::new(0);
        Ok(Self { queue, dropped })
    }

    /// Prints a text soon. If the queue is full, the text is dropped and counted.
    fn send(&self, text: String) {
        if self.queue.try_send(Queued::Text(text)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until every text was printed, for `limit` at most. It does not wait if the queue is full, because then the
    /// reader is stuck.
    fn flush(&self, limit: Duration) {
        let (flush, flushed) = sync_channel(0);
        if self.queue.try_send(Queued::Flush(flush)).is_ok() {
            let _ = flushed.recv_timeout(limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    /// Makes a printer that prints a text only when the test lets it.
    fn held_up(capacity: usize) -> (Printer, SyncSender<()>, Receiver<String>) {
        let (go_on, may_go_on) = sync_channel(0);
        let (printed, seen) = sync_channel(8);
        let printer = Printer::start(capacity, move |text| {
            printed.send(text).expect("the test listens");
            let _ = may_go_on.recv();
        });
        (printer.expect("a thread"), go_on, seen)
    }

    #[test]
    fn messages_are_printed_in_order_and_a_flush_waits_for_all() {
        let (printer, go_on, seen) = held_up(8);
        drop(go_on);
        for text in ["a", "b", "c"] {
            printer.send(text.into());
        }
        printer.flush(SOON);
        assert_eq!(seen.try_iter().collect::<String>(), "abc");
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_is_not_waited_for() {
        let (printer, _go_on, seen) = held_up(1);
        printer.send("a".into());
        assert_eq!(seen.recv_timeout(SOON).as_deref(), Ok("a"));
        for _ in 0..3 {
            printer.send("b".into());
        }
        assert_eq!(printer.dropped.load(Ordering::Relaxed), 2);
        printer.flush(Duration::MAX);
    }
}
