//! The parent of the job, which it ends when the lease's time is up, even if the tool was killed.
//!
//! ```text
//! tool -- instructions: begin, renewed, signal, stop -> guardian ---- TERM, KILL, signals ----> the job
//!      <--- events: started, exited, gone, .... ------          <--- ends, as parent and subreaper
//! ```
//!
//! It has one thread and one `poll`, no runtime, and prints nothing, so that nothing here can block. Three things
//! [wake](crate::alarm) it: the tool, an ended child, and a timer. The [timeline](crate::timeline) decides what to do.
//! Its own parent is the [warden](crate::warden), which ends the job should the guardian be killed or stopped.

mod job;
mod terminal;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use leasehold::clock::Instant;
use rustix::process::{Pid, Signal, getpid};

use crate::alarm::{self, Alarm};
use crate::channel::{self, Begin, Event, Instruction};
use crate::exit::Exit;
use crate::process;
use crate::status_file;
use crate::timeline::{Cause, Scope, Step, Timeline};

use job::{Ended, Job};
use terminal::Terminal;

/// The hidden first argument.
pub const ARGUMENT: &str = "__guardian";

/// Its name in a list of processes. Not the tool's: `killall leasehold` must not meet both.
pub const NAME: &str = "job-guardian";

/// Interval between searches for orphans while a job is being ended: no signal announces them.
const TICK: Duration = Duration::from_millis(20);

/// Maximum number of processes that are reported to the tool.
const MAX_NAMED: usize = 100;

/// Guards one job to its end. The arguments are the command, and standard input is the channel to the tool. If no job
/// was started, the tool is sent the reason.
pub fn main(command: Vec<OsString>) -> Exit {
    let started = channel::wait(io::stdin()).and_then(|first| match first {
        (Instruction::Begin(begin), Some(stdin)) => Guardian::start(begin, stdin, command),
        _ => Err(channel::unexpected()),
    });
    let (error, is_late) = match started {
        Ok(Some(guardian)) => return guardian.run(),
        Ok(None) => {
            let error = "the lease's time was up before the command was started";
            (error.into(), true)
        }
        Err(error) => (format!("cannot start a process: {error}"), false),
    };
    tell(&Event::NotStarted { error, is_late });
    Exit::Internal
}

/// Sends the tool an event. Has no effect if the tool is stopped or has ended.
fn tell(event: &Event) {
    let _ = channel::send(io::stdin(), event, None);
}

struct Guardian {
    is_tool_gone: bool,
    alarm: Alarm,
    timeline: Timeline,
    job: Job,
    terminal: Option<Terminal>,
    /// Why the job is ended if the tool ends first.
    tool_gone: Cause,
    status_file: PathBuf,
}

impl Guardian {
    /// Starts the job, in the foreground of its terminal if there is one. Returns `None` if its lease ends too soon for
    /// that.
    fn start(begin: Begin, stdin: OwnedFd, command: Vec<OsString>) -> io::Result<Option<Self>> {
        // Otherwise its name in a list of processes would be the file name of a link in /proc.
        rustix::thread::set_name(c"job-guardian")?;
        let clock = alarm::clock(&begin.clock);
        let timeline = Timeline::new(begin.distances, Instant::from_nanos(begin.deadline_ns));
        if timeline.is_over(clock.now()) {
            return Ok(None);
        }
        let terminal = Terminal::of(&stdin, begin.tool_group);
        let job = Job::start(command, &begin, stdin)?;
        let alarm = Alarm::new(clock)?;
        if let Some(terminal) = &terminal {
            terminal.begin(job.leader());
        }
        leave_output()?;
        let mut guardian = Self {
            is_tool_gone: false,
            alarm,
            timeline,
            job,
            terminal,
            tool_gone: match begin.is_nested {
                true => Cause::NestedToolGone,
                false => Cause::ToolGone,
            },
            status_file: begin.status_file.into(),
        };
        guardian.release_to_run();
        Ok(Some(guardian))
    }

    /// Lets the command begin, unless the lease's time ran out before that: then the command is ended before it begins.
    fn release_to_run(&mut self) {
        // Sent first, so that the tool knows what to end if the guardian is killed from here on.
        tell(&Event::Started {
            pid: self.job.leader().as_raw_pid(),
            guardian: getpid().as_raw_pid(),
        });
        self.listen();
        if !self.timeline.is_over(self.alarm.now()) {
            self.job.signal(Signal::CONT.as_raw());
        }
    }

    /// Runs until the job has ended.
    fn run(mut self) -> Exit {
        let left = loop {
            self.listen();
            self.reap();
            let now = self.alarm.now();
            let scope = self.timeline.scope(now);
            if self.job.is_over(scope) {
                break Vec::new();
            }
            if self.timeline.has_given_up(now) {
                break self.job.living(Scope::All);
            }
            let next = self.act();
            let channel = io::stdin();
            let channel = (!self.is_tool_gone).then(|| channel.as_fd());
            self.alarm.wait(next, channel);
        };
        if let Some(terminal) = &self.terminal {
            terminal.take_back(self.job.leader());
        }
        let strays = match left.is_empty() {
            true => self.job.living(Scope::All),
            false => Vec::new(),
        };
        tell(&Event::Gone {
            strays: named(&strays),
            left: named(&left),
        });
        self.remove_status_file();
        Exit::Success
    }

