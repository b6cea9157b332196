//! The rules by which a name is granted once: what is compared, and what is remembered.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::store::{
    Answer, Eviction, HeldState, MAX_BATCH, Outcome, Purpose, Release, Renewal, Store,
};

use super::{node_of_a, open, store_in_chroot};
use crate::harness::asking::{
    Asking, ahead, asked, chain, claim, granted, held, next_token, queued, released, renewal,
    renewed,
};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{at, now};
use crate::harness::zookeeper_server::held_way::HeldWay;
use crate::harness::zookeeper_server::{TWO_HOLDERS, Wire, ZookeeperServer};

const SHORT: Duration = Duration::from_millis(400);

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

/// Removes the node of the last token of the name `a`, as no client does.
async fn remove_token(url: &str) {
    let mut operator = Wire::connect(ZookeeperServer::shared().await);
    let node = node_of_a(url);
    let tokens = operator.children(&node).into_iter();
    for token in tokens.filter(|child| child.starts_with("t-")) {
        assert_eq!(operator.delete(&format!("{node}/{token}")), 0);
    }
}

/// Its version fits a name that was made anew, and there is no token whose node would show that it was.
#[tokio::test]
async fn a_late_grant_is_refused_once_the_name_was_remade_for_another_client() {
    let url = ZookeeperServer::chroot().await;
    let server = ZookeeperServer::shared().await;
    next_token(&*open(&url), "a").await;
    remove_token(&url).await;
    let way = HeldWay::to(server).await;
    let late = open(&way.url(&url));
    way.hold();
    let late = tokio::spawn(async move { asked(&*late, &claim("a", LONG), LIMIT).await });
    way.held().await;
    Wire::connect(server).delete_all(&node_of_a(&url));
    let holder = claim("a", LONG);
    granted(&*open(&url), &holder).await;
    way.let_go();
    let answer = late.await.expect("no panic").expect("answered");
    assert!(
        matches!(&answer, Answer::Held(held) if held.by == Some(holder.holder)),
        "{answer:?}"
    );
}

#[tokio::test]
async fn two_holders_of_a_name_are_an_error_and_an_operator_can_free_the_name() {
    let url = ZookeeperServer::chroot().await;
    let store = open(&url);
    next_token(&*open(&url), "a").await;
    let server = ZookeeperServer::shared().await;
    server.plant(&node_of_a(&url), &TWO_HOLDERS, b"60000");
    let next = claim("a", LONG);
    let refused = asked(&*store, &next, LIMIT).await;
    let shown = store.inspect(&next.name, LIMIT).await;
    for error in [refused.map(drop), shown.map(drop)] {
        let error = error.expect_err("there is no right answer");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
        assert!(chain(&error).contains("two holders"), "{error:#}");
    }
    let evicted = store.evict(&next.name, Eviction::Now, LIMIT).await;
    assert!(evicted.expect("answered"));
    granted(&*store, &next).await;
}

/// Each refusal names the node.
#[tokio::test]
async fn a_lease_in_a_later_form_is_not_taken_for_a_free_name() {
    let url = ZookeeperServer::chroot().await;
    let (server, store) = (ZookeeperServer::shared().await, open(&url));
    next_token(&*open(&url), "a").await;
    server.plant(&node_of_a(&url), &["h2-1"], b"60000");
    let next = claim("a", LONG);
    let claimed = asked(&*store, &next, LIMIT).await.map(drop);
    let shown = store.inspect(&next.name, LIMIT).await.map(drop);
    let evicted = store.evict(&next.name, Eviction::Now, LIMIT).await;
    let node = format!("{}/h2-1", node_of_a(&url));
    for error in [claimed, shown, evicted.map(drop)] {
        let error = error.expect_err("it is not known whether the name is free");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
        assert!(chain(&error).contains(&node), "{error:#}");
    }
    Wire::connect(server).delete(&node);
    granted(&*store, &next).await;
}

/// So is one whose lease has odd content, or a form that is not known.
#[tokio::test]
async fn a_name_with_two_holders_is_listed_without_one_and_hides_no_other() {
    let url = ZookeeperServer::chroot().await;
    let (server, store) = (ZookeeperServer::shared().await, open(&url));
    let in_order = claim("b", LONG);
    granted(&*store, &in_order).await;
    for (nodes, data) in [
        (&TWO_HOLDERS[..], "60000"),
        (&TWO_HOLDERS[..1], "?"),
        (&["h2-1"][..], "60000"),
    ] {
        next_token(&*open(&url), "a").await;
        server.plant(&node_of_a(&url), nodes, data.as_bytes());
        let list = store.list("", LIMIT).await.expect("answered");
        let shown: Vec<_> = list.iter().map(|it| (it.name.as_str(), it.by)).collect();
        let expected = [("a", None), ("b", Some(in_order.holder))];
        assert_eq!(shown, expected, "{nodes:?}");
        Wire::connect(server).delete_all(&node_of_a(&url));
    }
}

