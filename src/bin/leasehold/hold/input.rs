//! Follows the program that started `hold`: its commands, the end of its input, and its own end.
//!
//! A thread waits for both in one `poll`. The end of the input alone would not do, because a child of that program may
//! have the pipe, too; nor would the parent-death signal, which is about the thread that started this process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::signal::{SigSet, Signal};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{PidfdFlags, getppid, pidfd_open};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::exit::Failure;
use crate::say;

/// A line that is longer is none of the commands.
const LONGEST: usize = 64;

/// A command to carry out.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Record progress.
    Progress,
    /// Release the lease, for this reason.
    End(&'static str),
}

const RELEASE: Command = Command::End("told to release");
const CLOSED: Command = Command::End("standard input was closed");
const PARENT_ENDED: Command = Command::End("the program that started this has ended");

/// The commands, as they come.
pub struct Input(Receiver<Command>);

impl Input {
    /// Starts to listen.
    pub fn listen() -> Result<Self, Failure> {
        let parent = parent().map_err(|error| {
            Failure::internal("cannot watch the program that started this", &error)
        })?;
        let (told, commands) = channel(16);
        let thread = std::thread::Builder::new().name("input".into());
        thread
            .spawn(move || {
                let end = listen(parent.as_ref(), &told).unwrap_or(CLOSED);
                let _ = told.blocking_send(end);
            })
            .map_err(|error| Failure::internal("cannot listen for commands", &error))?;
        Ok(Self(commands))
    }

    /// Returns the next command. Dropping the future loses none.
    pub async fn next(&mut self) -> Command {
        self.0.recv().await.unwrap_or(CLOSED)
    }

    /// Returns why waiting is over.
    pub async fn end(&mut self) -> &'static str {
        loop {
            if let Command::End(why) = self.next().await {
                return why;
            }
        }
    }
}

/// Returns the parent; `None` if it is not in this process' namespace, as with `docker exec`.
fn parent() -> io::Result<Option<OwnedFd>> {
    let Some(parent) = getppid() else {
        return Ok(None);
    };
    let descriptor = pidfd_open(parent, PidfdFlags::empty())?;
    // It ended in between, and another process may have its number.
    if getppid() != Some(parent) {
        return Err(Errno::SRCH.into());
    }
    Ok(Some(descriptor))
}

/// Sends the commands until there is a reason to end. An input that cannot be read, such as a terminal's in the
/// background, counts as ended.
fn listen(parent: Option<&OwnedFd>, told: &Sender<Command>) -> io::Result<Command> {
    let mut quiet = SigSet::empty();
    quiet.add(Signal::SIGTTIN);
    quiet.thread_block()?;
    let stdin = io::stdin();
    let stdin = stdin.as_fd();
    let mut line = Vec::new();
    loop {
        let mut waiting = vec![PollFd::new(&stdin, PollFlags::IN)];
        waiting.extend(parent.map(|parent| PollFd::new(parent, PollFlags::IN)));
        retry_on_intr(|| poll(&mut waiting, None))?;
        if waiting
            .get(1)
            .is_some_and(|parent| !parent.revents().is_empty())
        {
            return Ok(PARENT_ENDED);
        }
        if waiting[0].revents().is_empty() {
            continue;
        }
        let mut read = [0; 256];
        let count = retry_on_intr(|| rustix::io::read(stdin, &mut read))?;
        if count == 0 {
            return Ok(CLOSED);
        }
        for byte in &read[..count] {
            match byte {
                b'\n' => match command(&std::mem::take(&mut line)) {
                    Some(Command::Progress) => {
                        let _ = told.blocking_send(Command::Progress);
                    }
                    Some(end) => return Ok(end),
                    None => say::fault(
                        "command",
                        "a line that is no command has no effect; expected progress or release",
                    ),
                },
                byte if line.len() <= LONGEST => line.push(*byte),
                _ => {}
            }
        }
    }
}

fn command(line: &[u8]) -> Option<Command> {
    match line.trim_ascii() {
        b"progress" => Some(Command::Progress),
        b"release" => Some(RELEASE),
        _ => None,
    }
}
