//! One death and one silence of the server, and requests whose answers are lost; the others are among the long tests.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::store::{Answer, Eviction, Outcome, Store};
use leasehold::{ErrorKind, LossReason, Name, OutagePolicy, ReleaseOutcome};

use super::open;
use crate::harness::asking::{asked, claim, granted, held, next_token, renewed, rival_granted_at};
use crate::harness::leases::{client_at, take_waiting};
use crate::harness::relay::{Passing, Relay};
use crate::harness::times::{LIMIT, LONG, STORED_TTL, UNANSWERED};
use crate::harness::wait::{at, lost, now, until};
use crate::harness::zookeeper_server::ZookeeperServer;

/// The URL of the server behind this network. The server ends the sessions of a client that is cut off for ten seconds.
fn url_behind(relay: &Relay) -> String {
    format!("zookeeper://127.0.0.1:{}?session=10s", relay.port())
}

/// Frees the name `a` by force.
async fn free(store: &dyn Store) {
    let name = Name::new("a").expect("a name");
    let evicted = store.evict(&name, Eviction::Now, LIMIT);
    assert!(evicted.await.expect("answered"), "it was taken");
}

#[tokio::test]
async fn leases_and_tokens_outlive_a_crash_of_the_server() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let store = open(&server.url(""));
    let token = next_token(&*store, "b").await;
    let lease = claim("a", LONG);
    granted(&*store, &lease).await;
    server.kill();
    let limit = Duration::from_millis(500);
    let error = asked(&*store, &claim("a", LONG), limit).await;
    let error = error.expect_err("down");
    assert!(error.is_transient(), "{error:#}");
    server.run();
    server.serving().await;
    let before = until("the server", async || {
        let answer = asked(&*store, &claim("a", LONG), LIMIT).await.ok()?;
        Some(answer)
    })
    .await;
    assert!(
        matches!(&before, Answer::Held(held) if held.by == Some(lease.holder)),
        "{before:?}"
    );
    assert!(matches!(renewed(&*store, &lease).await, Outcome::Renewed));
    assert!(next_token(&*store, "b").await > token);
    held(&*store, &claim("a", LONG)).await;
}

/// Their sessions are unknown to it, and it numbers its writes anew.
#[tokio::test]
async fn clients_are_back_within_seconds_after_the_server_lost_its_data() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let client = client_at(&server.url(""), LONG).await;
    let lease = take_waiting(&client, "a").await;
    server.kill();
    server.empty();
    server.run();
    server.serving().await;
    let serving_at = now();
    let next = until("a grant", async || client.acquire("b").await.ok()).await;
    let back_after = now().since(serving_at);
    eprintln!("case=data lost: back_after={back_after:.1?}");
    assert!(back_after < LIMIT, "{back_after:?}");
    drop((lease, next));
    client.shutdown(LIMIT).await;
}

#[tokio::test]
async fn a_silent_server_ends_no_call_late_and_is_found_again() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let relay = Relay::before_port(server.port()).await;
    let store = open(&url_behind(&relay));
    let lease = claim("a", LONG);
    let token = granted(&*store, &lease).await;
    let limit = Duration::from_millis(300);
    for passing in [Passing::Requests, Passing::Nothing] {
        relay.pass(passing);
        for _ in 0..3 {
            let begun = now();
            let error = asked(&*store, &lease, limit).await;
            let error = error.expect_err("nothing is heard");
            let kinds = [ErrorKind::TimedOut, ErrorKind::Unavailable];
            assert!(kinds.contains(&error.kind()), "{error:#}");
            assert!(now().since(begun) < 3 * limit, "{:?}", now().since(begun));
        }
        relay.pass(Passing::All);
        relay.cut();
        // Some replies were lost: asked again, the holder has its lease.
        let again = until("the server", async || {
            asked(&*store, &lease, LIMIT).await.ok()
        })
        .await;
        assert!(
            matches!(&again, Answer::Granted(grant) if grant.token == token),
            "{again:?}"
        );
    }
}

