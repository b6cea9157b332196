//! A child that never outlives this process, however that ends.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::Result;

/// It ends on drop. If this process is killed, a guard sees the end of its pipe and kills the child.
pub(crate) struct Process {
    child: Child,
    guard: Child,
}

impl Process {
    /// Starts it, in a group of its own, so that Ctrl-C does not reach it before the fleet.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let child = command.process_group(0).spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy();
            format!("cannot start {program}: {error}")
        })?;
        let guard = Command::new("sh")
            .args(["-c", "read _; kill -9 \"$0\"", &child.id().to_string()])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self { child, guard })
    }

    /// Where it is told what to do, if that is piped.
    pub(crate) fn orders(&mut self) -> Result<&mut std::process::ChildStdin> {
        Ok(self.child.stdin.as_mut().ok_or("it takes no orders")?)
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Whether it was stopped by SIGSTOP.
    pub(crate) fn is_stopped(&self) -> bool {
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = std::fs::read_to_string(path).unwrap_or_default();
        let state = stat.rsplit(')').next().unwrap_or_default();
        state.trim_start().starts_with('T')
    }

    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The guard first: once the child is reaped, its pid may belong to another process.
        for child in [&mut self.guard, &mut self.child] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
