//! A store in memory that counts what it is asked, and fails in the ways that a test chooses.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::clock::{Clock, Instant, Monotonic, Sleep};
use leasehold::store::memory::Memory;
use leasehold::store::{
    Answer, Ask, Claim, Eviction, Facts, Failed, Grant, Hazard, Held, Lane, Member, Notice,
    Notices, Outcome, Release, Renewal, Renewed, Store, Topic,
};
use leasehold::{BoxFuture, ClientId, Error, ErrorKind, Holder, Name, Token};

/// The store. Clones share their leases, their faults and their counts.
#[derive(Debug, Clone)]
pub(crate) struct FaultyStore {
    memory: Memory,
    facts: Facts,
    pub(crate) faults: Arc<Faults>,
    counts: Arc<Counts>,
}

/// The ways in which it fails.
#[derive(Debug)]
pub(crate) struct Faults {
    /// Claims and releases fail as unavailable.
    pub(crate) is_down: AtomicBool,
    /// Claims are carried out and never answered.
    pub(crate) is_silent: AtomicBool,
    /// Leaving a queue takes until this is taken back.
    pub(crate) is_slow_to_leave: AtomicBool,
    /// Notices are lost, but for the one that says that the store listens.
    pub(crate) is_mute: AtomicBool,
    /// Subscriptions are refused with this kind of error.
    pub(crate) refuses_notices: Mutex<Option<ErrorKind>>,
    /// So many of the next subscriptions never end.
    pub(crate) hang_next_subscriptions: AtomicU32,
    /// So many of the next connections of a lane's own never end.
    pub(crate) hang_next_connections: AtomicU32,
    /// So many of the next connections of a lane's own panic.
    pub(crate) panic_next_connections: AtomicU32,
    /// Renewals never end.
    pub(crate) hangs: AtomicBool,
    /// So many of the next renewals never end.
    pub(crate) hang_next: AtomicU32,
    /// So many of the next claims are carried out and never end.
    pub(crate) hang_next_claims: AtomicU32,
    /// So many claims reach the store; those after them never leave.
    pub(crate) claims_left: AtomicU32,
    /// With so many of the next grants the clock jumps until little is left of their term.
    pub(crate) late_grants: AtomicU32,
    /// Every grant has the first token.
    pub(crate) forgets_tokens: AtomicBool,
    /// So many of the next releases never begin, and never end.
    pub(crate) hang_next_releases: AtomicU32,
    /// So many of the next releases fail at once.
    pub(crate) fail_next_releases: AtomicU32,
    /// So many of the next renewals panic.
    pub(crate) panic_next_renewals: AtomicU32,
    /// So many of the next releases panic.
    pub(crate) panic_next_releases: AtomicU32,
    /// Replies to batches are cut to this length.
    pub(crate) answers: AtomicUsize,
    /// Names whose renewals fail.
    pub(crate) poisoned: Mutex<HashSet<Name>>,
    /// By how many milliseconds the server's clock is ahead; `None`: the store returns no server time.
    pub(crate) ahead_ms: Mutex<Option<u64>>,
    /// When the last claim or batch of renewals came.
    pub(crate) asked_at: Mutex<Instant>,
    /// The clock that leases are measured by.
    pub(crate) clock: Arc<FaultyClock>,
}

/// What was asked of it, since it was made.
#[derive(Debug, Default)]
struct Counts {
    claims: AtomicUsize,
    answers: AtomicUsize,
    withheld: AtomicUsize,
    leaves_begun: AtomicUsize,
    leaves: AtomicUsize,
    subscriptions: AtomicUsize,
    connections: AtomicUsize,
}

/// A clock that can be told to panic once on the watchdog's thread, to let it oversleep, or to jump.
#[derive(Debug)]
pub(crate) struct FaultyClock {
    pub(crate) is_cracked: AtomicBool,
    pub(crate) is_slow: AtomicBool,
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

impl FaultyStore {
    /// A store without faults, on the machine's clock.
    pub(crate) fn new() -> Self {
        Self::with_clock(Arc::new(Monotonic))
    }

    /// A store without faults, on this clock.
    pub(crate) fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let clock = Arc::new(FaultyClock::on(clock));
        let memory = Memory::with_clock(clock.clone());
        Self {
            facts: memory.facts(),
            memory,
            faults: Arc::new(Faults::none(clock)),
            counts: Arc::default(),
        }
    }

    /// The same store, with these facts. It does as they say only if the client asks for nothing else.
    pub(crate) fn with_facts(mut self, facts: Facts) -> Self {
        self.facts = facts;
        self
    }

    /// How many claims were made.
    pub(crate) fn claims(&self) -> usize {
        self.counts.claims.load(Ordering::SeqCst)
    }

    /// How many claims were answered by the store beneath.
    pub(crate) fn answers(&self) -> usize {
        self.counts.answers.load(Ordering::SeqCst)
    }

