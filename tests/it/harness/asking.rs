//! Short words for asking a store, where the answer is not what the test is about.

use std::sync::Arc;
use std::time::Duration;

use leasehold::store::{
    Answer, Claim, Grant, Held, Holder, Info, Name, Outcome, Release, Renewal, Store, Token,
};
use leasehold::{ClientId, Error};

/// Long enough that no busy machine lets it run out within a test.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// The limit of a request that is to be answered.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

/// A claim of a holder of its own.
pub(crate) fn claim(name: &str, ttl: Duration) -> Claim {
    let name = Name::new(name).expect("a valid name");
    let holder = Holder::draw(ClientId::draw()).expect("random bits");
    let info = Info::here(None).expect("no label");
    Claim::new(name, holder, ttl, Arc::new(info))
}

/// The token of a claim that must be granted.
pub(crate) async fn granted(store: &dyn Store, claim: &Claim) -> Token {
    match store.acquire(claim, LIMIT).await {
        Ok(Answer::Granted(Grant { token, .. })) => token,
        other => panic!("expected a grant of {}, got {other:?}", claim.name),
    }
}

/// The holder before a claim that must not be granted.
pub(crate) async fn held(store: &dyn Store, claim: &Claim) -> Held {
    match store.acquire(claim, LIMIT).await {
        Ok(Answer::Held(held)) => *held,
        other => panic!("expected {} to be held, got {other:?}", claim.name),
    }
}

/// What asks for an extension of this claim's lease.
pub(crate) fn renewal(claim: &Claim) -> Renewal {
    Renewal::new(claim.name.clone(), claim.holder, claim.ttl)
}

/// What became of the renewal of this claim's lease alone.
pub(crate) async fn renewed(store: &dyn Store, claim: &Claim) -> Outcome {
    let mut outcomes = store.renew(&[renewal(claim)], LIMIT).await.outcomes;
    assert_eq!(outcomes.len(), 1, "one renewal, {outcomes:?}");
    outcomes.remove(0)
}

/// The answer to a release that must be answered.
pub(crate) async fn released(store: &dyn Store, claim: &Claim) -> Release {
    let released = store.release(&claim.name, claim.holder, None, LIMIT);
    released.await.expect("the store answers a release")
}

/// Everything that an error can say, with what caused it.
pub(crate) fn chain(error: &Error) -> String {
    format!("{error:#} {error:?}")
}

/// A token of a name that is taken and freed again.
pub(crate) async fn next_token(store: &dyn Store, name: &str) -> Token {
    let claim = claim(name, LONG);
    let token = granted(store, &claim).await;
    assert_eq!(released(store, &claim).await, Release::Released);
    token
}
