//! A store, in memory unless the test has another one, that counts what it is asked and fails in the ways that a test
//! plans.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::clock::{Clock, Instant, Monotonic, Sleep};
use leasehold::store::memory::Memory;
use leasehold::store::{
    Answer, Ask, Claim, Facts, Failed, Grant, Held, Notice, Notices, Outcome, Renewal, Renewed,
    Store, Topic,
};
use leasehold::{BoxFuture, Error, ErrorKind, Name, Token};

pub use crate::wrapped::Call;
use crate::wrapped::{Hook, Wrapped};

/// The store. Clones share their leases, their faults and their counts.
pub type FaultyStore = Wrapped<Faulty>;

/// What makes it faulty.
#[derive(Debug, Clone)]
pub struct Faulty {
    facts: Facts,
    pub faults: Arc<Faults>,
    counts: Arc<Counts>,
}

/// What goes wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// It fails at once, with this kind of error.
    Fail(ErrorKind),
    Panic,
    /// It never begins, and never ends.
    Hang,
    /// It begins so many milliseconds later.
    Slow(u64),
    /// It does not begin before the fault is taken back.
    Wait,
    /// The same, and it blocks its thread: it is the next thing that the thread does after a pause of the process.
    Block,
    /// It is carried out and never answered. A notice is lost; those of a subscription do not arrive.
    Unanswered,
    /// With the grant the clock jumps until little is left of its term.
    Late,
    /// The grant has the first token.
    FirstToken,
    /// There is no outcome in the reply.
    NoOutcomes,
}

/// What is down fails so.
pub const DOWN: Fault = Fault::Fail(ErrorKind::Unavailable);

/// What the store does wrong.
#[derive(Debug)]
pub struct Faults {
    /// What the next calls of a kind meet, and how many of them.
    planned: Mutex<VecDeque<(Call, Fault, u32)>>,
    /// How many calls have met a fault.
    met: AtomicUsize,
    /// Names whose renewals fail.
    pub poisoned: Mutex<HashSet<Name>>,
    /// By how many milliseconds the server's clock is ahead; `None`: the store returns no server time.
    pub ahead_ms: Mutex<Option<u64>>,
    /// When the last claim or batch of renewals came.
    pub asked_at: Mutex<Instant>,
    /// The clock that leases are measured by.
    pub clock: Arc<FaultyClock>,
}

/// What was asked of it, since it was made.
#[derive(Debug, Default)]
struct Counts {
    claims: AtomicUsize,
    answers: AtomicUsize,
    withheld: AtomicUsize,
    subscriptions: AtomicUsize,
    connections: AtomicUsize,
}

/// A clock that can be made to panic once on the watchdog's thread, to let it oversleep, or to jump.
#[derive(Debug)]
pub struct FaultyClock {
    pub is_cracked: AtomicBool,
    pub is_slow: AtomicBool,
    /// By how many milliseconds it is ahead of the clock beneath.
    ahead_ms: AtomicU64,
    beneath: Arc<dyn Clock>,
}

impl FaultyClock {
    fn on(beneath: Arc<dyn Clock>) -> Self {
        Self {
            is_cracked: AtomicBool::new(false),
            is_slow: AtomicBool::new(false),
            ahead_ms: AtomicU64::new(0),
            beneath,
        }
    }

    fn ahead(&self) -> Duration {
        Duration::from_millis(self.ahead_ms.load(Ordering::SeqCst))
    }
}

fn is_watchdog() -> bool {
    std::thread::current().name() == Some("leasehold-watchdog")
}

impl Clock for FaultyClock {
    fn now(&self) -> Instant {
        if is_watchdog() && self.is_cracked.swap(false, Ordering::SeqCst) {
            panic!("the clock is broken, as it was told");
        }
        self.beneath.now().after(self.ahead())
    }

    fn sleep_until(&self, at: Instant) -> Sleep<'_> {
        Box::pin(async move {
            while is_watchdog() && self.is_slow.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            self.beneath.sleep_until(at.before(self.ahead())).await;
        })
    }

    fn name(&self) -> &'static str {
        "faulty"
    }
}

impl Faults {
    /// Has this fault meet the next calls of this kind, after those that were planned before.
    pub fn plan(&self, call: Call, fault: Fault, times: u32) {
        let mut planned = self.planned.lock().unwrap();
        planned.push_back((call, fault, times));
    }

    /// Has it meet all calls of this kind from then on.
    pub fn plan_always(&self, call: Call, fault: Fault) {
        self.plan(call, fault, u32::MAX);
    }

