//! The second process: the parent of the job, which it ends when the lease's time is up, even if the tool was killed.
//!
//! ```text
//! tool -- instructions: begin, renewed, signal, stop -> guardian ---- TERM, KILL, signals ----> the job's group
//!      <--- events: started, exited, gone, .... ------          <--- ends, as parent and subreaper
//! ```
//!
//! It has one thread and one `poll`, no runtime, and prints nothing, so that nothing here can block. Three things wake
//! it: the tool, an ended child, and a timer on the lease's own clock. The [timeline](crate::timeline) decides what to
//! do.

mod group;
mod terminal;

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::clock::{Boottime, Clock, Instant, Monotonic};
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::channel::{self, Begin, Event, Instruction};
use crate::exit::Exit;
use crate::progress;
use crate::timeline::{Cause, Step, Timeline};

use group::{Ended, Group};
use terminal::Terminal;

/// The hidden first argument.
pub const ARGUMENT: &str = "__guardian";

/// Guards one job to its end. The arguments are the command, and standard input is the channel to the tool. If no job
/// was started, the tool is sent the reason.
pub fn main(command: Vec<OsString>) -> Exit {
    let started = receive_begin().and_then(|(begin, stdin)| Guardian::start(begin, stdin, command));
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

/// Takes the first instruction from the channel, and with it the job's input.
fn receive_begin() -> io::Result<(Begin, OwnedFd)> {
    let mut channel = [PollFd::from_borrowed_fd(
        rustix::stdio::stdin(),
        PollFlags::IN,
    )];
    rustix::io::retry_on_intr(|| poll(&mut channel, None))?;
    match channel::receive(io::stdin())? {
        Some((Instruction::Begin(begin), Some(stdin))) => Ok((begin, stdin)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Sends the tool an event. Has no effect if the tool is stopped or has ended.
fn tell(event: &Event) {
    let _ = channel::send(io::stdin(), event, None);
}

struct Guardian {
    is_tool_gone: bool,
    clock: Box<dyn Clock>,
    timer: OwnedFd,
    children: SignalFd,
    timeline: Timeline,
    group: Group,
    terminal: Option<Terminal>,
    /// The cause for which the job is ended if the tool has ended first.
    tool_gone: Cause,
    status_file: PathBuf,
}

/// Starts the job's processes, in the foreground of their terminal if there is one. The descriptor tells when one ends.
fn start_group(
    stdin: OwnedFd,
    command: Vec<OsString>,
) -> io::Result<(Group, Option<Terminal>, SignalFd)> {
    let terminal = Terminal::of(&stdin);
    let group = Group::start(command, stdin)?;
    // All signals are blocked: a signal for the job reaches it through the tool, and the guardian outlives both. Only
    // from now on, because the command inherits those that were blocked for the tool.
    let mask = SigSet::all();
    mask.thread_set_mask()?;
    let children = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    if let Some(terminal) = &terminal {
        terminal.begin(group.leader());
    }
    // So a reader of the job's output sees its end as soon as the job's own copies are closed. A pipe that no process
    // reads takes their place, because there may be no /dev/null.
    let (_, nowhere) = io::pipe()?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    Ok((group, terminal, children))
}

impl Guardian {
    /// Starts the job. Returns `None` if its lease ends too soon for that.
    fn start(begin: Begin, stdin: OwnedFd, command: Vec<OsString>) -> io::Result<Option<Self>> {
        // Otherwise its name in a list of processes would be the file name of a link in /proc.
        rustix::thread::set_name(c"leasehold")?;
        let (clock, id): (Box<dyn Clock>, _) = match &*begin.clock {
            "CLOCK_MONOTONIC" => (Box::new(Monotonic), TimerfdClockId::Monotonic),
            _ => (Box::new(Boottime), TimerfdClockId::Boottime),
        };
        let timeline = Timeline::new(begin.distances, Instant::from_nanos(begin.deadline_ns));
        if timeline.is_over(clock.now()) {
            return Ok(None);
        }
        let timer = timerfd_create(id, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let (group, terminal, children) = start_group(stdin, command)?;
        let mut guardian = Self {
            is_tool_gone: false,
            clock,
            timer,
            children,
            timeline,
            group,
            terminal,
            tool_gone: match begin.is_nested {
                true => Cause::NestedToolGone,
                false => Cause::ToolGone,
            },
            status_file: begin.status_file,
        };
        guardian.release_to_run();
        Ok(Some(guardian))
    }

    /// Lets the command begin, unless the lease's time ran out before that: then the command is ended before it begins.
    fn release_to_run(&mut self) {
        // Sent first: if the guardian is killed from here on, the tool knows what to end.
        let pid = self.group.leader().as_raw_pid();
        tell(&Event::Started { pid });
        self.listen();
        if !self.timeline.is_over(self.clock.now()) {
            self.group.signal(Signal::CONT.as_raw());
        }
    }

    /// Runs until the group is empty.
    fn run(mut self) -> Exit {
        loop {
            self.listen();
            self.reap();
            if self.group.is_empty() {
                break;
            }
            let next = self.act();
            self.wait(next);
        }
        if let Some(terminal) = &self.terminal {
            terminal.take_back(self.group.leader());
        }
        let strays = self.group.strays();
        tell(&Event::Gone { strays });
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
                    self.timeline.stop(self.tool_gone, self.clock.now());
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
            Instruction::Stop(cause) => self.timeline.stop(cause, self.clock.now()),
            Instruction::Begin(_) => {}
        }
    }

    /// Reaps what has ended, of the job and of what it left behind.
    fn reap(&mut self) {
        while let Ok(Some(_)) = self.children.read_signal() {}
        while let Some(ended) = self.group.reap() {
            match ended {
                Ended::Leader(end) => {
                    let cause = self.timeline.cause();
                    tell(&Event::Exited { end, cause });
                    self.timeline.stop(Cause::CommandEnded, self.clock.now());
                }
                Ended::Suspended(signal) => self.suspended(signal),
            }
        }
    }

    /// Handles a stopped job. A job that needs the terminal gets it if the tool has it; otherwise the tool stops too,
    /// so that the shell above shows a stopped job.
    fn suspended(&self, signal: i32) {
        let Some(terminal) = &self.terminal else {
            return;
        };
        let leader = self.group.leader();
        let wants = [Signal::TTIN.as_raw(), Signal::TTOU.as_raw()].contains(&signal);
        if wants && terminal.give(leader) {
            self.group.signal(Signal::CONT.as_raw());
        } else {
            terminal.take_back(leader);
            tell(&Event::Suspended);
        }
    }

    /// Passes a signal on to the job. After `fg` the terminal is the job's again; after `bg` it stays where it is.
    fn signal(&self, number: i32) {
        if let Some(terminal) = &self.terminal
            && number == Signal::CONT.as_raw()
        {
            terminal.begin(self.group.leader());
        }
        self.group.signal(number);
    }

    /// Does what the timeline says, and returns the instant at which to ask it again.
    fn act(&mut self) -> Instant {
        loop {
            match self.timeline.step(self.clock.now()) {
                Step::Wait(at) => return at,
                Step::Term(cause) => {
                    self.group.term();
                    tell(&Event::Stopping { cause });
                }
                Step::Kill => self.group.kill(),
            }
        }
    }

    /// Sleeps until the tool sends something, a child ends, or `until` has come.
    fn wait(&self, until: Instant) {
        let once = Itimerspec {
            it_interval: Timespec::default(),
            // Zero would disarm it.
            it_value: timespec(Duration::from_nanos(until.as_nanos().max(1))),
        };
        let armed = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once);
        let mut fds = vec![
            PollFd::new(&self.timer, PollFlags::IN),
            PollFd::new(&self.children, PollFlags::IN),
        ];
        let channel = io::stdin();
        if !self.is_tool_gone {
            fds.push(PollFd::new(&channel, PollFlags::IN));
        }
        // Without a timer it polls every 10 ms: coarse, but the job still ends in time.
        let coarse = timespec(Duration::from_millis(10));
        let _ = poll(&mut fds, armed.is_err().then_some(&coarse));
    }

    /// Removes the status file if the tool has ended; a living tool removes it itself.
    fn remove_status_file(&self) {
        if self.is_tool_gone {
            let _ = std::fs::remove_file(&self.status_file);
            let _ = std::fs::remove_file(progress::of_run(&self.status_file));
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    time.try_into().expect("the time of a clock fits")
}

#[cfg(test)]
mod tests {
    use leasehold::clock::Timing;

    use super::*;
    use crate::timeline::Distances;

    #[test]
    fn a_lease_whose_time_is_up_starts_no_command() {
        let begin = Begin {
            clock: Monotonic.name().into(),
            distances: Distances::new(&Timing::default(), None).expect("valid"),
            deadline_ns: Monotonic.now().as_nanos(),
            is_nested: false,
            status_file: PathBuf::new(),
        };
        let stdin = std::fs::File::open("/dev/null").expect("opened").into();
        let started = Guardian::start(begin, stdin, Vec::new());
        assert!(matches!(started, Ok(None)));
    }
}
