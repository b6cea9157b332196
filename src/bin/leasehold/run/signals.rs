//! The signals of a run: those that it passes on to its job, those that end its wait, and that of an ended child.

use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

use super::foreground;
use crate::exit::Failure;

/// Signals that reach the job through the tool. TSTP is one of them: the tool is stopped only when its job was.
const FORWARDED: [Signal; 9] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::CONT,
    Signal::TSTP,
];

/// Signals that end the wait for a lease. A run ends by the one that ended it.
const ENDING: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];

/// The signals sent to this process.
#[derive(Debug)]
pub struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
    /// Those that were received and end a wait.
    told: Vec<Signal>,
}

impl Signals {
    /// Starts to listen. A signal that was ignored when the tool was started (`nohup`) stays ignored, for the job too.
    pub fn new() -> Result<Self, Failure> {
        let ignored = ignored().unwrap_or(0);
        let received = FORWARDED
            .into_iter()
            .filter(|signal| ignored >> (signal.as_raw() - 1) & 1 == 0)
            // In any case: the guardian would ignore it, too, and could not wait for the job.
            .chain([Signal::CHILD]);
        let streams = received.map(|signal| {
            let stream = unix::signal(SignalKind::from_raw(signal.as_raw()))?;
            Ok((signal, stream))
        });
        let streams: io::Result<Vec<_>> = streams.collect();
        // A file that may not grow (`ulimit -f`) fails its write then, and does not end the tool with the name taken.
        // The job has the signal as it was.
        if ignored >> (Signal::XFSZ.as_raw() - 1) & 1 == 0 {
            let _ = unix::signal(SignalKind::from_raw(Signal::XFSZ.as_raw()));
        }
        let streams =
            streams.map_err(|error| Failure::internal("cannot listen for signals", &error))?;
        Ok(Self {
            streams,
            told: Vec::new(),
        })
    }

    /// Returns the next signal. Dropping the future loses no signal.
    pub async fn next(&mut self) -> Signal {
        let signal = std::future::poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        });
        let signal = signal.await;
        if ENDING.contains(&signal) && !self.told.contains(&signal) {
            self.told.push(signal);
        }
        signal
    }

    /// Returns whether a signal asked for the end of the run. HUP does not: to a job it may mean that its configuration
    /// has changed.
    pub fn are_told_to_end(&self) -> bool {
        self.told.iter().any(|signal| *signal != Signal::HUP)
    }

    /// Returns whether this signal was received, if it is one that ends a wait.
    pub fn were_told(&self, number: i32) -> bool {
        self.told.iter().any(|signal| signal.as_raw() == number)
    }

    /// Returns the next signal that ends a wait. Dropping the future loses none of these.
    pub async fn ending(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::TSTP => {
                    foreground::suspend();
                }
                signal if ENDING.contains(&signal) => return signal,
                _ => {}
            }
        }
    }
}

/// Returns the signals ignored by this process, one bit for each.
fn ignored() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}