    /// How many claims were carried out and never answered.
    pub(crate) fn withheld(&self) -> usize {
        self.counts.withheld.load(Ordering::SeqCst)
    }

    /// How often a client began to leave a queue.
    pub(crate) fn leaves_begun(&self) -> usize {
        self.counts.leaves_begun.load(Ordering::SeqCst)
    }

    /// How often a client left a queue.
    pub(crate) fn leaves(&self) -> usize {
        self.counts.leaves.load(Ordering::SeqCst)
    }

    /// How many subscriptions were begun.
    pub(crate) fn subscriptions(&self) -> usize {
        self.counts.subscriptions.load(Ordering::SeqCst)
    }

    /// How many connections of a lane's own were begun.
    pub(crate) fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::SeqCst)
    }

    /// How many handles of this store there are.
    pub(crate) fn handles(&self) -> usize {
        Arc::strong_count(&self.counts)
    }

    /// Whether it cannot be reached.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.faults.is_down.store(is_down, Ordering::SeqCst);
    }

    /// Whether its notices are lost, but for the one that says that it listens.
    pub(crate) fn set_mute(&self, is_mute: bool) {
        self.faults.is_mute.store(is_mute, Ordering::SeqCst);
    }

    /// Whether it carries claims out and never answers them.
    pub(crate) fn set_silent(&self, is_silent: bool) {
        self.faults.is_silent.store(is_silent, Ordering::SeqCst);
    }

    /// Whether leaving a queue takes until this is taken back.
    pub(crate) fn set_slow_to_leave(&self, is_slow: bool) {
        let faults = &self.faults;
        faults.is_slow_to_leave.store(is_slow, Ordering::SeqCst);
    }

    /// From now on subscriptions are refused.
    pub(crate) fn refuse_notices(&self, kind: ErrorKind) {
        *self.faults.refuses_notices.lock().unwrap() = Some(kind);
    }

    /// Who has this name.
    pub(crate) async fn held(&self, name: &str) -> Option<Held> {
        let name = Name::new(name).unwrap();
        let held = self.memory.inspect(&name, Duration::from_secs(1)).await;
        held.unwrap()
    }

    fn reach(&self) -> Result<(), Error> {
        if self.faults.is_down.load(Ordering::SeqCst) {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "the store is down, as it was told",
            ));
        }
        Ok(())
    }

    fn asked(&self) {
        *self.faults.asked_at.lock().unwrap() = self.faults.clock.beneath.now();
    }

    async fn acquire_badly(
        &self,
        claim: &Claim,
        ask: Ask,
        limit: Duration,
    ) -> Result<Answer, Failed> {
        let faults = &self.faults;
        self.counts.claims.fetch_add(1, Ordering::SeqCst);
        self.reach().map_err(Failed::never)?;
        if !is_next(&faults.claims_left) {
            let error = Error::new(ErrorKind::Unavailable, "the store is down, as it was told");
            return Err(Failed::never(error));
        }
        self.asked();
        // Others may run between the question and the answer, as with a server.
        tokio::task::yield_now().await;
        let answer = self.memory.acquire(claim, ask, limit).await;
        self.counts.answers.fetch_add(1, Ordering::SeqCst);
        if faults.is_silent.load(Ordering::SeqCst) || is_next(&faults.hang_next_claims) {
            self.counts.withheld.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        let is_granted = matches!(answer, Ok(Answer::Granted(_)));
        if is_granted && is_next(&faults.late_grants) {
            let jump = u64::try_from(claim.ttl.as_millis() * 5 / 6).unwrap();
            faults.clock.ahead_ms.fetch_add(jump, Ordering::SeqCst);
        }
        if is_granted && faults.forgets_tokens.load(Ordering::SeqCst) {
            let first = Token::new(1).expect("valid");
            return Ok(Answer::Granted(Grant::new(first)));
        }
        answer
    }

    async fn renew_badly(&self, batch: &[Renewal], limit: Duration) -> Renewed {
        self.asked();
        let faults = &self.faults;
        panic_if_next(&faults.panic_next_renewals);
        if faults.hangs.load(Ordering::SeqCst) || is_next(&faults.hang_next) {
            std::future::pending::<()>().await;
        }
        let mut renewed = self.memory.renew(batch, limit).await;
        for (renewal, outcome) in batch.iter().zip(&mut renewed.outcomes) {
            if faults.poisoned.lock().unwrap().contains(&renewal.name) {
                *outcome = Outcome::Unknown(Error::new(ErrorKind::Misconfigured, "wrong type"));
            }
        }
        renewed
            .outcomes
            .truncate(faults.answers.load(Ordering::SeqCst));
        let now = Duration::from_nanos(faults.clock.now().as_nanos());
        let ahead_ms = *faults.ahead_ms.lock().unwrap();
        renewed.server_time = ahead_ms.map(|ahead_ms| now + Duration::from_millis(ahead_ms));
        renewed
    }

    async fn subscribe_badly(&self) -> Result<Option<Box<dyn Notices>>, Error> {
        if let Some(kind) = *self.faults.refuses_notices.lock().unwrap() {
            return Err(Error::new(
                kind,
                "the store gives no notices, as it was told",
            ));
        }
        self.counts.subscriptions.fetch_add(1, Ordering::SeqCst);
        if is_next(&self.faults.hang_next_subscriptions) {
            std::future::pending::<()>().await;
        }
        let notices = self.memory.notices().await?.unwrap();
        let faults = self.faults.clone();
        let lossy = LossyNotices { notices, faults };
        Ok(Some(Box::new(lossy) as Box<dyn Notices>))
    }
}

