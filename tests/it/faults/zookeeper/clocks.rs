//! Leaders whose wall clocks are far apart, or are stepped.

use std::time::Duration;

use leasehold::store::{Answer, Outcome};

use super::{TICK, TTL};
use crate::harness::asking::{asked, claim, granted, held, next_token, released, renewed};
use crate::harness::leases::{client_at, take_waiting};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{at, now, until};
use crate::harness::zookeeper_server::{ZookeeperEnsemble, ZookeeperServer};
use crate::zookeeper::sweep::{in_one_folder, swept};
use crate::zookeeper::{open, open_sweeping};

/// The third one leads first, and is the one behind: the next leader's clock is ahead of it by half a minute or a minute.
const AHEAD_MS: [Option<i64>; 3] = [Some(30_000), None, Some(-30_000)];

const HOUR_MS: i64 = 3_600_000;

/// A lease that is renewed lives on; one whose holder died is not granted before its time, though the next leader's clock
/// says that it was over long ago.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_clock_is_ahead_ends_no_lease_early() {
    let ensemble = ZookeeperEnsemble::with_clocks(TICK, AHEAD_MS).await;
    let url = ensemble.url("?session=8s");
    let (store, rival) = (open(&url), open(&url));
    // Long enough for an election on a busy machine, and renewed several times before the end.
    let client = client_at(&url, 3 * TTL).await;
    let held = take_waiting(&client, "held").await;
    for round in 0..2 {
        // It is renewed once and never again.
        let name = format!("dead-{round}");
        let dead = claim(&name, 2 * TTL);
        let token = granted(&*store, &dead).await;
        let renewed_at = now();
        assert!(matches!(renewed(&*store, &dead).await, Outcome::Renewed));
        let leader = ensemble.leader();
        leader.kill();
        let next = claim(&name, TTL);
        let after = loop {
            match asked(&*rival, &next, LIMIT).await {
                Ok(Answer::Granted(grant)) => break grant.token,
                _ => assert!(
                    now() < renewed_at.after(Duration::from_secs(60)),
                    "not granted"
                ),
            }
            at(now().after(Duration::from_millis(20))).await;
        };
        let granted_after = now().since(renewed_at);
        eprintln!(
            "case=leaders' clocks apart: granted_after={granted_after:.1?} of ttl {:?}",
            2 * TTL
        );
        assert!(granted_after >= 2 * TTL, "{granted_after:?}");
        assert!(after > token, "{after} after {token}");
        held.check().expect("it was renewed through the election");
        leader.run();
        ensemble.serving().await;
    }
    drop(held);
    client.shutdown(LIMIT).await;
}

/// The next leader's clock is two hours behind the one that stamped the token before the sweep.
#[tokio::test]
async fn tokens_rise_through_a_sweep_and_a_leader_whose_clock_is_behind() {
    let ensemble = ZookeeperEnsemble::with_clocks(TICK, [None, None, Some(2 * HOUR_MS)]).await;
    let leader = ensemble.leader();
    let ahead = ensemble.servers[2].port();
    assert_eq!(leader.port(), ahead, "the one ahead leads");
    let store = open_sweeping(&ensemble.url(""));
    let name = in_one_folder("old").next().expect("a name");
    let token = next_token(&*store, &name).await;
    swept(leader, &*store, &name).await;
    leader.kill();
    let fresh = open(&ensemble.url(""));
    let next = until("a grant", async || {
        match asked(&*fresh, &claim(&name, LONG), LIMIT).await {
            Ok(Answer::Granted(grant)) => Some(grant.token),
            _ => None,
        }
    });
    let next = next.await;
    assert!(next > token, "{next} after {token}");
}

/// The rival knows the clock as it was before the step back: it asks for the time before it takes over what seems to be over.
#[tokio::test]
async fn a_step_forward_frees_names_early_and_one_back_gives_none_away() {
    let server = ZookeeperServer::start_on_own_machine(TICK).await;
    let url = server.url("");
    let (store, rival) = (open(&url), open(&url));
    let first = claim("a", LONG);
    let token = granted(&*store, &first).await;

    server.step_clock(HOUR_MS);
    let second = claim("a", LONG);
    let next = granted(&*rival, &second).await;
    assert!(next > token, "{next} after {token}");
    let renewal = renewed(&*store, &first).await;
    assert!(matches!(renewal, Outcome::Refused), "{renewal:?}");

    server.step_clock(-2 * HOUR_MS);
    let third = claim("b", LONG);
    granted(&*store, &third).await;
    let left = held(&*rival, &claim("b", LONG)).await.remaining;
    assert!(left.is_some_and(|left| left <= LONG), "{left:?}");
    assert!(matches!(renewed(&*store, &third).await, Outcome::Renewed));
    assert!(matches!(renewed(&*rival, &second).await, Outcome::Renewed));
    released(&*rival, &second).await;
    let last = granted(&*store, &claim("a", LONG)).await;
    assert!(last > next, "{last} after {next}");
}

#[tokio::test]
async fn a_client_that_saw_a_token_from_a_wrong_clock_can_have_the_name_again() {
    let server = ZookeeperServer::start_on_own_machine(TICK).await;
    server.step_clock(48 * HOUR_MS);
    let client = client_at(&server.url(""), LONG).await;
    let mut last = None;
    for round in 0..3 {
        let lease = take_waiting(&client, "a").await;
        assert!(Some(lease.token()) > last, "{round}: {}", lease.token());
        last = Some(lease.token());
        lease.release().await;
        if round == 0 {
            server.step_clock(-48 * HOUR_MS);
        }
    }
    client.shutdown(LIMIT).await;
}
