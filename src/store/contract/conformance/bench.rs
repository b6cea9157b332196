//! Short functions that send requests to the store that is checked.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::{LIMIT, Open, SHORT};
use crate::clock::{Clock, Instant};
use crate::holder::{ClientId, Holder};
use crate::name::Name;
use crate::store::{
    Answer, Ask, Claim, Eviction, Grant, Held, HeldState, Info, Outcome, Purpose, Release, Renewal,
    Store,
};
use crate::token::Token;

/// A claim, what its next attempt carries, and the token of its last grant.
#[derive(Debug, Clone)]
pub(crate) struct Asking {
    pub(crate) claim: Claim,
    pub(crate) ask: Ask,
    /// 0 before the first grant.
    pub(crate) token: Arc<AtomicU64>,
}

impl Asking {
    pub(crate) fn with_floor(mut self, floor: Token) -> Self {
        self.ask.floor = Some(floor);
        self
    }

    /// Returns the renewal of this claim's last grant. Before the first there is nothing that it could extend.
    pub(crate) fn renewal(&self) -> Renewal {
        let token = self.token.load(Ordering::Relaxed).max(1);
        let token = Token::new(token).expect("a token");
        Renewal::new(self.name.clone(), self.holder, token, self.ttl)
    }

    pub(crate) fn note(&self, token: Token) -> Token {
        self.token.store(token.get(), Ordering::Relaxed);
        token
    }
}

impl Deref for Asking {
    type Target = Claim;

    fn deref(&self) -> &Claim {
        &self.claim
    }
}

/// A request that extends a lease.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Extended {
    /// The same claim once more.
    Claim,
    Renewal,
}

/// A store, and the names that belong to one check.
pub(crate) struct Bench {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) prefix: String,
    /// The number of servers of the store that do not answer.
    pub(crate) down: usize,
    pub(crate) open: Open,
    /// Whether a time limit of the check passed before it saw what it had to.
    pub(crate) spoiled: Arc<AtomicBool>,
}

/// A span during which requests get the expected answers. If it is dropped later, also by a failed assertion, the
/// attempt does not count: a busy machine took too long.
pub(crate) struct Within {
    clock: Arc<dyn Clock>,
    ends_at: Instant,
    spoiled: Arc<AtomicBool>,
}

impl Drop for Within {
    fn drop(&mut self) {
        if self.clock.now() >= self.ends_at {
            self.spoiled.store(true, Ordering::Relaxed);
        }
    }
}

impl Bench {
    /// Begins requests that must be answered within this time.
    pub(crate) fn within(&self, time: Duration) -> Within {
        let clock = self.store.clock();
        let ends_at = clock.now().after(time);
        Within {
            clock,
            ends_at,
            spoiled: self.spoiled.clone(),
        }
    }

    /// Returns a ttl that is short enough to wait for, and that the store can keep.
    pub(crate) fn short(&self) -> Duration {
        self.store.facts().least_ttl.max(SHORT)
    }

    /// Lets a lease or a keep of this length end for every client, also for one that never saw it.
    pub(crate) async fn outlast(&self, time: Duration) {
        self.pass(time + self.store.facts().grace + SHORT).await;
    }

    /// Opens the store once more: it shares no memory with the first, as that of another process.
    pub(crate) async fn opened_anew(&self) -> Self {
        Self {
            store: (self.open)().await,
            prefix: self.prefix.clone(),
            down: self.down,
            open: self.open.clone(),
            spoiled: self.spoiled.clone(),
        }
    }

    pub(crate) fn name(&self, rest: &str) -> Name {
        Name::new(format!("{}/{rest}", self.prefix)).expect("a valid name")
    }

    pub(crate) fn claim(&self, rest: &str, ttl: Duration) -> Asking {
        let holder = Holder::draw(ClientId::draw()).expect("random bits");
        let info = Info::here(Some("conformance \"é\"")).expect("a valid label");
        Asking {
            claim: Claim::new(self.name(rest), holder, ttl, Arc::new(info)),
            ask: Ask::default(),
            token: Arc::default(),
        }
    }

