//! The tool, as a person or a cron table meets it: the real program, on an embedded store in a folder of the test.
//!
//! Jobs are short shell scripts that leave their marks as files in that folder. Each ends by itself within a minute, so
//! that nothing stays should a test fail.

pub(crate) mod any_store;
mod bad_input;
mod bad_stores;
pub(crate) mod boundary;
pub(crate) mod browser;
mod config;
mod container;
mod credentials;
mod doctor;
mod exclusion;
mod export;
pub(crate) mod fenced_jobs;
mod fields;
mod given_files;
mod guarding;
mod hold;
pub(crate) mod in_bucket;
mod job;
mod limits;
mod loss;
mod needs;
mod on_etcd;
pub(crate) mod on_kubernetes;
pub(crate) mod on_mysql;
mod on_postgres;
mod on_quorum;
mod on_redis;
mod on_zookeeper;
mod operators;
mod pages;
mod pools;
mod questions;
mod quiet;
mod reports;
pub(crate) mod schedules;
mod secrets;
mod service;
mod signals;
mod stated_limits;

mod terminal;
pub(crate) mod times;
mod tls;
mod too_long;
mod top;
mod turns;
mod users;
mod watching;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Longer than anything here takes, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// The folder of one test, with its store and the marks of its jobs.
struct Sandbox(tempfile::TempDir);

impl Sandbox {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // For jobs that change their user.
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&folder, open).expect("set");
        Self(folder)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn store(&self) -> PathBuf {
        self.path("leases.sqlite")
    }

    /// The tool with these arguments, and with nothing of the caller's environment that concerns it.
    fn tool(&self, arguments: &[&str]) -> Command {
        let mut command = with_default_signals(env!("CARGO_BIN_EXE_leasehold"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LEASEHOLD_") {
                command.env_remove(name);
            }
        }
        command
            .args(arguments)
            .current_dir(self.0.path())
            .env(
                "LEASEHOLD_STORE",
                format!("sqlite:{}", self.store().display()),
            )
            .env_remove("RUST_LOG")
            .env("XDG_RUNTIME_DIR", self.0.path())
            .env("XDG_CONFIG_HOME", self.path("config"))
            .stdin(Stdio::null());
        command
    }

    /// Another program in the same surroundings, such as one that starts the tool.
    fn program(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = with_default_signals(program);
        let tool = self.tool(&[]);
        command
            .args(arguments)
            .current_dir(self.0.path())
            .env("TOOL", env!("CARGO_BIN_EXE_leasehold"))
            .stdin(Stdio::null());
        for (name, value) in tool.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// Starts `leasehold run` of this script under the name `x`.
    fn run(&self, options: &[&str], script: &str) -> Process {
        let mut arguments = vec!["run"];
        arguments.extend(options);
        arguments.extend(["x", "--", "sh", "-c", script]);
        self.start(self.tool(&arguments))
    }

    /// Runs a job with these options, which must fail with this code before its command is started.
    fn fails(&self, options: &[&str], code: i32) -> Ended {
        let ended = self.run(options, "echo up > started").end();
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(!self.has("started"));
        ended
    }

    /// Starts the tool; what it prints is kept in files, so that it never waits for a reader.
    fn start(&self, mut command: Command) -> Process {
        let stderr = tempfile::NamedTempFile::new_in(self.0.path()).expect("a file");
        let stdout = tempfile::NamedTempFile::new_in(self.0.path()).expect("a file");
        command.stderr(stderr.reopen().expect("opened"));
        command.stdout(stdout.reopen().expect("opened"));
        Process {
            child: command.spawn().expect("the tool starts"),
            stdout,
            stderr,
        }
    }

    /// Waits until a job has written a whole line to this file, and reads all of it.
    fn mark(&self, file: &str) -> String {
        let path = self.path(file);
        let read = || {
            fs::read_to_string(&path)
                .ok()
                .filter(|text| text.ends_with('\n'))
        };
        wait_until(&format!("the mark {file}"), || read().is_some());
        read().expect("there a moment ago").trim().into()
    }

    /// The numbers in a mark.
    fn numbers(&self, file: &str) -> Vec<u64> {
        let mark = self.mark(file);
        let numbers = mark.split_whitespace().map(str::parse);
        numbers.map(|number| number.expect("a number")).collect()
    }

    /// Lets a [`HOLDER`] end.
    fn let_go(&self) {
        fs::write(self.path("go"), "").expect("written");
    }

    fn has(&self, file: &str) -> bool {
        self.path(file).exists()
    }
}

/// A program that ignores no signal, however the tests were started: a shell without job control starts what it puts in
/// the background with INT and QUIT ignored, `nohup` does so with HUP, `perf` with USR2, and the tool keeps to what it
/// finds.
fn with_default_signals(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", program]);
    command
}

/// A running tool. Killed if the test ends first; its guardian then ends its job.
struct Process {
    child: Child,
    stdout: tempfile::NamedTempFile,
    stderr: tempfile::NamedTempFile,
}

/// What became of it.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    /// The signal that ended it.
    signal: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Process {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it lives");
    }

    /// Waits for its end.
    fn end(&mut self) -> Ended {
        let mut status: Option<ExitStatus> = None;
        wait_until("the tool's end", || {
            status = self.child.try_wait().expect("our child");
            status.is_some()
        });
        Ended {
            code: status.and_then(|status| status.code()),
            signal: status.and_then(|status| status.signal()),
            stdout: fs::read_to_string(&self.stdout).expect("its output"),
            stderr: self.said(),
        }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.stderr).expect("its output")
    }

    /// Waits until it has said this.
    fn wait_to_say(&self, text: &str) {
        wait_until(text, || self.said().contains(text));
    }

    /// The warden: the tool's one child.
    fn warden(&self) -> Pid {
        children(Pid::from_child(&self.child))[0]
    }

    /// The guardian: the warden's one child.
    fn guardian(&self) -> Pid {
        children(self.warden())[0]
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The children of a process that has one thread, or whose first thread started them.
fn children(parent: Pid) -> Vec<Pid> {
    let pid = parent.as_raw_pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let pids = children.split_whitespace().map(str::parse);
    pids.filter_map(|pid| Pid::from_raw(pid.ok()?)).collect()
}

/// Does nothing for this long.
#[expect(
    clippy::disallowed_methods,
    reason = "what must not happen in this time has no event"
)]
fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// Waits for something to become true.
#[expect(
    clippy::disallowed_methods,
    reason = "other processes send no event; polled within a limit"
)]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Monotonic.now().after(LIMIT);
    while !is_so() {
        assert!(Monotonic.now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The process of a number in a mark.
fn numbered(pid: u64) -> Pid {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.expect("a pid")
}

/// Whether a process is there; also one that ended and was not reaped so far.
fn is_alive(pid: u64) -> bool {
    test_kill_process(numbered(pid)).is_ok()
}

/// Whether a process has ended, reaped or not.
fn is_dead(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

/// A job that ends when it is let go.
const HOLDER: &str = "echo up > first; until test -e go; do sleep 0.02; done";

/// A job that leaves its own pid and a grandchild's in `pids`, and neither ends at TERM nor soon.
const STUBBORN_FAMILY: &str = "trap '' TERM
    sh -c 'trap \"\" TERM; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 1; done' &
    echo $$ $! > pids
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 1; done";

/// A job that says in `rivals` which of the pids in `pids` are still there.
const LOOK_FOR_RIVALS: &str = "for pid in $(cat pids); do
        if kill -0 $pid 2>/dev/null; then echo alive $pid; else echo gone $pid; fi
    done > rivals; echo $LEASEHOLD_TOKEN > second";
