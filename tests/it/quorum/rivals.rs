//! What the tests share that have a holder and a rival.

use std::path::Path;
use std::time::Duration;

use leasehold::store::quorum::Quorum;
use leasehold::store::{Answer, MemberState, Outcome, Store as _};

use crate::harness::asking::{Asking, asked, claim, renewed};
use crate::harness::proxy::Proxy;
use crate::harness::redis_quorum::{self, MAX_TTL, RedisQuorum};
use crate::harness::times::{LIMIT, UNANSWERED};
use crate::harness::wait::{at, now};

/// A network of its own in front of each member.
pub(super) async fn ways(quorum: &RedisQuorum) -> Vec<Proxy> {
    let mut ways = Vec::new();
    for server in &quorum.servers {
        ways.push(server.proxy().await);
    }
    ways
}

/// Returns a store that reaches the members over these networks.
pub(super) fn over(ways: &[Proxy]) -> Quorum {
    redis_quorum::on(ways.iter().map(Proxy::url), MAX_TTL)
}

/// Lets nothing arrive at the server behind this network, neither now nor later.
pub(super) fn lead_nowhere(way: &Proxy) {
    way.lead_to(Path::new("/nowhere"));
    way.cut();
}

/// Returns the state of each member as this store sees it.
pub(super) async fn states(store: &Quorum) -> Vec<MemberState> {
    let members = store.members(LIMIT).await.expect("answered");
    members.iter().map(|member| member.state).collect()
}

/// Asks again and again for this name, and finds it never granted.
pub(super) async fn none_is_granted(store: &Quorum, name: &str, ttl: Duration) {
    let end = now().after(Duration::from_secs(2));
    while now() < end {
        let answer = asked(store, &claim(name, ttl), UNANSWERED).await;
        assert!(!matches!(answer, Ok(Answer::Granted(_))), "{answer:?}");
        at(now().after(Duration::from_millis(50))).await;
    }
}

/// Renews this lease for that long, as its watchdog does, and returns the last outcome.
pub(super) async fn renewed_for(store: &Quorum, lease: &Asking, time: Duration) -> Outcome {
    let end = now().after(time);
    loop {
        let outcome = renewed(store, lease).await;
        if now() >= end || matches!(outcome, Outcome::Refused) {
            return outcome;
        }
        at(now().after(Duration::from_millis(200))).await;
    }
}