impl Faults {
    fn none(clock: Arc<FaultyClock>) -> Self {
        Self {
            is_down: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
            is_slow_to_leave: AtomicBool::new(false),
            is_mute: AtomicBool::new(false),
            refuses_notices: Mutex::default(),
            hang_next_subscriptions: AtomicU32::new(0),
            hang_next_connections: AtomicU32::new(0),
            panic_next_connections: AtomicU32::new(0),
            hangs: AtomicBool::new(false),
            hang_next: AtomicU32::new(0),
            hang_next_claims: AtomicU32::new(0),
            claims_left: AtomicU32::new(u32::MAX),
            late_grants: AtomicU32::new(0),
            forgets_tokens: AtomicBool::new(false),
            hang_next_releases: AtomicU32::new(0),
            fail_next_releases: AtomicU32::new(0),
            panic_next_renewals: AtomicU32::new(0),
            panic_next_releases: AtomicU32::new(0),
            answers: AtomicUsize::new(usize::MAX),
            poisoned: Mutex::default(),
            ahead_ms: Mutex::default(),
            asked_at: Mutex::new(Instant::ZERO),
            clock,
        }
    }
}

/// Whether one more of these is to go wrong.
fn is_next(count: &AtomicU32) -> bool {
    let taken = count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
        left.checked_sub(1)
    });
    taken.is_ok()
}

/// Panics past the hook: a backtrace costs the watchdog's thread longer than a ttl here.
fn panic_if_next(count: &AtomicU32) {
    if is_next(count) {
        std::panic::resume_unwind(Box::new("the store is broken, as it was told"));
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for FaultyStore {
    fn facts(&self) -> Facts {
        self.facts
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.faults.clock.clone()
    }

    fn location(&self) -> String {
        "a faulty store".into()
    }

    fn shard(&self, name: &Name) -> u32 {
        self.memory.shard(name)
    }

    fn acquire<'a>(
        &'a self,
        claim: &'a Claim,
        ask: Ask,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Answer, Failed>> {
        Box::pin(self.acquire_badly(claim, ask, limit))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], limit: Duration) -> BoxFuture<'a, Renewed> {
        Box::pin(self.renew_badly(batch, limit))
    }

    fn release<'a>(
        &'a self,
        name: &'a Name,
        holder: Holder,
        keep_for: Option<Duration>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Release, Error>> {
        panic_if_next(&self.faults.panic_next_releases);
        if is_next(&self.faults.fail_next_releases) {
            let error = Error::new(ErrorKind::Unavailable, "the store is down, as it was told");
            return Box::pin(async { Err(error) });
        }
        if is_next(&self.faults.hang_next_releases) {
            return Box::pin(std::future::pending());
        }
        Box::pin(async move {
            self.reach()?;
            self.memory.release(name, holder, keep_for, limit).await
        })
    }

    fn leave<'a>(
        &'a self,
        name: &'a Name,
        client: ClientId,
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            self.counts.leaves_begun.fetch_add(1, Ordering::SeqCst);
            while self.faults.is_slow_to_leave.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            self.memory.leave(name, client, limit).await?;
            self.counts.leaves.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
    }

    fn notices(&self) -> BoxFuture<'_, Result<Option<Box<dyn Notices>>, Error>> {
        Box::pin(self.subscribe_badly())
    }

    fn inspect<'a>(
        &'a self,
        name: &'a Name,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Option<Held>, Error>> {
        self.memory.inspect(name, limit)
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Vec<Held>, Error>> {
        self.memory.list(prefix, limit)
    }

    fn evict<'a>(
        &'a self,
        name: &'a Name,
        how: Eviction,
        limit: Duration,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        self.memory.evict(name, how, limit)
    }

    fn hazards(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Hazard>, Error>> {
        self.memory.hazards(limit)
    }

    fn members(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Member>, Error>> {
        self.memory.members(limit)
    }

    fn on_own_connection(&self, _: Lane) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        self.counts.connections.fetch_add(1, Ordering::SeqCst);
        panic_if_next(&self.faults.panic_next_connections);
        if is_next(&self.faults.hang_next_connections) {
            return Box::pin(std::future::pending());
        }
        Box::pin(async move { Ok(Arc::new(self.clone()) as Arc<dyn Store>) })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.memory.close()
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
                if !self.faults.is_mute.load(Ordering::SeqCst) {
                    return notice;
                }
            }
        })
    }
}
