//! Short functions that send requests to a store, for tests whose subject is not the reply.

use std::future::poll_fn;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use leasehold::clock::Instant;
use leasehold::store::{
    self, Answer, Ask, Claim, Grant, Held, Info, Outcome, Queued, Release, Renewal, Sent, Store,
};
use leasehold::{ClientId, Error, ErrorKind, Holder, Name, Token};

use super::times::{LIMIT, LONG};
use super::wait::{now, until};

/// A claim, what its next attempt carries, and the token of its last grant.
#[derive(Debug, Clone)]
pub struct Asking {
    pub claim: Claim,
    pub ask: Ask,
    /// 0 before the first grant.
    token: Arc<AtomicU64>,
}

impl Asking {
    pub fn with_floor(mut self, floor: Token) -> Self {
        self.ask.floor = Some(floor);
        self
    }

    /// Returns the renewal of this claim's last grant. Before the first there is nothing that it could extend.
    pub fn renewal(&self) -> Renewal {
        let token = self.token.load(Ordering::Relaxed).max(1);
        let token = Token::new(token).expect("a token");
        Renewal::new(self.name.clone(), self.holder, token, self.ttl)
    }

    fn note(&self, token: Token) -> Token {
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

/// Makes a claim with a holder of its own.
pub fn claim(name: &str, ttl: Duration) -> Asking {
    let name = Name::new(name).expect("a valid name");
    let holder = Holder::draw(ClientId::draw()).expect("random bits");
    let info = Info::here(None).expect("no label");
    Asking {
        claim: Claim::new(name, holder, ttl, Arc::new(info)),
        ask: Ask::default(),
        token: Arc::default(),
    }
}

/// A claim, by a holder of its own, that waits in turn. Its place lasts for a ttl.
pub fn queued(name: &str, ttl: Duration) -> Asking {
    let mut claim = claim(name, ttl);
    let mut queued = Queued::new(ttl);
    queued.term = ttl;
    claim.ask.queued = Some(queued);
    claim
}

/// Returns how many clients are before this claim's in the queue of its name, which is taken.
pub async fn ahead(store: &dyn Store, claim: &Asking) -> Option<usize> {
    held(store, claim).await.place.map(|place| place.ahead)
}

/// Sends one attempt of this claim and returns its outcome, whether or not it may have been carried out.
pub async fn asked(store: &dyn Store, claim: &Asking, limit: Duration) -> Result<Answer, Error> {
    let answer = store.acquire(claim, claim.ask, limit).await;
    if let Ok(Answer::Granted(grant)) = &answer {
        claim.note(grant.token);
    }
    answer.map_err(|failed| failed.error)
}

/// Returns the token of a claim that must be granted.
pub async fn granted(store: &dyn Store, claim: &Asking) -> Token {
    match store.acquire(claim, claim.ask, LIMIT).await {
        Ok(Answer::Granted(Grant { token, .. })) => claim.note(token),
        other => panic!("expected a grant of {}, got {other:?}", claim.name),
    }
}

/// When a rival for the name `a`, who asks this store all the time, is granted.
pub async fn rival_granted_at(store: &dyn Store) -> Instant {
    let rival = claim("a", LONG);
    until("the rival's grant", async || {
        let answer = asked(store, &rival, LIMIT).await.expect("its way is open");
        matches!(answer, Answer::Granted(_)).then(now)
    })
    .await
}

/// Returns the facts about the holder from a claim that must not be granted.
pub async fn held(store: &dyn Store, claim: &Asking) -> Held {
    match store.acquire(claim, claim.ask, LIMIT).await {
        Ok(Answer::Held(held)) => *held,
        other => panic!("expected {} to be held, got {other:?}", claim.name),
    }
}

/// Returns the renewal of this claim's lease.
pub fn renewal(claim: &Asking) -> Renewal {
    claim.renewal()
}

/// Renews this claim's lease alone and returns the outcome.
pub async fn renewed(store: &dyn Store, claim: &Asking) -> Outcome {
    let mut outcomes = store.renew(&[renewal(claim)], LIMIT).await.outcomes;
    assert_eq!(outcomes.len(), 1, "one renewal, {outcomes:?}");
    outcomes.remove(0)
}

/// Releases a lease and returns the answer, which must come.
pub async fn released(store: &dyn Store, claim: &Asking) -> Release {
    let released = store.release(&claim.name, claim.holder, None, LIMIT);
    released.await.expect("the store answers a release")
}

/// Returns the text of an error with all its sources.
pub fn chain(error: &Error) -> String {
    format!("{error:#} {error:?}")
}

/// Takes a name and frees it again, and returns the token.
pub async fn next_token(store: &dyn Store, name: &str) -> Token {
    let claim = claim(name, LONG);
    let token = granted(store, &claim).await;
    assert_eq!(released(store, &claim).await, Release::Released);
    token
}

/// Polls a request once, which sends it if there is a connection.
pub async fn begin<T>(request: &mut (impl Future<Output = T> + Unpin)) {
    let polled = poll_fn(|context| Poll::Ready(request.poll_unpin(context).is_ready())).await;
    assert!(!polled, "it cannot be answered yet");
}

/// Opens the store, claims the name `a` there, and expects an error of this kind with these words.
pub async fn refused(url: &str, kind: ErrorKind, words: &str) -> Sent {
    let store = store::open(url).await.expect("a URL in order");
    let lease = claim("a", LONG);
    let failed = store.acquire(&lease, lease.ask, LIMIT).await;
    let failed = failed.expect_err(words);
    let said = chain(&failed.error);
    assert_eq!(failed.error.kind(), kind, "{words}: {said}");
    assert!(said.contains(words), "{words}: {said}");
    assert!(!said.contains("s3cret"), "{said}");
    failed.sent
}
