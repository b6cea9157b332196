//! Grants and renewals that count only once replicas have them.

use std::time::Duration;

use deadpool_redis::redis;
use futures_util::future::{join_all, join4};
use leasehold::store::redis::Redis;
use leasehold::store::{Outcome, Sent};
use leasehold::{Client, ErrorKind};

use super::open;
use crate::harness::asking::{asked, begin, chain, claim, granted, released, renewal, renewed};
use crate::harness::fake_sentinel::FakeSentinel;
use crate::harness::fake_server::{FakeNode, FakeServer};
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::rivalry::{Ended, Rivalry};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{now, until, until_so};

/// A master and its replica, which has acknowledged all data.
async fn acknowledging_pair() -> (RedisServer, RedisServer) {
    let master = Setup::default().with_port().start().await;
    let replica = Setup::default().with_port().start().await;
    replica.follow(&master).await;
    until_so("the replica counts", async || {
        let info: String = master.told("INFO replication").await;
        info.contains("state=online")
    })
    .await;
    // It counts from its first acknowledgement on, which comes up to a second later.
    until_so("the replica acknowledges", async || {
        let mut connection = master.connect().await.expect("it is up");
        let mut write = redis::pipe();
        write.cmd("SET").arg("probe").arg(1).ignore();
        write.cmd("WAIT").arg(1).arg(100);
        let replicas: (u8,) = write.query_async(&mut connection).await.expect("answered");
        replicas.0 == 1
    })
    .await;
    (master, replica)
}

#[tokio::test]
async fn a_grant_that_no_replica_has_is_unavailable_and_may_have_been_made() {
    let server = RedisServer::start().await;
    let store = open(&format!("{}?acknowledged_by=1", server.url())).await;
    let claim = claim("a", LONG);
    let failed = store
        .acquire(&claim, claim.ask, LIMIT)
        .await
        .expect_err("no replica");
    assert_eq!(
        (failed.error.kind(), failed.sent),
        (ErrorKind::Unavailable, Sent::Perhaps)
    );
    let said = chain(&failed.error);
    assert!(said.contains("not acknowledged: 0 of 1 replicas"), "{said}");
    // What was written is taken back as after a lost reply.
    released(&*store, &claim).await;
    assert_eq!(store.list("", LIMIT).await.expect("answered").len(), 0);
}

#[tokio::test]
async fn while_the_replica_follows_leases_are_granted_and_renewed_and_without_it_renewals_are_unknown()
 {
    let (master, replica) = acknowledging_pair().await;
    let store = open(&format!("{}?acknowledged_by=1", master.url())).await;
    let claims: Vec<_> = (0..40)
        .map(|index| claim(&format!("n-{index}"), LONG))
        .collect();
    // A busy machine's replica may be slower than the server waits.
    join_all(claims.iter().map(async |claim| {
        until("the grant", async || {
            asked(&*store, claim, LIMIT).await.ok()
        })
        .await;
    }))
    .await;
    assert_eq!(
        open(&replica.url())
            .await
            .list("n-", LIMIT)
            .await
            .expect("read")
            .len(),
        40
    );
    until_so("the renewal", async || {
        matches!(renewed(&*store, &claims[0]).await, Outcome::Renewed)
    })
    .await;
    replica.promote().await;
    let batch: Vec<_> = claims.iter().map(renewal).collect();
    let began_at = now();
    let limit = Duration::from_secs(2);
    let outcomes = join_all(
        batch
            .iter()
            .map(|one| store.renew(std::slice::from_ref(one), limit)),
    );
    for renewed in outcomes.await {
        let outcome = &renewed.outcomes[0];
        assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    }
    // They share the time that the server waits for its replicas.
    assert!(
        now().since(began_at) < limit * 3 / 2,
        "{:?}",
        now().since(began_at)
    );
}

/// A holder whose Sentinel names the old master for ever, while its replica is promoted on the other side.
async fn cut_off_with_its_holder(acknowledged_by: u8) -> Ended {
    let ttl = Duration::from_secs(3);
    let (master, replica) = acknowledging_pair().await;
    let [here, there] = [
        FakeSentinel::naming(master.port(), 1).await,
        FakeSentinel::naming(master.port(), 1).await,
    ];
    let holders = format!(
        "redis+sentinel://{}/main?acknowledged_by={acknowledged_by}",
        here.host()
    );
    let rivals = format!("redis+sentinel://{}/main", there.host());
    let rivalry = Rivalry::begin(&holders, &rivals, 10, ttl).await;
    rivalry.renewed_or_lost().await;
    replica.promote().await;
    there.name(replica.port(), 2);
    rivalry.rival_has_all().await;
    rivalry.end()
}

#[tokio::test]
async fn a_holder_cut_off_with_its_master_is_told_before_a_rival_is_granted() {
    let control = cut_off_with_its_holder(0).await;
    assert_eq!(
        control.overlaps.len(),
        10,
        "the fault is too tame: {control}"
    );
    let ended = cut_off_with_its_holder(1).await;
    assert_eq!(
        (ended.lost, ended.granted, ended.overlaps.len()),
        (10, 10, 0),
        "{ended}"
    );
}