/// The third server takes the client at once, though the first one still accepts connections.
#[tokio::test]
async fn a_server_that_hung_is_not_tried_before_one_that_was_well() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    // With the wrong order a hung server is tried first in each second round.
    for _ in 0..4 {
        let relays = [(); 3].map(|()| Relay::before_port(server.port()));
        let relays = join_all(relays).await;
        let ports = relays.iter().map(|it| format!("127.0.0.1:{}", it.port()));
        let ports: Vec<_> = ports.collect();
        let store = open(&format!("zookeeper://{}", ports.join(",")));
        let current = || relays.iter().position(|it| it.connections() > 0);
        granted(&*store, &claim("a", LONG)).await;
        let hung = current().expect("it is connected");
        relays[hung].pass(Passing::Nothing);
        let next = until("another server", async || {
            relays
                .iter()
                .enumerate()
                .find(|(index, it)| *index != hung && it.connections() > 0)
        })
        .await;
        free(&*store).await;
        let cut_at = now();
        next.1.cut();
        until("the third server", async || {
            let rest = relays.iter().enumerate();
            let mut rest = rest.filter(|(index, _)| ![hung, next.0].contains(index));
            rest.any(|(_, it)| it.connections() > 0).then_some(())
        })
        .await;
        let moved_after = now().since(cut_at);
        assert!(moved_after < Duration::from_millis(900), "{moved_after:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_is_cut_off_is_told_before_a_rival_is_granted() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let direct = open(&server.url(""));
    for passing in [Passing::Requests, Passing::Nothing] {
        let relay = Relay::before_port(server.port()).await;
        let client = client_at(&url_behind(&relay), STORED_TTL).await;
        let lease = take_waiting(&client, "a").await;
        relay.pass(passing);
        let cut_off_at = now();
        let told_at = async {
            assert_eq!(lost(&lease).await, LossReason::Deadline);
            now()
        };
        let (told_at, granted_at) = tokio::join!(told_at, rival_granted_at(&*direct));
        let (told, granted) = (told_at.since(cut_off_at), granted_at.since(cut_off_at));
        eprintln!(
            "case=cut off, {passing:?} pass: told_after={told:.1?} granted_after={granted:.1?}"
        );
        assert!(told_at < granted_at, "{told:?} and {granted:?}");
        lease.check().expect_err("it is lost");
        free(&*direct).await;
    }
}

/// The store carries it out or does not; the watchdog asks again as soon as it can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_without_an_answer_frees_the_name_long_before_its_ttl() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let direct = open(&server.url(""));
    for passing in [Passing::Requests, Passing::Nothing] {
        let relay = Relay::before_port(server.port()).await;
        let client = client_at(&url_behind(&relay), LONG).await;
        let lease = take_waiting(&client, "a").await;
        relay.pass(passing);
        let released_at = now();
        assert_eq!(lease.release().await, ReleaseOutcome::Unknown);
        relay.pass(Passing::All);
        relay.cut();
        let granted = rival_granted_at(&*direct).await.since(released_at);
        eprintln!("case=release unanswered, {passing:?} pass: granted_after={granted:.1?}");
        free(&*direct).await;
    }
}

/// What a client remembers of a name as free counts only if the release was answered.
#[tokio::test]
async fn a_client_whose_release_was_not_answered_does_not_overtake_the_next_holder() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let relay = Relay::before_port(server.port()).await;
    let (store, other) = (open(&url_behind(&relay)), open(&server.url("")));
    let first = claim("a", LONG);
    let token = granted(&*store, &first).await;
    relay.pass(Passing::Requests);
    let released = store.release(&first.name, first.holder, None, UNANSWERED);
    released.await.expect_err("nothing is heard");
    let next = claim("a", LONG);
    until("the release to be carried out", async || {
        let answer = asked(&*other, &next, LIMIT).await.expect("its way is open");
        matches!(answer, Answer::Granted(grant) if grant.token > token).then_some(())
    })
    .await;
    relay.pass(Passing::All);
    relay.cut();
    let answer = until("the server", async || {
        asked(&*store, &claim("a", LONG), LIMIT).await.ok()
    });
    let answer = answer.await;
    assert!(
        matches!(&answer, Answer::Held(held) if held.by == Some(next.holder)),
        "{answer:?}"
    );
}

/// A request that the server has not read so far is carried out later, or waits in the client's own queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_was_dropped_while_the_server_was_down_leaves_nothing() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let client = client_at(&server.url("?session=10s"), LONG).await;
    // The session is there, and the name known.
    drop(take_waiting(&client, "b").await);
    for is_killed in [false, true] {
        if is_killed {
            server.kill();
        } else {
            server.pause();
        }
        let down_at = now();
        let request = client.request("a").on_outage(OutagePolicy::WaitOut);
        let claimed = tokio::time::timeout(UNANSWERED, request.acquire()).await;
        claimed.expect_err("the server is down");
        if is_killed {
            server.run();
            server.serving().await;
        } else {
            server.resume();
        }
        // Whatever of the claim is still to come has arrived.
        let onlooker = open(&server.url(""));
        at(now().after(UNANSWERED)).await;
        let granted = rival_granted_at(&*onlooker).await.since(down_at);
        eprintln!("case=claim dropped, killed={is_killed}: granted_after={granted:.1?}");
        free(&*onlooker).await;
    }
}
