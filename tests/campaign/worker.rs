//! A worker: this test binary once more, as a process that can be stopped and killed. Again and again it takes a name,
//! reads the register of that name, works, checks, writes, and gives the name back. It writes down each step.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use leasehold::fence::Bearer;
use leasehold::store::{self, Store};
use leasehold::{Attempt, Client, Error, Lease, OutagePolicy};
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

use crate::ear::Ear;
use crate::forked::{self, Unfinished};
use crate::harness::wait::{now, pause};
use crate::history::{Facts, Operation, Phase, Scribe};
use crate::idle::IdleLeases;
use crate::pool::PoolTasks;
use crate::register::Register;
use crate::rivals::{Locker, Rival};
use crate::witness::{Bug, Witness};

/// Set only in a worker, or in a job.
pub(crate) const ROLE: &str = "CAMPAIGN_ROLE";
/// How often a holder asks its lease.
pub(crate) const STEP: Duration = Duration::from_millis(15);

/// What a worker is told when it starts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Role {
    /// Its name in the history.
    pub(crate) process: String,
    /// Where the history is written, and its orders come from.
    pub(crate) folder: PathBuf,
    /// The URL of the store of leases.
    pub(crate) store: String,
    /// The URL of the registers.
    pub(crate) storage: String,
    pub(crate) names: Vec<String>,
    pub(crate) ttl: Duration,
    pub(crate) seed: u64,
    pub(crate) kind: Kind,
    /// Whether it takes permits and shares as well.
    pub(crate) has_pools: bool,
    /// What its environment has beside that of the runner.
    pub(crate) environment: Vec<(String, String)>,
}

/// How it locks and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// With leasehold and a fence.
    Sound,
    /// With leasehold, but without a fence.
    Unfenced,
    /// With a bug in it.
    Planted(Bug),
    /// With another lock.
    Rival(Rival),
}

/// An order to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Stop yourself right before your next write, after the last check.
    StopBeforeWrite,
    /// Fork right before your next write, after the last check, and leave it to the child.
    Fork,
    /// Block each thread of your runtime for that long.
    Block(Duration),
    /// Take each name once more, and end.
    Finish,
}

impl Role {
    pub(crate) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("plain fields")
    }

    /// The role of a process that was started with one.
    pub(crate) fn of_this_process() -> Option<Self> {
        let text = std::env::var(ROLE).ok()?;
        Some(serde_json::from_str(&text).expect("written by the runner"))
    }

    /// Where this worker receives its orders.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join(format!("{}.orders", self.process))
    }

    /// What tells a job to leave a process behind.
    pub(crate) fn fork_order(&self) -> PathBuf {
        self.folder.join("fork.order")
    }

    /// What is there as long as that process lives.
    pub(crate) fn fork_note(&self) -> PathBuf {
        self.folder.join("fork.note")
    }

    /// What is there as long as a child of this worker lives.
    pub(crate) fn note_of_fork(&self) -> PathBuf {
        self.folder.join(format!("{}.forked", self.process))
    }

    /// What it leaves before it stops itself.
    pub(crate) fn note_of_stop(&self) -> PathBuf {
        self.folder.join(format!("{}.stopped", self.process))
    }
}

/// What its orders changed.
#[derive(Debug, Default)]
struct Orders {
    stops: AtomicBool,
    forks: AtomicBool,
    finishes: AtomicBool,
    block_ms: AtomicU64,
}

impl Orders {
    fn listen(self: &Arc<Self>, role: &Role) {
        let socket = UnixDatagram::bind(role.socket()).expect("the folder is ours");
        let orders = self.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 256];
            while let Ok(length) = socket.recv(&mut bytes) {
                match serde_json::from_slice(&bytes[..length]).expect("an order") {
                    Order::StopBeforeWrite => orders.stops.store(true, Ordering::SeqCst),
                    Order::Fork => orders.forks.store(true, Ordering::SeqCst),
                    Order::Finish => orders.finishes.store(true, Ordering::SeqCst),
                    Order::Block(time) => {
                        let ms = time.as_millis() as u64;
                        orders.block_ms.store(ms, Ordering::SeqCst);
                    }
                }
            }
        });
    }

    /// Whether it was told to fork since this was asked last.
    fn fork_is_due(&self) -> bool {
        self.forks.swap(false, Ordering::SeqCst)
    }

    fn finishes(&self) -> bool {
        self.finishes.load(Ordering::SeqCst)
    }

    /// Stands still here, if it was told to.
    #[expect(clippy::disallowed_methods, reason = "to stand still is the fault")]
    fn stop_here(&self, role: &Role) {
        if self.stops.swap(false, Ordering::SeqCst) {
            std::fs::write(role.note_of_stop(), "").expect("the folder is ours");
            kill_process(getpid(), Signal::STOP).expect("it is this process");
            // Another thread may have received the signal, and this one goes on for a moment.
            std::thread::sleep(STEP);
        }
    }

    /// Blocks the threads of the runtime, if it was told to.
    #[expect(clippy::disallowed_methods, reason = "to block them is the fault")]
    fn block_here(&self) {
        let ms = self.block_ms.swap(0, Ordering::SeqCst);
        if ms > 0 {
            let block = move || std::thread::sleep(Duration::from_millis(ms));
            tokio::spawn(async move { block() });
            block();
        }
    }
}

