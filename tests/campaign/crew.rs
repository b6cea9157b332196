//! The worker processes and the tool's jobs of a run, as the runner sees them.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use tokio::task::JoinHandle;

use crate::forked;
use crate::harness::child::GuardedChild;
use crate::harness::preload;
use crate::harness::wait::{at, now};
use crate::history::{Facts, Operation, Phase, Scribe};
use crate::worker::{Kind, Order, ROLE, Role};

/// The ttl of the tool's leases: it needs time to end its job before the lease is over.
const TOOL_TTL: &str = "4s";

/// A worker process.
pub(crate) struct WorkerProcess {
    role: Role,
    /// How often it was started.
    starts: u32,
    base: String,
    /// None only while another one is started.
    child: Option<GuardedChild>,
}

/// The workers and the tool of a run.
pub(crate) struct Crew {
    pub(crate) workers: Vec<WorkerProcess>,
    pub(crate) tool: Option<Tool>,
}

/// The tool, started again and again.
pub(crate) struct Tool {
    role: Role,
    running: Arc<Mutex<Option<GuardedChild>>>,
    finishes: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

fn this_test(test: &str, role: &Role) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test binary"));
    command
        .args(arguments(test))
        .env(ROLE, role.to_text())
        .envs(role.environment.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

pub(crate) const fn arguments(test: &str) -> [&str; 5] {
    [
        "--exact",
        test,
        "--quiet",
        "--nocapture",
        "--test-threads=1",
    ]
}

impl WorkerProcess {
    pub(crate) fn start(role: Role) -> Self {
        let base = role.process.clone();
        let child = Some(Self::spawn(&role));
        Self {
            role,
            starts: 1,
            base,
            child,
        }
    }

    fn spawn(role: &Role) -> GuardedChild {
        let mut command = this_test("worker::a_worker_takes_names_and_writes", role);
        preload::load(&mut command, forked::fork_library());
        GuardedChild::spawn(command, "cargo")
    }

    fn child(&self) -> &GuardedChild {
        self.child.as_ref().expect("one was started")
    }

    /// Its name in the history.
    pub(crate) fn name(&self) -> &str {
        &self.role.process
    }

    /// Gives it an order, if it listens already.
    pub(crate) fn order(&self, order: Order) {
        let bytes = serde_json::to_vec(&order).expect("plain");
        let socket = UnixDatagram::unbound().expect("a socket");
        let _ = socket.send_to(&bytes, self.role.socket());
    }

    pub(crate) fn pause(&self) {
        self.child().pause();
    }

    pub(crate) fn resume(&self) {
        let _ = fs::remove_file(self.role.note_of_stop());
        self.child().resume();
    }

    /// Whether it stands still before a write, or did so since the last time that it was resumed.
    pub(crate) fn stands_still(&self) -> bool {
        self.role.note_of_stop().exists()
    }

    /// Whether a child that it forked lives.
    pub(crate) fn has_forked_child(&self) -> bool {
        self.role.note_of_fork().exists()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child
            .as_mut()
            .is_none_or(|child| child.ended().is_some())
    }

    /// Kills it, and starts another one.
    pub(crate) fn replace(&mut self, scribe: &Scribe) {
        self.starts += 1;
        let dead = self.role.process.clone();
        self.role.process = format!("{}.{}", self.base, self.starts);
        self.role.seed ^= u64::from(self.starts) << 32;
        self.child = None;
        scribe.note_of(&dead, Operation::Death, Phase::Answer, Facts::default());
        self.child = Some(Self::spawn(&self.role));
    }
}

impl Tool {
    /// Runs job after job with the tool.
    pub(crate) fn start(role: Role) -> Self {
        let running = Arc::<Mutex<Option<GuardedChild>>>::default();
        let finishes = Arc::<AtomicBool>::default();
        let task = tokio::spawn(run_jobs(role.clone(), running.clone(), finishes.clone()));
        Self {
            role,
            running,
            finishes,
            task,
        }
    }

    /// Does this to the tool that runs, if one does.
    pub(crate) fn with(&self, act: impl FnOnce(&GuardedChild)) {
        if let Some(tool) = &*self.running.lock().expect("no panic") {
            act(tool);
        }
    }

    /// SIGKILL.
    pub(crate) fn kill(&self) {
        *self.running.lock().expect("no panic") = None;
    }

    /// Has its next job leave a process behind that writes later.
    pub(crate) fn fork_job(&self) {
        fs::write(self.role.fork_order(), "").expect("the folder is ours");
    }

    /// Whether it still has to, or that process still lives.
    pub(crate) fn job_forks(&self) -> bool {
        self.role.fork_order().exists() || self.role.fork_note().exists()
    }

    /// Waits for its job, and starts no other one.
    pub(crate) async fn finish(self) {
        self.finishes.store(true, Ordering::SeqCst);
        self.task.await.expect("it does not panic");
    }
}

async fn run_jobs(role: Role, running: Arc<Mutex<Option<GuardedChild>>>, ends: Arc<AtomicBool>) {
    let mut random = Rng::with_seed(role.seed);
    let mut number = 0;
    while !ends.load(Ordering::SeqCst) {
        number += 1;
        let mut job = role.clone();
        job.process = format!("{}.{number}", role.process);
        job.seed = random.u64(..);
        let name = &role.names[random.usize(..role.names.len())];
        *running.lock().expect("no panic") = Some(spawn_tool(&job, name));
        loop {
            at(now().after(Duration::from_millis(20))).await;
            let mut running = running.lock().expect("no panic");
            if running.as_mut().is_none_or(|tool| tool.ended().is_some()) {
                *running = None;
                break;
            }
        }
    }
}

fn spawn_tool(job: &Role, name: &str) -> GuardedChild {
    let config = job.folder.join("config.toml");
    fs::write(&config, "").expect("the folder is ours");
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    // The variables of this test are no settings of the tool.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LEASEHOLD_") {
            command.env_remove(name);
        }
    }
    command
        .args(["run", "--quiet", "--wait", "3s", "--ttl", TOOL_TTL])
        .args(["--kill-after", "500ms", "--store", &job.store, "--config"])
        .arg(config)
        .args([name, "--"])
        .arg(std::env::current_exe().expect("the test binary"))
        .args(arguments("job::a_job_writes_under_the_tool"))
        .env(ROLE, job.to_text())
        .envs(job.environment.iter().cloned())
        .env("XDG_RUNTIME_DIR", &job.folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    GuardedChild::spawn(command, "cargo")
}

impl Crew {
    /// Starts so many workers of this role, and the tool.
    pub(crate) fn start(role: &Role, workers: usize, has_tool: bool) -> Self {
        let mut random = Rng::with_seed(role.seed);
        let mut one = |process: String| Role {
            process,
            seed: random.u64(..),
            ..role.clone()
        };
        let workers = (1..=workers).map(|number| one(format!("worker{number}")));
        let workers = workers.map(WorkerProcess::start).collect();
        let has_tool = has_tool && role.kind == Kind::Sound;
        let tool = has_tool.then(|| Tool::start(one("job".into())));
        Self { workers, tool }
    }

    /// Lets everything end by itself, for at most so long.
    pub(crate) async fn finish(&mut self, limit: Duration) {
        if let Some(tool) = self.tool.take() {
            tool.with(GuardedChild::resume);
            tool.finish().await;
        }
        let end = now().after(limit);
        while now() < end && !self.workers.iter_mut().all(WorkerProcess::has_ended) {
            for worker in &mut self.workers {
                if !worker.has_ended() {
                    worker.resume();
                    worker.order(Order::Finish);
                }
            }
            at(now().after(Duration::from_millis(50))).await;
        }
    }
}
