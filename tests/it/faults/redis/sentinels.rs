//! Faults of Sentinels, and of the group that they watch.

use std::time::Duration;

use leasehold::store::{Answer, Outcome};

use crate::harness::asking::{asked, claim, granted};
use crate::harness::fake_sentinel::FakeSentinel;
use crate::harness::redis_group::RedisGroup;
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::rivalry::Rivalry;
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{at, now, until, until_so};
use crate::redis::open;

/// Longer than a failover takes.
const TTL: Duration = Duration::from_secs(6);
const NAMES: usize = 30;

#[tokio::test]
async fn without_any_sentinel_a_master_that_is_well_goes_on() {
    let group = RedisGroup::start().await;
    let rivalry = Rivalry::begin(&group.url(), &group.url(), NAMES, TTL).await;
    rivalry.caller_succeeds().await;
    group.sentinels.iter().for_each(|sentinel| sentinel.pause());
    rivalry.renewed_or_lost().await;
    rivalry.renewed_or_lost().await;
    rivalry.caller_succeeds().await;
    let ended = rivalry.end();
    assert_eq!(
        (ended.lost, ended.granted, ended.calls.failed),
        (0, 0, 0),
        "{ended}"
    );
    assert!(ended.calls.worst < TTL / 6, "{ended}");
}

#[tokio::test]
async fn without_a_majority_of_sentinels_a_dead_master_has_no_successor_or_early_grant() {
    let mut group = RedisGroup::start().await;
    let rivalry = Rivalry::begin(&group.url(), &group.url(), NAMES, TTL).await;
    rivalry.renewed_or_lost().await;
    let others = &group.sentinels[1..];
    others.iter().for_each(|sentinel| sentinel.pause());
    let snapshot = group.servers[0].snapshot().await;
    group.servers[0].kill();
    rivalry.all_are_lost().await;
    group.servers[0].restart_from(&snapshot).await;
    rivalry.rival_has_all().await;
    let ended = rivalry.end();
    assert_eq!((ended.lost, ended.overlaps.len()), (NAMES, 0), "{ended}");
}

#[tokio::test]
async fn a_master_that_comes_back_empty_grants_again_and_its_holders_are_refused() {
    let mut group = RedisGroup::start().await;
    // However slowly it starts, it is back before a Sentinel takes it for down.
    group.sentinels[0].take_for_down_after(60_000).await;
    let rivalry = Rivalry::begin(&group.url(), &group.url(), NAMES, TTL).await;
    rivalry.renewed_or_lost().await;
    group.servers[0].restart_empty().await;
    rivalry.rival_has_all().await;
    rivalry.all_are_lost().await;
    let ended = rivalry.end();
    assert_eq!(group.master().await, 0, "it was replaced");
    // What the promises leave to the fence: the rival is granted first, under a higher token. The holders are refused at
    // their next renewal, and are told by their deadline at the latest.
    assert_eq!(ended.lost, NAMES, "{ended}");
    assert!(
        ended.overlaps.iter().all(|overlap| *overlap < TTL),
        "{ended}"
    );
}

/// Servers of which the second takes over, without Sentinels of their own.
async fn two() -> (RedisServer, RedisServer) {
    let first = Setup::default().with_port().start().await;
    let second = Setup::default().with_port().start().await;
    (first, second)
}

/// The holder of this name at a server, by its token.
async fn has(server: &RedisServer, name: &str) -> bool {
    let direct = open(&server.url()).await;
    let held = direct.list(name, LIMIT).await.expect("answered");
    !held.is_empty()
}

#[tokio::test]
async fn of_several_sentinels_the_newest_is_believed_wherever_it_stands() {
    let (old, new) = two().await;
    let stale = FakeSentinel::naming(old.port(), 4).await;
    let [one, two] = [
        FakeSentinel::naming(new.port(), 5).await,
        FakeSentinel::naming(new.port(), 5).await,
    ];
    let url = format!(
        "redis+sentinel://{},{},{}/main",
        stale.host(),
        one.host(),
        two.host()
    );
    for round in 0..10 {
        let name = format!("n-{round}");
        let store = open(&url).await;
        granted(&*store, &claim(&name, LONG)).await;
        assert!(has(&new, &name).await && !has(&old, &name).await);
    }
}

#[tokio::test]
async fn sentinels_that_were_set_up_anew_are_believed_once_most_agree() {
    let (old, new) = two().await;
    let sentinels = [
        FakeSentinel::naming(old.port(), 7).await,
        FakeSentinel::naming(old.port(), 7).await,
        FakeSentinel::naming(old.port(), 7).await,
    ];
    let hosts: Vec<_> = sentinels.iter().map(FakeSentinel::host).collect();
    let store = open(&format!("redis+sentinel://{}/main", hosts.join(","))).await;
    granted(&*store, &claim("a", LONG)).await;
    let goes_to = async |server: &RedisServer| {
        let name = format!("n-{}", fastrand::u64(..));
        match asked(&*store, &claim(&name, LONG), LIMIT).await {
            Ok(Answer::Granted(_)) => has(server, &name).await,
            _ => false,
        }
    };
    // They count from the start again.
    sentinels[0].name(new.port(), 0);
    at(now().after(Duration::from_secs(2))).await;
    assert!(goes_to(&old).await, "one of three is not enough");
    sentinels[1].name(new.port(), 0);
    sentinels[2].name(new.port(), 0);
    until_so("the new master is followed", async || goes_to(&new).await).await;
}

#[tokio::test]
async fn a_renewal_that_waits_at_a_stopped_master_is_renewed_at_its_successor() {
    let group = RedisGroup::start().await;
    let store = open(&group.url()).await;
    let lease = claim("a", LONG);
    granted(&*store, &lease).await;
    until_so("a replica has the lease", async || {
        has(&group.servers[1], "a").await && has(&group.servers[2], "a").await
    })
    .await;
    group.servers[0].pause();
    // Longer than the Sentinels need.
    let renewing = async {
        let batch = [lease.renewal()];
        store.renew(&batch, LIMIT).await.outcomes.remove(0)
    };
    let waking = async {
        group.master_after(0).await;
        group.servers[0].resume();
    };
    let (outcome, ()) = tokio::join!(renewing, waking);
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    until("it is renewed at the successor", async || {
        let batch = [lease.renewal()];
        let outcome = store.renew(&batch, LIMIT).await.outcomes.remove(0);
        assert!(
            !matches!(outcome, Outcome::Refused),
            "a live lease was given up"
        );
        matches!(outcome, Outcome::Renewed).then_some(())
    })
    .await;
}
