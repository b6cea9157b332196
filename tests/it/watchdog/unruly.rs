//! A store in memory that can be told to misbehave.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::BoxFuture;
use leasehold::clock::{Clock, Instant, Monotonic};
use leasehold::store::memory::Memory;
use leasehold::store::{
    Answer, Ask, Claim, Failed, Grant, Lane, Outcome, Release, Renewal, Renewed, Store,
};
use leasehold::{Error, ErrorKind, Holder, Name, Token};

use crate::harness::forward::forward;

/// The store. Clones share their leases and their manners.
#[derive(Debug, Clone)]
pub(super) struct Unruly {
    memory: Memory,
    pub(super) manners: Arc<Manners>,
}

/// How it misbehaves.
#[derive(Debug)]
pub(super) struct Manners {
    /// Renewals never end.
    pub(super) hangs: AtomicBool,
    /// So many of the next renewals never end.
    pub(super) hang_next: AtomicU32,
    /// So many of the next claims are carried out and never end.
    pub(super) hang_next_claims: AtomicU32,
    /// So many claims reach it; those after them never leave.
    pub(super) claims_left: AtomicU32,
    /// With so many of the next grants the clock jumps until little is left of their term.
    pub(super) late_grants: AtomicU32,
    /// Every grant has the first token.
    pub(super) forgets_tokens: AtomicBool,
    /// So many of the next releases never begin, and never end.
    pub(super) hang_next_releases: AtomicU32,
    /// So many of the next releases fail at once.
    pub(super) fail_next_releases: AtomicU32,
    /// So many of the next renewals panic.
    pub(super) panic_next_renewals: AtomicU32,
    /// So many of the next releases panic.
    pub(super) panic_next_releases: AtomicU32,
    /// So many of the next connections for a watchdog panic.
    pub(super) panic_next_connections: AtomicU32,
    /// Replies to batches are cut to this length.
    pub(super) answers: AtomicUsize,
    /// Names whose renewals fail.
    pub(super) poisoned: Mutex<HashSet<Name>>,
    /// By how many milliseconds the server's clock is ahead; none: it tells no time.
    pub(super) ahead_ms: Mutex<Option<u64>>,
    /// When the last claim or batch of renewals was here.
    pub(super) asked_at: Mutex<Instant>,
    /// The clock that leases are measured by.
    pub(super) clock: Arc<Fragile>,
}

/// A clock that can be told to panic once on the watchdog's thread, to let it oversleep, or to jump.
#[derive(Debug, Default)]
pub(super) struct Fragile {
    pub(super) is_cracked: AtomicBool,
    pub(super) is_slow: AtomicBool,
    /// By how many milliseconds it is ahead of the real one.
    ahead_ms: AtomicU64,
}

impl Fragile {
    fn ahead(&self) -> Duration {
        Duration::from_millis(self.ahead_ms.load(Ordering::SeqCst))
    }
}

fn is_watchdog() -> bool {
    std::thread::current().name() == Some("leasehold-watchdog")
}

impl Clock for Fragile {
    fn now(&self) -> Instant {
        if is_watchdog() && self.is_cracked.swap(false, Ordering::SeqCst) {
            panic!("the clock is broken, as it was told");
        }
        Monotonic.now().after(self.ahead())
    }

    fn sleep_until(&self, at: Instant) -> leasehold::clock::Sleep<'_> {
        static CLOCK: Monotonic = Monotonic;
        Box::pin(async move {
            while is_watchdog() && self.is_slow.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            CLOCK.sleep_until(at.before(self.ahead())).await;
        })
    }

    fn name(&self) -> &'static str {
        "fragile"
    }
}

impl Unruly {
    pub(super) fn new() -> Self {
        let clock = Arc::new(Fragile::default());
        Self {
            memory: Memory::with_clock(clock.clone()),
            manners: Arc::new(Manners {
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
                panic_next_connections: AtomicU32::new(0),
                answers: AtomicUsize::new(usize::MAX),
                poisoned: Mutex::default(),
                ahead_ms: Mutex::default(),
                asked_at: Mutex::new(Instant::ZERO),
                clock,
            }),
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
        if Self::is_next(count) {
            std::panic::resume_unwind(Box::new("the store is broken, as it was told"));
        }
    }

    fn asked(&self) {
        *self.manners.asked_at.lock().unwrap() = Monotonic.now();
    }

    async fn renew_badly(&self, batch: &[Renewal], limit: Duration) -> Renewed {
        self.asked();
        let manners = &self.manners;
        Self::panic_if_next(&manners.panic_next_renewals);
        if manners.hangs.load(Ordering::SeqCst) || Self::is_next(&manners.hang_next) {
            std::future::pending::<()>().await;
        }
        let mut renewed = self.memory.renew(batch, limit).await;
        for (renewal, outcome) in batch.iter().zip(&mut renewed.outcomes) {
            if manners.poisoned.lock().unwrap().contains(&renewal.name) {
                *outcome = Outcome::Unknown(Error::new(ErrorKind::Misconfigured, "wrong type"));
            }
        }
        renewed
            .outcomes
            .truncate(manners.answers.load(Ordering::SeqCst));
        let now = Duration::from_nanos(manners.clock.now().as_nanos());
        let ahead_ms = *manners.ahead_ms.lock().unwrap();
        renewed.server_time = ahead_ms.map(|ahead_ms| now + Duration::from_millis(ahead_ms));
        renewed
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for Unruly {
    forward!(memory: facts shard members location leave notices inspect list evict hazards close);

    fn clock(&self) -> Arc<dyn Clock> {
        self.manners.clock.clone()
    }

    fn acquire<'a>(
        &'a self,
        claim: &'a Claim,
        ask: Ask,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Answer, Failed>> {
        Box::pin(async move {
            if !Self::is_next(&self.manners.claims_left) {
                let error = Error::new(ErrorKind::Unavailable, "the store is down, as it was told");
                return Err(Failed::never(error));
            }
            self.asked();
            let answer = self.memory.acquire(claim, ask, limit).await;
            if Self::is_next(&self.manners.hang_next_claims) {
                std::future::pending::<()>().await;
            }
            if matches!(answer, Ok(Answer::Granted(_))) && Self::is_next(&self.manners.late_grants)
            {
                let jump = u64::try_from(claim.ttl.as_millis() * 5 / 6).unwrap();
                let clock = &self.manners.clock;
                clock.ahead_ms.fetch_add(jump, Ordering::SeqCst);
            }
            match answer {
                Ok(Answer::Granted(_)) if self.manners.forgets_tokens.load(Ordering::SeqCst) => {
                    let first = Token::new(1).expect("valid");
                    Ok(Answer::Granted(Grant::new(first)))
                }
                answer => answer,
            }
        })
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
        Self::panic_if_next(&self.manners.panic_next_releases);
        if Self::is_next(&self.manners.fail_next_releases) {
            let error = Error::new(ErrorKind::Unavailable, "the store is down, as it was told");
            return Box::pin(async { Err(error) });
        }
        if Self::is_next(&self.manners.hang_next_releases) {
            return Box::pin(std::future::pending());
        }
        self.memory.release(name, holder, keep_for, limit)
    }

    fn on_own_connection(&self, _: Lane) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Self::panic_if_next(&self.manners.panic_next_connections);
        Box::pin(async move { Ok(Arc::new(self.clone()) as Arc<dyn Store>) })
    }
}