#[tokio::test]
async fn more_replicas_than_can_be_asked_for_are_refused() {
    let error = Redis::open("redis://localhost?acknowledged_by=9").expect_err("too many");
    assert!(error.to_string().contains("acknowledged_by=9"), "{error}");
    let error = Redis::open("redis://localhost?acknowledged_by=one").expect_err("no number");
    assert!(
        error
            .to_string()
            .contains("its acknowledged_by is not a number"),
        "{error}"
    );
    assert!(!error.to_string().contains("one\""), "{error}");
    let built = Redis::builder("redis://localhost")
        .acknowledged_by(9)
        .build();
    assert_eq!(built.expect_err("too many").kind(), ErrorKind::Invalid);
    let client = Client::builder().store_url("redis://localhost?acknowledged_by=-1");
    client.build().await.expect_err("no number");
}

#[tokio::test]
async fn a_claim_that_is_not_polled_costs_no_other_claim_anything() {
    let (master, _replica) = acknowledging_pair().await;
    let store = open(&format!("{}?acknowledged_by=1", master.url())).await;
    granted(&*store, &claim("warm", LONG)).await;
    let kept = claim("kept", LONG);
    let mut not_polled = store.acquire(&kept, kept.ask, LIMIT);
    begin(&mut not_polled).await;
    let began_at = now();
    for name in ["a", "b", "c"] {
        granted(&*store, &claim(name, LONG)).await;
    }
    let took = now().since(began_at);
    assert!(took < Duration::from_secs(1), "{took:?}");
    not_polled.await.expect("it is granted as well");
}

/// A server that grants everything and answers each request after the time that the test says.
async fn granting(
    acknowledged: impl Fn(u64) -> (u64, u64) + Copy + Send + Sync + 'static,
) -> FakeServer {
    FakeServer::answering(move |words| match &*words[0].to_uppercase() {
        "EVALSHA" => (0, "+granted 7\r\n".into()),
        "WAIT" => {
            let limit = words[2].parse().expect("a number");
            let (ms, replicas) = acknowledged(limit);
            (ms, format!(":{replicas}\r\n"))
        }
        _ => (0, ":0\r\n".into()),
    })
    .await
}

#[tokio::test]
async fn a_write_that_is_answered_after_a_wait_was_sent_needs_one_of_its_own() {
    let server = granting(|_| (50, 1)).await;
    let store = open(&format!("{}?acknowledged_by=1", server.url())).await;
    granted(&*store, &claim("warm", LONG)).await;
    let before = server.count("WAIT");
    let (first, second) = (claim("first", LONG), claim("second", LONG));
    let mut first = store.acquire(&first, first.ask, LIMIT);
    begin(&mut first).await;
    let mut second = store.acquire(&second, second.ask, LIMIT);
    begin(&mut second).await;
    for answer in [second.await, first.await] {
        answer.expect("granted");
    }
    // Its WAIT is behind the second claim, so that it is about both.
    assert_eq!(server.count("WAIT") - before, 2);
    assert_eq!(server.seen().last().map(|words| &*words[0]), Some("WAIT"));
}

#[tokio::test]
async fn a_caller_in_a_hurry_does_not_fail_those_that_have_more_time() {
    // Replicas need longer than the one in a hurry leaves them.
    let server = granting(|limit| match limit < 150 {
        true => (limit, 0),
        false => (50, 1),
    })
    .await;
    let store = open(&format!("{}?acknowledged_by=1", server.url())).await;
    granted(&*store, &claim("warm", LONG)).await;
    let hurried = Duration::from_millis(300);
    let claims = ["a", "hurried", "b", "c"].map(|name| claim(name, LONG));
    let mut asked = claims.each_ref().map(|claim| {
        let limit = if claim.name.as_str() == "hurried" {
            hurried
        } else {
            LIMIT
        };
        store.acquire(claim, claim.ask, limit)
    });
    // All are sent behind the WAIT of the first, and answered together after it. The one in a hurry is polled first, so its
    // WAIT is about all of them.
    for request in &mut asked {
        begin(request).await;
    }
    let [a, hurried, b, c] = asked;
    let (a, _, b, c) = join4(a, hurried, b, c).await;
    for answer in [a, b, c] {
        answer.expect("granted");
    }
    let waits = server.seen().into_iter().filter(|words| words[0] == "WAIT");
    let limits: Vec<u64> = waits
        .map(|words| words[2].parse().expect("a number"))
        .collect();
    assert!(
        limits.iter().any(|limit| *limit < 150),
        "nobody was in a hurry: {limits:?}"
    );
}

#[tokio::test]
async fn a_missing_acknowledgement_fails_only_what_was_written() {
    let server = FakeNode::start(|words| match &*words[0].to_uppercase() {
        "EVALSHA" if words[3].contains("renewed") => Some(":1\r\n".into()),
        _ => None,
    });
    let server = server.await;
    let store = open(&format!("{}?acknowledged_by=1", server.url())).await;
    let claims = ["renewed", "refused"].map(|name| claim(name, LONG));
    let outcomes = store.renew(&claims.each_ref().map(renewal), LIMIT).await;
    let [Outcome::Unknown(error), Outcome::Refused] = &outcomes.outcomes[..] else {
        panic!("{:?}", outcomes.outcomes);
    };
    let said = chain(error);
    assert!(said.contains("not acknowledged: 0 of 1 replicas"), "{said}");
}