    /// Handles everything that the tool has sent.
    fn listen(&mut self) {
        while !self.is_tool_gone {
            match channel::receive(io::stdin()) {
                Ok(Some((instruction, _))) => self.handle(instruction),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Ok(None) | Err(_) => {
                    self.is_tool_gone = true;
                    self.timeline.stop(self.tool_gone, self.alarm.now());
                }
            }
        }
    }

    fn handle(&mut self, instruction: Instruction) {
        match instruction {
            Instruction::Renewed { deadline_ns } => {
                self.timeline.renewed(Instant::from_nanos(deadline_ns));
            }
            Instruction::Signal(number) => self.signal(number),
            Instruction::Stop(cause) => self.timeline.stop(cause, self.alarm.now()),
            Instruction::Guard | Instruction::Begin(_) => {}
        }
    }

    /// Reaps what has ended, of the job and of what it left behind.
    fn reap(&mut self) {
        while let Some(ended) = self.job.reap() {
            match ended {
                Ended::Leader(end) => {
                    let cause = self.timeline.cause();
                    tell(&Event::Exited { end, cause });
                    self.timeline.stop(Cause::CommandEnded, self.alarm.now());
                }
                Ended::Suspended(signal) => self.suspended(signal),
            }
        }
    }

    /// Handles a stopped job. A job that needs the terminal gets it if the tool has it; otherwise the tool stops too,
    /// so that the shell above shows a stopped job.
    fn suspended(&mut self, signal: i32) {
        let Some(terminal) = &self.terminal else {
            tell(&Event::Suspended {
                has_terminal: false,
            });
            return;
        };
        let leader = self.job.leader();
        let wants = [Signal::TTIN.as_raw(), Signal::TTOU.as_raw()].contains(&signal);
        if wants && terminal.give(leader) {
            self.job.signal(Signal::CONT.as_raw());
        } else {
            terminal.take_back(leader);
            tell(&Event::Suspended { has_terminal: true });
        }
    }

    /// Passes a signal on to the job. After `fg` the terminal is the job's again; after `bg` it stays where it is.
    fn signal(&mut self, number: i32) {
        if let Some(terminal) = &self.terminal
            && number == Signal::CONT.as_raw()
        {
            terminal.begin(self.job.leader());
        }
        self.job.signal(number);
    }

    /// Carries out the timeline's decision, and returns when to ask it again.
    fn act(&mut self) -> Instant {
        let now = self.alarm.now();
        let step = self.timeline.step(now);
        // After the step, which may have begun to end the job.
        let scope = self.timeline.scope(now);
        match step {
            Step::Wait(at) if self.timeline.cause().is_some() => {
                self.job.term_orphans(scope);
                at.min(now.after(TICK))
            }
            Step::Wait(at) => at,
            Step::Term(cause) => {
                self.job.term(scope);
                tell(&Event::Stopping { cause });
                now
            }
            Step::Kill { again_at } => {
                self.job.kill(scope);
                again_at
            }
        }
    }

    /// Removes the status file if the tool has ended; a living tool removes it itself.
    fn remove_status_file(&self) {
        if self.is_tool_gone {
            let _ = std::fs::remove_file(&self.status_file);
            let _ = std::fs::remove_file(status_file::pipe(&self.status_file));
        }
    }
}

/// Closes the copies of the job's output, so that a reader sees its end as soon as the job's own are closed. A pipe
/// that no process reads is put there instead, because there may be no /dev/null.
pub fn leave_output() -> io::Result<()> {
    let (_, nowhere) = io::pipe()?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    Ok(())
}

fn named(pids: &[Pid]) -> Vec<i32> {
    process::numbers(&pids[..pids.len().min(MAX_NAMED)])
}

#[cfg(test)]
mod tests {
    use leasehold::clock::{Clock, Monotonic, Timing};

    use super::*;
    use crate::timeline::Distances;

    #[test]
    fn a_lease_whose_time_is_up_starts_no_command() {
        let begin = Begin {
            clock: Monotonic.name().into(),
            distances: Distances::new(&Timing::default(), None).expect("valid"),
            deadline_ns: Monotonic.now().as_nanos(),
            is_nested: false,
            tool_group: 0,
            environment: Vec::new(),
            status_file: OsString::new(),
        };
        let stdin = std::fs::File::open("/dev/null").expect("opened").into();
        let started = Guardian::start(begin, stdin, Vec::new());
        assert!(matches!(started, Ok(None)));
    }
}
