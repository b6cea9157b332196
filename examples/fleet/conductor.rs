//! Starts the processes, and stages the faults.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;

use super::Result;
use super::faults::Fault;
use super::member::{self, FENCE_KEY, Role, TTL};
use super::process::Process;
use super::tool;
use super::wait_for;

/// The members, by what they do.
const MEMBERS: [&str; 7] = [
    "holder-1", "holder-2", "waiter-1", "waiter-2", "writer-1", "writer-2", "jobs",
];

/// What a fleet is started with.
pub(crate) struct Setup {
    pub(crate) folder: PathBuf,
    /// The program `leasehold`.
    pub(crate) tool: PathBuf,
    /// The command that starts a member, which learns its role from its environment.
    pub(crate) member: Vec<String>,
    /// The store. Without one, the fleet starts a Redis server.
    pub(crate) store: Option<String>,
    pub(crate) seed: u64,
}

/// A running fleet. It ends on drop.
pub(crate) struct Fleet {
    setup: Setup,
    url: String,
    members: Vec<(&'static str, Process)>,
    /// After the members, so that they end first.
    server: Option<Process>,
}

impl Fleet {
    /// Starts the server, the members, and the exporter of the store.
    pub(crate) fn start(setup: Setup) -> Result<Self> {
        let socket = setup.folder.join("redis");
        let (url, server) = match &setup.store {
            Some(url) => (url.clone(), None),
            None => (
                format!("redis+unix://{}", socket.display()),
                Some(start_server(&setup.folder)?),
            ),
        };
        let mut fleet = Self {
            setup,
            url,
            members: Vec::new(),
            server,
        };
        if fleet.server.is_some() {
            wait_for("the server", || Ok(UnixStream::connect(&socket).is_ok()))?;
        }
        for (number, name) in (1..).zip(MEMBERS) {
            let process = fleet.start_member(name, number)?;
            fleet.members.push((name, process));
        }
        let export = tool::start(&fleet.role("export", 0), &["export", "--listen", "0"])?;
        fleet.members.push(("export", export));
        Ok(fleet)
    }

    fn role(&self, name: &str, number: u64) -> Role {
        Role {
            name: name.into(),
            url: self.url.clone(),
            seed: self.setup.seed.wrapping_mul(1_000) + number,
            folder: self.setup.folder.clone(),
            tool: self.setup.tool.clone(),
        }
    }

    fn start_member(&self, name: &str, number: u64) -> Result<Process> {
        let role = self.role(name, number);
        let mut command = Command::new(&self.setup.member[0]);
        command
            .args(&self.setup.member[1..])
            .env(member::ROLE, role.text())
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        Process::start(&mut command)
    }

    /// How many instances are scraped: the members, and the job that one of them keeps running.
    pub(crate) fn instances(&self) -> usize {
        self.members.len() + 1
    }

    /// Stages this fault, and returns once it is over.
    pub(crate) fn stage(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::FailedJob => self.order("jobs", "fail"),
            Fault::Eviction => self.evict("leader"),
            Fault::PausedWriter => {
                self.pause_writer("writer-1")?;
                self.resume_writer("writer-1")
            }
            Fault::StoppedServer => {
                self.stop_server()?;
                sleep(TTL + Duration::from_secs(2));
                self.resume_server()
            }
            Fault::Flush => self.flush(),
        }
    }

    fn member(&mut self, name: &str) -> Result<&mut Process> {
        let mut members = self.members.iter_mut();
        let found = members.find(|(known, _)| *known == name);
        Ok(&mut found.ok_or("no such member")?.1)
    }

    fn order(&mut self, name: &str, order: &str) -> Result<()> {
        Ok(writeln!(self.member(name)?.orders()?, "{order}")?)
    }

    fn evict(&self, name: &str) -> Result<()> {
        let mut command = Command::new(&self.setup.tool);
        command
            .args(["evict", name])
            .env("LEASEHOLD_STORE", &self.url);
        command.stdout(Stdio::null());
        match command.status()?.success() {
            true => Ok(()),
            false => Err("the eviction failed".into()),
        }
    }

    /// Stops a writer between its check and its write, and returns some time after another one has raised the fence
    /// over it.
    pub(crate) fn pause_writer(&mut self, name: &str) -> Result<()> {
        self.order(name, "pause")?;
        wait_for("the writer to stop", || Ok(self.member(name)?.is_stopped()))?;
        let raised = self.fence_token()?;
        wait_for("another writer", || Ok(self.fence_token()? != raised))?;
        // So that the writer is told of its loss much later than at its deadline.
        sleep(Duration::from_secs(2));
        Ok(())
    }

    /// Lets it go on with its write, which is too late.
    pub(crate) fn resume_writer(&mut self, name: &str) -> Result<()> {
        self.member(name)?.signal(Signal::CONT)
    }

    /// Stops the server; its connections stay open.
    pub(crate) fn stop_server(&self) -> Result<()> {
        self.own_server()?.signal(Signal::STOP)
    }

    /// Resumes the server.
    pub(crate) fn resume_server(&self) -> Result<()> {
        self.own_server()?.signal(Signal::CONT)
    }

    fn own_server(&self) -> Result<&Process> {
        Ok(self.server.as_ref().ok_or("the server is not ours")?)
    }

    fn flush(&self) -> Result<()> {
        self.own_server()?;
        self.ask("FLUSHALL").map(drop)
    }

    fn fence_token(&self) -> Result<String> {
        self.ask(&format!("HGET {FENCE_KEY} token"))
    }

    /// Sends a command to our server, and returns the last line of a short answer.
    fn ask(&self, command: &str) -> Result<String> {
        let mut stream = UnixStream::connect(self.setup.folder.join("redis"))?;
        stream.set_read_timeout(Some(super::LIMIT))?;
        write!(stream, "{command}\r\n")?;
        let mut lines = BufReader::new(stream).lines();
        let mut line = || lines.next().unwrap_or_else(|| Ok(String::new()));
        let first = line()?;
        match first.strip_prefix('$') {
            Some("-1") => Ok(String::new()),
            Some(_) => Ok(line()?),
            None if first.starts_with('-') => Err(first.into()),
            None => Ok(first),
        }
    }
}

/// Starts a server that listens on a socket in this folder only.
fn start_server(folder: &Path) -> Result<Process> {
    let mut command = Command::new("redis-server");
    command
        .args(["--port", "0", "--unixsocket", "redis", "--save", ""])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    Process::start(&mut command)
        .map_err(|error| format!("{error}; install it, or give --store redis://HOST").into())
}