#[tokio::test]
async fn a_lease_whose_token_was_removed_is_granted_again_and_released() {
    let url = ZookeeperServer::chroot().await;
    let store = open(&url);
    let lease = claim("a", LONG);
    let token = granted(&*store, &lease).await;
    remove_token(&url).await;
    held(&*open(&url), &claim("a", LONG)).await;
    assert!(granted(&*store, &lease).await > token);
    remove_token(&url).await;
    assert_eq!(released(&*store, &lease).await, Release::Released);
    granted(&*open(&url), &claim("a", LONG)).await;
}

#[tokio::test]
async fn a_name_whose_token_was_removed_is_granted_and_its_clients_join_again() {
    let url = ZookeeperServer::chroot().await;
    let (store, other, third) = (open(&url), open(&url), open(&url));
    let (first, next) = (claim("a", LONG), queued("a", LONG));
    granted(&*store, &first).await;
    held(&*other, &next).await;
    let before = released(&*store, &first).await;
    assert_eq!(before, Release::Released);
    remove_token(&url).await;
    let new = claim("a", LONG);
    let token = granted(&*third, &new).await;
    assert_eq!(ahead(&*other, &next).await, Some(0));
    released(&*third, &new).await;
    assert!(granted(&*other, &next).await > token);
}

/// Then they give the same number for ever.
#[tokio::test]
async fn clients_wait_in_order_past_the_end_of_the_servers_numbers() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let url = server.url("");
    next_token(&*open(&url), "a").await;
    server.count_changes("/leasehold/2c/a", i32::MAX).await;
    let store = open(&url);
    granted(&*store, &claim("a", LONG)).await;
    let mut waiting = [queued("a", LONG), queued("a", LONG)];
    // The number alone says that the second came later.
    waiting.sort_by_key(|claim| std::cmp::Reverse(claim.holder.client()));
    for (before, claim) in waiting.iter().enumerate() {
        assert_eq!(ahead(&*store, claim).await, Some(before));
    }
}

/// The client's turn compares no version, so it hears of who joined behind it only by its grant.
#[tokio::test]
async fn a_client_that_took_its_turn_does_not_overtake_one_that_joined_meanwhile() {
    let url = ZookeeperServer::chroot().await;
    let way = HeldWay::to(ZookeeperServer::shared().await).await;
    let (holder, store, other) = (open(&url), open(&way.url(&url)), open(&url));
    let first = claim("a", LONG);
    granted(&*holder, &first).await;
    let (turn, behind) = (queued("a", LONG), queued("a", LONG));
    held(&*store, &turn).await;
    released(&*holder, &first).await;
    way.hold();
    let taking = async {
        granted(&*store, &turn).await;
    };
    let joining = async {
        way.held().await;
        held(&*other, &behind).await;
        way.let_go();
    };
    tokio::join!(taking, joining);
    released(&*store, &turn).await;
    let found = held(&*store, &queued("a", LONG)).await;
    assert_eq!(found.state, HeldState::Kept);
    granted(&*other, &behind).await;
}

/// Its clock was wrong as the rival judged: the holder has renewed since.
#[tokio::test]
async fn a_lease_that_was_renewed_while_a_takeover_was_under_way_is_not_taken() {
    const HOUR_MS: i64 = 3_600_000;
    let server = ZookeeperServer::start_on_own_machine(Duration::from_secs(2)).await;
    let way = HeldWay::to(&server).await;
    let (store, rival) = (open(&server.url("")), open(&way.url(&server.url(""))));
    let lease = claim("a", LONG);
    granted(&*store, &lease).await;
    server.step_clock(HOUR_MS);
    way.hold();
    let next = claim("a", LONG);
    let taking = asked(&*rival, &next, LIMIT);
    let renewing = async {
        way.held().await;
        assert!(matches!(renewed(&*store, &lease).await, Outcome::Renewed));
        way.let_go();
    };
    let (answer, ()) = tokio::join!(taking, renewing);
    let answer = answer.expect("answered");
    assert!(
        matches!(&answer, Answer::Held(held) if held.by == Some(lease.holder)),
        "{answer:?}"
    );
}

/// Grants a lease once the leader's clock, which the other store knew an hour ahead, was set back.
async fn granted_after_a_step_back(
    server: &ZookeeperServer,
    store: &dyn Store,
    other: &dyn Store,
) -> Asking {
    const HOUR_MS: i64 = 3_600_000;
    server.step_clock(HOUR_MS);
    next_token(other, "b").await;
    server.step_clock(-HOUR_MS);
    let lease = claim("a", LONG);
    granted(store, &lease).await;
    lease
}

/// The rival knows the clock as it was before the step back: it asks for the time before it takes over a lease.
#[tokio::test]
async fn a_rival_that_knew_a_clock_ahead_takes_no_lease_after_its_step_back() {
    let server = ZookeeperServer::start_on_own_machine(Duration::from_secs(2)).await;
    let (store, rival) = (open(&server.url("")), open(&server.url("")));
    let lease = granted_after_a_step_back(&server, &*store, &*rival).await;
    let found = held(&*rival, &claim("a", LONG)).await;
    assert_eq!(found.by, Some(lease.holder));
    assert!(matches!(renewed(&*store, &lease).await, Outcome::Renewed));
}

