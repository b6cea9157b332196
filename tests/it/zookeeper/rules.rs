//! The rules by which a name is granted once: what is compared, and what is remembered.

use std::time::Duration;

use leasehold::store::{HeldState, Lane, MAX_BATCH, Outcome, Queued, Release, Renewal};

use super::{node_of_a, open, store};
use crate::harness::asking::{
    Asking, claim, granted, held, next_token, released, renewal, renewed,
};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{at, now};
use crate::harness::zookeeper_server::{Wire, ZookeeperServer};

const SHORT: Duration = Duration::from_millis(400);

fn queued(mut claim: Asking) -> Asking {
    claim.ask.queued = Some(Queued::new(0));
    claim
}

/// A remembered version holds again once the name was removed and made anew; the token's node does not.
#[tokio::test]
async fn a_claim_of_before_the_name_was_removed_is_not_granted_beside_its_new_holder() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    server.make("/app");
    let url = server.url("/app");
    let (stalled, other) = (open(&url), open(&url));
    next_token(&*stalled, "a").await;
    let mut operator = Wire::connect(&server);
    let node = node_of_a(&url);
    assert!(!operator.children(&node).is_empty(), "{node} is there");
    operator.delete_all(&node);
    let holder = claim("a", LONG);
    granted(&*other, &holder).await;
    let found = held(&*stalled, &claim("a", LONG)).await;
    assert_eq!(found.by, Some(holder.holder));
}

/// What a client remembers as free is not, once another stands in the queue.
#[tokio::test]
async fn a_client_that_released_a_name_does_not_overtake_the_queue() {
    let url = ZookeeperServer::chroot().await;
    let (store, other) = (open(&url), open(&url));
    let first = claim("a", LONG);
    granted(&*store, &first).await;
    let next = queued(claim("a", LONG));
    held(&*other, &next).await;
    assert_eq!(released(&*store, &first).await, Release::Released);
    let found = held(&*store, &claim("a", LONG)).await;
    assert_eq!(found.state, HeldState::Offered);
    granted(&*other, &next).await;
}

/// The same, of clients that joined before the grant: then nothing has raised the version since.
#[tokio::test]
async fn a_client_that_had_its_turn_does_not_overtake_those_behind_it() {
    let url = ZookeeperServer::chroot().await;
    let (holder, store, other) = (open(&url), open(&url), open(&url));
    let first = claim("a", LONG);
    granted(&*holder, &first).await;
    let (turn, behind) = (queued(claim("a", LONG)), queued(claim("a", LONG)));
    held(&*store, &turn).await;
    held(&*other, &behind).await;
    released(&*holder, &first).await;
    granted(&*store, &turn).await;
    released(&*store, &turn).await;
    let found = held(&*store, &queued(claim("a", LONG))).await;
    assert_eq!(found.state, HeldState::Offered);
    granted(&*other, &behind).await;
}

/// The same, of a name that another client took and freed meanwhile.
#[tokio::test]
async fn a_client_that_released_a_name_does_not_take_it_from_the_next_holder() {
    let url = ZookeeperServer::chroot().await;
    let (store, other) = (open(&url), open(&url));
    let before = next_token(&*store, "a").await;
    let between = next_token(&*other, "a").await;
    let holder = claim("a", LONG);
    let last = granted(&*other, &holder).await;
    assert!(before < between && between < last);
    held(&*store, &claim("a", LONG)).await;
}

#[tokio::test]
async fn a_lease_that_ran_out_is_not_renewed_by_a_store_that_did_not_grant_it() {
    let url = ZookeeperServer::chroot().await;
    let (store, other) = (open(&url), open(&url));
    let lease = claim("a", SHORT);
    granted(&*store, &lease).await;
    // The second one has to hear of the leader's clock before.
    next_token(&*other, "b").await;
    assert!(matches!(renewed(&*other, &lease).await, Outcome::Renewed));
    at(now().after(2 * SHORT)).await;
    assert!(matches!(renewed(&*other, &lease).await, Outcome::Refused));
}

/// A renewal of another session's node would end with that session though just confirmed.
#[tokio::test]
async fn a_renewed_lease_lives_in_the_session_that_renews_it() {
    let url = ZookeeperServer::chroot().await;
    let (store, onlooker) = (open(&url), open(&url));
    let lease = claim("a", Duration::from_secs(15));
    // There is no watchdog so far: it lives in the caller's own session.
    granted(&*store, &lease).await;
    let watchdog = store.on_own_connection(Lane::Watchdog).await.expect("made");
    assert!(matches!(
        renewed(&*watchdog, &lease).await,
        Outcome::Renewed
    ));
    store.close().await;
    let found = held(&*onlooker, &claim("a", LONG)).await;
    assert_eq!(found.by, Some(lease.holder));
    watchdog.close().await;
    granted(&*onlooker, &claim("a", LONG)).await;
}

/// The ensemble asked for 40 s: leases of up to 30 s end with their session, longer ones by their own time only.
#[tokio::test]
async fn a_lease_too_long_for_its_session_outlives_it() {
    let url = ZookeeperServer::chroot().await;
    let (store, onlooker) = (open(&url), open(&url));
    let seconds = Duration::from_secs;
    let (brief, long) = (claim("a", seconds(30)), claim("b", seconds(31)));
    granted(&*store, &brief).await;
    granted(&*store, &long).await;
    store.close().await;
    granted(&*onlooker, &claim("a", LONG)).await;
    let found = held(&*onlooker, &claim("b", LONG)).await;
    assert_eq!(found.by, Some(long.holder));
}

#[tokio::test]
async fn a_lease_that_is_gone_spoils_no_batch() {
    let store = store().await;
    let claims: Vec<_> = (0..MAX_BATCH)
        .map(|index| claim(&index.to_string(), LONG))
        .collect();
    for claim in &claims {
        granted(&*store, claim).await;
    }
    for dead in [1, 3, 200] {
        // Freed behind the back of the one that renews.
        let other = store.on_own_connection(Lane::Waiting).await.expect("made");
        for claim in &claims[..dead] {
            let evicted = other.evict(&claim.name, leasehold::store::Eviction::Now, LIMIT);
            evicted.await.expect("answered");
        }
        let batch: Vec<Renewal> = claims.iter().map(renewal).collect();
        let outcomes = store.renew(&batch, LIMIT).await.outcomes;
        for (index, outcome) in outcomes.iter().enumerate() {
            match outcome {
                Outcome::Refused if index < dead => {}
                Outcome::Renewed if index >= dead => {}
                _ => panic!("dead={dead} index={index}: {outcome:?}"),
            }
        }
    }
}

#[tokio::test]
async fn renewals_tell_the_leaders_time() {
    let store = store().await;
    let lease = claim("a", LONG);
    granted(&*store, &lease).await;
    let time = async || {
        let renewed = store.renew(&[renewal(&lease)], LIMIT).await;
        renewed.server_time.expect("one leader wrote all of it")
    };
    let first = time().await;
    at(now().after(SHORT)).await;
    let passed = time().await - first;
    assert!(passed >= SHORT - Duration::from_millis(2), "{passed:?}");
}
