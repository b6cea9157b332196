//! The parent of the guardian: it ends the job if the guardian is killed, or is stopped when the job must be gone.
//!
//! So `kill -9` of the tool and the guardian, and `killall -9 leasehold`, end the job: a job runs on alone only if
//! three processes, with three names, fail at once. It is started without children and is a subreaper, so once the
//! guardian has ended everything below it is of the job.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::clock::Instant;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

use crate::alarm::{self, Alarm};
use crate::channel::{self, Event, Instruction};
use crate::exit::Exit;
use crate::guardian;
use crate::process::{self, Process};
use crate::timeline::Distances;
use crate::tree;

/// The hidden first argument.
pub const ARGUMENT: &str = "__warden";

/// Its name in a list of processes. Neither the tool's nor the guardian's: `killall` must not meet two of them.
pub const NAME: &str = "job-warden";

/// Interval between checks of the guardian once the job must be gone.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Starts a guardian for this command, and watches it to its end. Standard input is the channel to the tool.
pub fn main(command: Vec<OsString>) -> Exit {
    match Warden::start(command) {
        Ok(warden) => warden.run(),
        Err(_) => Exit::Internal,
    }
}

struct Warden {
    guardian: Pid,
    /// How the guardian ended, once it has.
    ended: Option<Ended>,
    is_tool_gone: bool,
    alarm: Alarm,
    distances: Distances,
    deadline: Instant,
}

/// The end of the guardian, and whether it had ended the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Well,
    Badly,
}

impl Warden {
    fn start(command: Vec<OsString>) -> io::Result<Self> {
        rustix::thread::set_name(c"job-warden")?;
        set_child_subreaper(Some(getpid()))?;
        let (Instruction::Guard, Some(guardians)) = channel::wait(io::stdin())? else {
            return Err(channel::unexpected());
        };
        let guardian = start_guardian(&guardians, command).inspect_err(|error| {
            let event = Event::NotStarted {
                error: format!("cannot start a process: {error}"),
                is_late: false,
            };
            let _ = channel::send(&guardians, &event, None);
        })?;
        // From here on only the guardian has its channel and the job's output: their readers must see their ends.
        drop(guardians);
        guardian::leave_output()?;
        // The tool may wait for the lease. If it is not granted, the guardian sees the end of its channel as well.
        let (Instruction::Begin(begin), None) = channel::wait(io::stdin())? else {
            return Err(channel::unexpected());
        };
        Ok(Self {
            guardian,
            ended: None,
            is_tool_gone: false,
            alarm: Alarm::new(alarm::clock(&begin.clock))?,
            distances: begin.distances,
            deadline: Instant::from_nanos(begin.deadline_ns),
        })
    }

    /// Waits for the end of the guardian. If that did not see to the end of the job, ends what is left.
    fn run(mut self) -> Exit {
        loop {
            self.listen();
            self.reap();
            match self.ended {
                Some(Ended::Well) => return Exit::Success,
                Some(Ended::Badly) => return self.end_all(),
                None => {}
            }
            let now = self.alarm.now();
            let rescue_at = self.distances.rescue_at(self.deadline);
            if now >= rescue_at && self.is_guardian_stopped() {
                let _ = kill_process(self.guardian, Signal::KILL);
            }
            let channel = io::stdin();
            let channel = (!self.is_tool_gone).then(|| channel.as_fd());
            let next = rescue_at.max(now.after(LOOK_AGAIN));
            self.alarm.wait(next, channel);
        }
    }

    /// Handles everything that the tool has sent. Without a tool the guardian ends the job.
    fn listen(&mut self) {
        while !self.is_tool_gone {
            match channel::receive(io::stdin()) {
                Ok(Some((Instruction::Renewed { deadline_ns }, _))) => {
                    self.deadline = Instant::from_nanos(deadline_ns);
                }
                Ok(Some(_)) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Ok(None) | Err(_) => self.is_tool_gone = true,
            }
        }
    }

    /// Reaps what has ended. Returns `false` once no child is left.
    fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.guardian => {
                    self.ended = Some(match status.exit_status() {
                        Some(0) => Ended::Well,
                        _ => Ended::Badly,
                    });
                }
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(error) => return error != Errno::CHILD,
            }
        }
    }

    fn is_guardian_stopped(&self) -> bool {
        Process::read(self.guardian.as_raw_pid()).is_some_and(|process| process.is_stopped)
    }

    /// Ends everything that is left of the job.
    fn end_all(&mut self) -> Exit {
        let give_up_at = self.alarm.now().after(tree::GIVE_UP);
        let mut passes = 0;
        while self.reap() && self.alarm.now() < give_up_at {
            tree::kill(getpid(), &[]);
            passes += 1;
            self.alarm
                .wait(self.alarm.now().after(tree::pause(passes)), None);
        }
        Exit::Internal
    }
}

/// Starts the guardian, with its channel as standard input. It inherits the blocked signals that were the tool's.
fn start_guardian(channel: &OwnedFd, command: Vec<OsString>) -> io::Result<Pid> {
    let child = Command::new(process::OWN_PROGRAM)
        .arg0(guardian::NAME)
        .arg(guardian::ARGUMENT)
        .args(command)
        .process_group(0)
        .stdin(Stdio::from(channel.try_clone()?))
        .spawn()?;
    Ok(Pid::from_child(&child))
}