    pub(crate) async fn ask(&self, claim: &Asking) -> Answer {
        let answer = self.store.acquire(claim, claim.ask, LIMIT).await;
        answer.expect("the store answers a claim")
    }

    pub(crate) async fn granted(&self, claim: &Asking) -> Token {
        match self.ask(claim).await {
            Answer::Granted(Grant { token }) => claim.note(token),
            Answer::Held(held) => panic!("expected a grant of {}, got {held}", claim.name),
        }
    }

    pub(crate) async fn held(&self, claim: &Asking) -> Held {
        match self.ask(claim).await {
            Answer::Held(held) => *held,
            Answer::Granted(grant) => panic!("expected held, got {grant:?} of {}", claim.name),
        }
    }

    pub(crate) async fn renew(&self, claims: &[&Asking]) -> Vec<Outcome> {
        let renewals: Vec<_> = claims.iter().map(|claim| claim.renewal()).collect();
        self.store.renew(&renewals, LIMIT).await.outcomes
    }

    /// Lets the time of an evicted lease pass. A quorum keeps the name for its longest ttl, unless the holder releases
    /// it.
    pub(crate) async fn pass_evicted(&self, claim: &Asking, time: Duration) {
        self.pass(time).await;
        if self.state(&claim.name).await.is_some() {
            self.release(claim).await;
        }
    }

    pub(crate) async fn release(&self, claim: &Asking) -> Release {
        let released = self.store.release(&claim.name, claim.holder, None, LIMIT);
        released.await.expect("the store answers a release")
    }

    /// Releases the claim, and keeps its name for this long.
    pub(crate) async fn release_keeping(&self, claim: &Asking, keep_for: Duration) -> Release {
        let released = (self.store).release(&claim.name, claim.holder, Some(keep_for), LIMIT);
        released.await.expect("the store answers a release")
    }

    /// Returns whether the store refuses to renew the claim.
    pub(crate) async fn is_refused(&self, claim: &Asking) -> bool {
        matches!(self.renew(&[claim]).await[..], [Outcome::Refused])
    }

    /// Returns whether there was a holder to evict.
    pub(crate) async fn evict(&self, name: &Name, how: Eviction) -> bool {
        let evicted = self.store.evict(name, how, LIMIT).await;
        evicted.expect("the store answers an eviction")
    }

    pub(crate) async fn inspect(&self, name: &Name) -> Option<Held> {
        let held = self.store.inspect(name, LIMIT).await;
        held.expect("the store answers a read")
    }

    pub(crate) async fn list(&self, prefix: &Name) -> Vec<Held> {
        let listed = self.store.list(prefix.as_str(), LIMIT).await;
        listed.expect("the store answers a list")
    }

    /// Returns the store on another connection of the same client.
    pub(crate) async fn another(&self) -> Arc<dyn Store> {
        let other = self.store.on_own_connection(Purpose::Watchdog).await;
        other.expect("a connection")
    }

    /// Returns how the name is taken.
    pub(crate) async fn state(&self, name: &Name) -> Option<HeldState> {
        self.inspect(name).await.map(|held| held.state)
    }

    /// Checks that this, within the first term of a lease, begins a second one of a full ttl.
    pub(crate) async fn extends(&self, by: Extended) {
        let ttl = self.short() * 2;
        let claim = self.claim("a", ttl);
        let first = self.within(ttl);
        let token = self.granted(&claim).await;
        self.pass(self.short()).await;
        let second = self.within(ttl);
        match by {
            Extended::Claim => assert_eq!(self.granted(&claim).await, token),
            Extended::Renewal => assert!(!self.is_refused(&claim).await),
        }
        drop(first);
        self.pass(self.short() + self.short() / 2).await;
        // Past the first term.
        self.held(&self.claim("a", self.short())).await;
        drop(second);
    }

    pub(crate) async fn pass(&self, time: Duration) {
        let clock = self.store.clock();
        clock.sleep_until(clock.now().after(time)).await;
    }
}