    /// Plans nothing for calls of this kind any more. Returns how many would have met a fault.
    pub fn heal(&self, call: Call) -> u32 {
        let left = self.left(call);
        let mut planned = self.planned.lock().unwrap();
        planned.retain(|(of, ..)| *of != call);
        left
    }

    /// How many calls of this kind are still to meet a fault.
    pub fn left(&self, call: Call) -> u32 {
        let planned = self.planned.lock().unwrap();
        let of_call = planned.iter().filter(|(of, ..)| *of == call);
        of_call
            .map(|(.., times)| *times)
            .fold(0, u32::saturating_add)
    }

    /// How many calls have met a fault.
    pub fn met(&self) -> usize {
        self.met.load(Ordering::SeqCst)
    }

    /// What this call meets.
    fn next(&self, call: Call) -> Option<Fault> {
        let mut planned = self.planned.lock().unwrap();
        let (_, fault, times) = planned
            .iter_mut()
            .find(|(of, _, times)| *of == call && *times > 0)?;
        if *times < u32::MAX {
            *times -= 1;
        }
        self.met.fetch_add(1, Ordering::SeqCst);
        Some(*fault)
    }

    /// The same, for a call that has not begun. A fault that comes later is returned.
    async fn meet(&self, call: Call) -> Result<Option<Fault>, Error> {
        match self.next(call) {
            Some(Fault::Fail(kind)) => {
                let error = Error::new(kind, "the store is down, as it was told");
                return Err(error);
            }
            Some(Fault::Panic) => {
                // Past the hook: a backtrace costs the watchdog's thread longer than a ttl here.
                std::panic::resume_unwind(Box::new("the store is broken, as it was told"));
            }
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Slow(by_ms)) => tokio::time::sleep(Duration::from_millis(by_ms)).await,
            Some(Fault::Wait) => {
                while self.left(call) > 0 {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
            Some(Fault::Block) => self.block(call),
            later => return Ok(later),
        }
        Ok(None)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "to block the thread is the fault"
    )]
    fn block(&self, call: Call) {
        while self.left(call) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The clock of its leases has come to be asked for something.
    fn asked(&self) {
        *self.asked_at.lock().unwrap() = self.clock.beneath.now();
    }
}

impl FaultyStore {
    /// A store without faults, on the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(Monotonic))
    }

    /// A store without faults, on this clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let clock = Arc::new(FaultyClock::on(clock));
        Self::with(Arc::new(Memory::with_clock(clock.clone())), clock)
    }

    /// A store that behaves as this one until a fault is planned.
    pub fn over(store: Arc<dyn Store>) -> Self {
        let clock = Arc::new(FaultyClock::on(store.clock()));
        Self::with(store, clock)
    }

    fn with(store: Arc<dyn Store>, clock: Arc<FaultyClock>) -> Self {
        let hook = Faulty {
            facts: store.facts(),
            faults: Arc::new(Faults {
                planned: Mutex::default(),
                met: AtomicUsize::new(0),
                poisoned: Mutex::default(),
                ahead_ms: Mutex::default(),
                asked_at: Mutex::new(Instant::ZERO),
                clock,
            }),
            counts: Arc::default(),
        };
        Self { store, hook }
    }

    /// The facts of the store.
    pub fn own_facts(&self) -> Facts {
        self.hook.facts
    }

    /// The same store, with these facts. It does as they say only if the client asks for nothing else.
    pub fn with_facts(mut self, facts: Facts) -> Self {
        self.hook.facts = facts;
        self
    }

    /// How many claims were made.
    pub fn claims(&self) -> usize {
        self.counts.claims.load(Ordering::SeqCst)
    }

    /// How many claims were answered by the store beneath.
    pub fn answers(&self) -> usize {
        self.counts.answers.load(Ordering::SeqCst)
    }

    /// How many claims were carried out and never answered.
    pub fn withheld(&self) -> usize {
        self.counts.withheld.load(Ordering::SeqCst)
    }

    /// How many subscriptions were begun.
    pub fn subscriptions(&self) -> usize {
        self.counts.subscriptions.load(Ordering::SeqCst)
    }

    /// How many connections of a lane's own were begun.
    pub fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::SeqCst)
    }

    /// How many handles of this store there are.
    pub fn handles(&self) -> usize {
        Arc::strong_count(&self.counts)
    }

    /// Whether claims and releases fail as unavailable.
    pub fn set_down(&self, is_down: bool) {
        for call in [Call::Acquire, Call::Release] {
            self.faults.heal(call);
            if is_down {
                self.faults.plan_always(call, DOWN);
            }
        }
    }

    /// Who has this name.
    pub async fn held(&self, name: &str) -> Option<Held> {
        let name = Name::new(name).unwrap();
        let held = self.store.inspect(&name, Duration::from_secs(1)).await;
        held.unwrap()
    }
}