struct Worker {
    role: Role,
    scribe: Scribe,
    ear: Ear,
    orders: Arc<Orders>,
    random: Rng,
    /// Whether the store keeps a line of who waits.
    has_queue: bool,
    writes: u64,
}

#[test]
fn a_worker_takes_names_and_writes() {
    // In the suite itself there is no role: the campaign starts it with one.
    let Some(role) = Role::of_this_process() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let scribe = Scribe::in_folder(&role.folder, &role.process);
        let orders = Arc::<Orders>::default();
        orders.listen(&role);
        let worker = Worker {
            random: Rng::with_seed(role.seed),
            role,
            ear: Ear::of(scribe.clone()),
            scribe,
            orders,
            has_queue: false,
            writes: 0,
        };
        // On a thread of the runtime, so that `block_here` blocks one.
        tokio::spawn(worker.work())
            .await
            .expect("it does not panic");
    });
    // Without the rest of the test runner, which has nothing to report.
    std::process::exit(0);
}

impl Worker {
    async fn work(mut self) {
        match self.role.kind {
            Kind::Rival(rival) => self.work_with(rival).await,
            Kind::Sound | Kind::Unfenced => self.work_with_leases(None).await,
            Kind::Planted(bug) => self.work_with_leases(Some(bug)).await,
        }
    }

    async fn work_with_leases(&mut self, bug: Option<Bug>) {
        let client = self.client(bug).await;
        let idle = (self.role.kind == Kind::Sound)
            .then(|| IdleLeases::keep(&client, &self.scribe, &self.ear));
        let (scribe, ear) = (&self.scribe, &self.ear);
        let pools =
            (self.role.has_pools).then(|| PoolTasks::start(&client, scribe, ear, &mut self.random));
        while !self.orders.finishes() {
            let name = self.any_name();
            if let Some(lease) = self.acquired(&client, &name, false).await {
                self.hold(&client, lease).await;
            }
            self.rest().await;
        }
        for name in self.role.names.clone() {
            if let Some(lease) = self.acquired(&client, &name, true).await {
                release_noted(&self.scribe, lease).await;
            }
        }
        if let Some(pools) = pools {
            pools.finish().await;
        }
        if let Some(idle) = idle {
            idle.release().await;
        }
        client.shutdown(Duration::from_secs(5)).await;
    }

    async fn client(&mut self, bug: Option<Bug>) -> Client {
        loop {
            let client = async {
                let store = store::open(&self.role.store).await?;
                self.has_queue = store.facts().has_queue;
                let witness: Arc<dyn Store> =
                    Arc::new(Witness::new(store, self.scribe.clone(), bug));
                let builder = Client::builder().shared_store(witness);
                builder.ttl(self.role.ttl).build().await
            };
            match client.await {
                Ok(client) => return client,
                // The store is down: that is what a campaign is for.
                Err(_) => pause(Duration::from_millis(100)).await,
            }
        }
    }

    async fn acquired(&mut self, client: &Client, name: &str, is_last: bool) -> Option<Lease> {
        let call = self.scribe.invoke(Operation::Acquire, Facts::named(name));
        let request = client.request(name).on_outage(OutagePolicy::WaitOut);
        let outcome: Result<Option<Lease>, Error> = if is_last {
            request.acquire().await.map(Some)
        } else if self.random.bool() {
            let request = request.acquire_within(5 * self.role.ttl);
            request.await.map(Some)
        } else {
            request.try_acquire().await.map(|attempt| match attempt {
                Attempt::Acquired(lease) => Some(lease),
                Attempt::Held(_) => None,
            })
        };
        let (phase, facts) = match &outcome {
            Ok(Some(lease)) => (Phase::Answer, facts_of(lease)),
            Ok(None) => (Phase::Refused, Facts::named(name)),
            Err(error) => {
                let facts = Facts::named(name).with_detail(error.to_string());
                (Phase::Unknown, facts)
            }
        };
        self.scribe.end(Operation::Acquire, phase, call, facts);
        let lease = outcome.ok().flatten()?;
        self.ear.await_loss(&lease, facts_of(&lease));
        Some(lease)
    }

    async fn hold(&mut self, client: &Client, lease: Lease) {
        let mut register = Register::new(&self.role.storage, lease.name().as_str());
        for _ in 0..self.random.u32(1..4) {
            if !self.write_once(client, &lease, &mut register).await {
                break;
            }
        }
        release_noted(&self.scribe, lease).await;
    }