#[tokio::test]
async fn a_client_that_leaves_during_its_offer_gives_the_next_a_full_one() {
    let url = ZookeeperServer::chroot().await;
    let (holder, first, second) = (open(&url), open(&url), open(&url));
    let lease = claim("a", LONG);
    granted(&*holder, &lease).await;
    let (turn, behind) = (queued("a", LONG), queued("a", LONG));
    held(&*first, &turn).await;
    held(&*second, &behind).await;
    released(&*holder, &lease).await;
    at(now().after(OFFER / 2)).await;
    let left_at = now();
    assert_eq!(released(&*first, &turn).await, Release::NotHeld);
    let found = held(&*holder, &claim("a", LONG)).await;
    assert_eq!(found.state, HeldState::Kept);
    let least = OFFER.saturating_sub(now().since(left_at));
    assert!(found.remaining >= Some(least), "{found:?} after {least:?}");
}

/// For so long a freed name is kept for the first in the queue.
const OFFER: Duration = Duration::from_secs(2);

/// What a client remembers as free is not, once another stands in the queue.
#[tokio::test]
async fn a_client_that_released_a_name_does_not_overtake_the_queue() {
    let url = ZookeeperServer::chroot().await;
    let (store, other) = (open(&url), open(&url));
    let first = claim("a", LONG);
    granted(&*store, &first).await;
    let next = queued("a", LONG);
    held(&*other, &next).await;
    assert_eq!(released(&*store, &first).await, Release::Released);
    let found = held(&*store, &claim("a", LONG)).await;
    assert_eq!(found.state, HeldState::Kept);
    granted(&*other, &next).await;
}

/// The same, of clients that joined before the grant: then nothing has raised the version since.
#[tokio::test]
async fn a_client_that_had_its_turn_does_not_overtake_those_behind_it() {
    let url = ZookeeperServer::chroot().await;
    let (holder, store, other) = (open(&url), open(&url), open(&url));
    let first = claim("a", LONG);
    granted(&*holder, &first).await;
    let (turn, behind) = (queued("a", LONG), queued("a", LONG));
    held(&*store, &turn).await;
    held(&*other, &behind).await;
    released(&*holder, &first).await;
    granted(&*store, &turn).await;
    released(&*store, &turn).await;
    let found = held(&*store, &queued("a", LONG)).await;
    assert_eq!(found.state, HeldState::Kept);
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
async fn an_expired_lease_is_not_renewed_by_a_store_that_did_not_grant_it() {
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
    let lease = claim("a", Duration::from_secs(6));
    // There is no watchdog yet: it lives in the session of everything else.
    granted(&*store, &lease).await;
    let watchdog = store
        .on_own_connection(Purpose::Watchdog)
        .await
        .expect("made");
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

/// The server agrees to 40 s: leases of up to 30 s end with their session, longer ones by their own time only.
#[tokio::test]
async fn a_lease_too_long_for_its_session_outlives_it() {
    let url = ZookeeperServer::chroot().await;
    let (store, onlooker) = (open(&url), open(&url));
    let store = store
        .on_own_connection(Purpose::Watchdog)
        .await
        .expect("made");
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
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let store = open(&server.url(""));
    let claims: Vec<_> = (0..MAX_BATCH)
        .map(|index| claim(&index.to_string(), LONG))
        .collect();
    for claim in &claims {
        granted(&*store, claim).await;
    }
    for dead in [1, 3, 200] {
        // Freed behind the back of the one that renews.
        let other = store
            .on_own_connection(Purpose::Waiting)
            .await
            .expect("made");
        for claim in &claims[..dead] {
            let evicted = other.evict(&claim.name, Eviction::Now, LIMIT);
            evicted.await.expect("answered");
        }
        let batch: Vec<Renewal> = claims.iter().map(renewal).collect();
        let before = server.written();
        let outcomes = store.renew(&batch, LIMIT).await.outcomes;
        let written = server.written() - before;
        assert!(written < 10, "dead={dead}: {written} writes");
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
    let store = store_in_chroot().await;
    let lease = claim("a", LONG);
    granted(&*store, &lease).await;
    let time = async || {
        let renewed = store.renew(&[renewal(&lease)], LIMIT).await;
        renewed
            .server_time
            .expect("one leader wrote all of it")
            .time
    };
    let first = time().await;
    at(now().after(SHORT)).await;
    let passed = time().await - first;
    assert!(passed >= SHORT - Duration::from_millis(2), "{passed:?}");
}

/// The reader knows the clock as it was before the step back: it asks for the time before it shows a name as free.
#[tokio::test]
async fn a_client_that_knew_a_clock_ahead_shows_a_lease_after_its_step_back() {
    let server = ZookeeperServer::start_on_own_machine(Duration::from_secs(2)).await;
    let (store, reader) = (open(&server.url("")), open(&server.url("")));
    let lease = granted_after_a_step_back(&server, &*store, &*reader).await;
    let found = reader.inspect(&lease.name, LIMIT).await.expect("answered");
    assert_eq!(found.and_then(|held| held.by), Some(lease.holder));
}