impl Hook for Faulty {
    fn facts(&self, _: &dyn Store) -> Facts {
        self.facts
    }

    fn clock(&self, _: &dyn Store) -> Arc<dyn Clock> {
        self.faults.clock.clone()
    }

    fn is_shared(&self) -> bool {
        // Its clones are the stores of other clients.
        true
    }

    async fn acquire(
        &self,
        store: &dyn Store,
        claim: &Claim,
        ask: Ask,
        limit: Duration,
    ) -> Result<Answer, Failed> {
        let faults = &self.faults;
        self.counts.claims.fetch_add(1, Ordering::SeqCst);
        let fault = faults.meet(Call::Acquire).await.map_err(Failed::never)?;
        faults.asked();
        // Others may run between the question and the answer, as with a server.
        tokio::task::yield_now().await;
        let answer = store.acquire(claim, ask, limit).await;
        self.counts.answers.fetch_add(1, Ordering::SeqCst);
        match (fault, &answer) {
            (Some(Fault::Unanswered), _) => {
                self.counts.withheld.fetch_add(1, Ordering::SeqCst);
                std::future::pending().await
            }
            (Some(Fault::Late), Ok(Answer::Granted(_))) => {
                let jump = u64::try_from(claim.ttl.as_millis() * 5 / 6).unwrap();
                faults.clock.ahead_ms.fetch_add(jump, Ordering::SeqCst);
                answer
            }
            (Some(Fault::FirstToken), Ok(Answer::Granted(_))) => {
                let first = Token::new(1).expect("valid");
                Ok(Answer::Granted(Grant::new(first)))
            }
            _ => answer,
        }
    }

    async fn renew(&self, store: &dyn Store, batch: &[Renewal], limit: Duration) -> Renewed {
        let faults = &self.faults;
        faults.asked();
        let fault = faults.meet(Call::Renew).await.expect("no test plans this");
        let mut renewed = store.renew(batch, limit).await;
        for (renewal, outcome) in batch.iter().zip(&mut renewed.outcomes) {
            if faults.poisoned.lock().unwrap().contains(&renewal.name) {
                *outcome = Outcome::Unknown(Error::new(ErrorKind::Misconfigured, "wrong type"));
            }
        }
        if fault == Some(Fault::NoOutcomes) {
            renewed.outcomes.clear();
        }
        let now = Duration::from_nanos(faults.clock.now().as_nanos());
        let ahead_ms = *faults.ahead_ms.lock().unwrap();
        renewed.at(ahead_ms.map(|ahead_ms| now + Duration::from_millis(ahead_ms)))
    }

    async fn notices(&self, store: &dyn Store) -> Result<Option<Box<dyn Notices>>, Error> {
        self.counts.subscriptions.fetch_add(1, Ordering::SeqCst);
        if self.faults.meet(Call::Subscribe).await? == Some(Fault::Unanswered) {
            return Ok(None);
        }
        let notices = store.notices().await?.unwrap();
        let faults = self.faults.clone();
        let lossy = LossyNotices { notices, faults };
        Ok(Some(Box::new(lossy) as Box<dyn Notices>))
    }

    async fn around<T: Send>(
        &self,
        call: Call,
        asked: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        match call {
            Call::Connect => self.counts.connections.fetch_add(1, Ordering::SeqCst),
            _ => 0,
        };
        self.faults.meet(call).await?;
        asked.await
    }
}

/// The notices of the store beneath, unless they are lost.
#[derive(Debug)]
struct LossyNotices {
    notices: Box<dyn Notices>,
    faults: Arc<Faults>,
}

impl Notices for LossyNotices {
    fn follow(&self, topic: &Topic) {
        self.notices.follow(topic);
    }

    fn unfollow(&self, topic: &Topic) {
        self.notices.unfollow(topic);
    }

    fn next(&self) -> BoxFuture<'_, Notice> {
        Box::pin(async move {
            loop {
                let notice = self.notices.next().await;
                if self.faults.next(Call::Notice).is_none() {
                    return notice;
                }
            }
        })
    }
}