    /// Reads, works, checks and writes. Returns whether there may be a next time.
    async fn write_once(
        &mut self,
        client: &Client,
        lease: &Lease,
        register: &mut Register,
    ) -> bool {
        let fence: Option<&dyn Bearer> = match self.role.kind {
            Kind::Sound | Kind::Planted(_) => Some(lease),
            Kind::Unfenced | Kind::Rival(_) => None,
        };
        let facts = facts_of(lease);
        let Some(previous) = self.read(register, fence, &facts).await else {
            return false;
        };
        if !self.work_while_held(lease, &facts).await {
            return false;
        }
        let fence = fence.filter(|_| self.role.kind != Kind::Planted(Bug::SkippedComparison));
        // The pass is drawn before the pause, as by a service that sends it to its storage in a message: the guard's own
        // check of the lease would find some of what the fence is for.
        let pass = match lease.pass() {
            Ok(pass) => pass,
            Err(_) => return false,
        };
        // One child at a time: the note of one would be taken for that of the other.
        if !self.role.note_of_fork().exists() && self.orders.fork_is_due() {
            self.writes += 1;
            forked::leave_a_child(&Unfinished {
                role: &self.role,
                client,
                lease,
                pass: &pass,
                has_fence: fence.is_some(),
                previous,
                number: self.writes,
            });
            return false;
        }
        let fence = fence.map(|_| &pass as &dyn Bearer);
        self.write(register, fence, facts, previous).await
    }

    /// Works for a while. Returns whether the lease is still held then.
    async fn work_while_held(&mut self, lease: &Lease, facts: &Facts) -> bool {
        let is_long = match self.role.kind {
            Kind::Planted(bug) => bug != Bug::ReusedToken && bug != Bug::SkippedComparison,
            _ => self.random.u32(0..12) == 0,
        };
        let work = match is_long {
            true => self.role.ttl * self.random.u32(10..25) / 10,
            false => Duration::from_millis(self.random.u64(5..150)),
        };
        let end = now().after(work);
        loop {
            self.orders.block_here();
            if !is_held(&self.scribe, lease, facts) {
                return false;
            }
            if now() >= end || self.orders.finishes() {
                return true;
            }
            pause(STEP).await;
        }
    }

    /// What the register has. `None` if it could not be read.
    async fn read(
        &self,
        register: &mut Register,
        fence: Option<&dyn Bearer>,
        facts: &Facts,
    ) -> Option<Option<String>> {
        let call = self.scribe.invoke(Operation::Read, facts.clone());
        let mut facts = facts.clone();
        match register.read(fence).await {
            Ok(value) => {
                facts.value = value.clone();
                self.scribe.end(Operation::Read, Phase::Answer, call, facts);
                Some(value)
            }
            Err(failed) => {
                let facts = facts.with_detail(failed.why);
                self.scribe.end(Operation::Read, failed.phase, call, facts);
                None
            }
        }
    }

    async fn write(
        &mut self,
        register: &mut Register,
        fence: Option<&dyn Bearer>,
        mut facts: Facts,
        previous: Option<String>,
    ) -> bool {
        self.writes += 1;
        facts.value = Some(format!("{}-{}", self.role.process, self.writes));
        facts.previous = previous;
        self.orders.stop_here(&self.role);
        register.write_noted(&self.scribe, fence, facts).await
    }

    async fn work_with(&mut self, rival: Rival) {
        let locker = Locker::new(rival, &self.role.store, self.role.ttl);
        while !self.orders.finishes() {
            let name = self.any_name();
            if let Some(locked) = locker.lock(&name).await {
                let mut register = Register::new(&self.role.storage, &name);
                let facts = Facts::named(&name);
                if let Some(previous) = self.read(&mut register, None, &facts).await {
                    pause(Duration::from_millis(self.random.u64(5..150))).await;
                    self.write(&mut register, None, facts, previous).await;
                }
                locker.unlock(locked).await;
            }
            self.rest().await;
        }
    }

    fn any_name(&mut self) -> String {
        let index = self.random.usize(..self.role.names.len());
        self.role.names[index].clone()
    }

    async fn rest(&mut self) {
        pause(Duration::from_millis(self.random.u64(5..60))).await;
    }
}

/// Gives a lease back, and notes it.
pub(crate) async fn release_noted(scribe: &Scribe, lease: Lease) {
    let facts = facts_of(&lease);
    let call = scribe.invoke(Operation::Release, facts.clone());
    let outcome = lease.release().await;
    let facts = facts.with_detail(format!("{outcome:?}"));
    scribe.end(Operation::Release, Phase::Answer, call, facts);
}

/// Asks a lease whether it is held, and notes what it says.
pub(crate) fn is_held(scribe: &Scribe, lease: &Lease, facts: &Facts) -> bool {
    let asked_at = now();
    let is_held = lease.check().is_ok();
    let phase = match is_held {
        true => Phase::Answer,
        false => Phase::Refused,
    };
    scribe.note_at(asked_at, Operation::Check, phase, 0, facts.clone());
    is_held
}

pub(crate) fn facts_of(lease: &Lease) -> Facts {
    Facts::held(lease.name().as_str(), lease.holder(), lease.token().get())
}
