//! A server as a child process that never outlives the test, however the test ends.

use std::fs::DirEntry;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::times::PATIENCE;
use super::wait::now;

/// It ends on drop. If the test process itself is killed, a guard sees the end of its pipe and kills the server.
///
/// The kernel's own signal for this (PDEATHSIG) is sent when the starting *thread* ends, and each test has its own.
#[derive(Debug)]
pub struct GuardedChild {
    child: Child,
    guard: Child,
}

impl GuardedChild {
    /// Starts the server. `install` is the command that installs the program if it is missing.
    pub fn spawn(mut command: Command, install: &str) -> Self {
        let program = command.get_program().to_string_lossy().into_owned();
        // In a group of its own, so that the terminal's ctrl-c reaches the test first and the test ends the server.
        let child = command.process_group(0).spawn().unwrap_or_else(|error| {
            panic!("cannot start {program}: {error}; to install it: {install}")
        });
        let guard = Command::new("sh")
            .args(["-c", "read _; kill -9 \"$0\"", &child.id().to_string()])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("sh starts");
        Self { child, guard }
    }

    /// Returns how it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it is our child")
    }

    /// Stops it, and returns once it stands still; its sockets stay open.
    pub fn pause(&self) {
        stop(Pid::from_child(&self.child));
    }

    /// Resumes it.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is our child");
    }
}

impl Drop for GuardedChild {
    fn drop(&mut self) {
        // The guard first: once the server is reaped, its pid may belong to another process.
        for child in [&mut self.guard, &mut self.child] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Stops a process of ours, and returns once each of its threads stands still: the signal alone lets them go on for a
/// moment.
#[expect(
    clippy::disallowed_methods,
    reason = "a test that waits for another process has nothing else to do"
)]
pub fn stop(process: Pid) {
    kill_process(process, Signal::STOP).expect("it lives");
    let tasks = format!("/proc/{}/task", process.as_raw_nonzero());
    let runs = |task: DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat"));
        // A thread that has ended meanwhile has no state, and one of a process that was not reaped so far is a zombie.
        stat.is_ok_and(|stat| ![") T ", ") Z "].iter().any(|state| stat.contains(state)))
    };
    let end = now().after(PATIENCE);
    while std::fs::read_dir(&tasks)
        .expect("it lives")
        .flatten()
        .any(runs)
    {
        assert!(now() < end, "process {process:?} did not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}
