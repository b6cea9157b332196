//! The master of a group that Sentinels watch, when another server becomes the master.

use std::time::Duration;

use futures_util::future::join;
use leasehold::ErrorKind;
use leasehold::store::{Answer, Purpose};

use super::behind_nat::port_of;
use super::open;
use crate::conformance::check_at;
use crate::harness::asking::{asked, begin, chain, claim, granted, held};
use crate::harness::fake_sentinel::FakeSentinel;
use crate::harness::leases::{client_at, take};
use crate::harness::proxy::{Fault, Request};
use crate::harness::redis_group::RedisGroup;
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::rivalry::Rivalry;
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{at, now, until_so};

/// Longer than a failover takes.
const TTL: Duration = Duration::from_secs(6);
/// Half more than the limit of a call of such a lease, and what a busy machine may add.
const WORST_CALL: Duration = Duration::from_millis(2_000);
const NAMES: usize = 30;

#[tokio::test]
async fn sentinels_keep_the_contract() {
    let group = RedisGroup::start().await;
    check_at(group.url()).await;
    group.servers[0].assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_killed_master_costs_no_lease() {
    let mut group = RedisGroup::start().await;
    let rivalry = Rivalry::begin(&group.url(), &group.url(), NAMES, TTL).await;
    rivalry.renewed_or_lost().await;
    group.servers[0].kill();
    group.master_after(0).await;
    rivalry.renewed_or_lost().await;
    rivalry.caller_succeeds().await;
    let ended = rivalry.end();
    assert_eq!((ended.lost, ended.granted), (0, 0), "{ended}");
    assert!(ended.calls.worst < WORST_CALL, "{ended}");
}

#[tokio::test]
async fn an_old_master_that_wakes_after_its_successor_was_made_grants_nothing() {
    let group = RedisGroup::start().await;
    // The control knows one address for ever, as a client without Sentinels does.
    let fixed = format!("redis://127.0.0.1:{}", group.servers[0].port());
    let control = open(&fixed).await;
    let client = client_at(&group.url(), TTL).await;
    let (first, second) = (take(&client, "first").await, take(&client, "second").await);
    // It looked long ago when the master wakes.
    let idle = open(&group.url()).await;
    for store in [&idle, &control] {
        held(&**store, &claim("first", LONG)).await;
    }
    let rivalry = Rivalry::begin(&group.url(), &group.url(), NAMES, TTL).await;
    rivalry.renewed_or_lost().await;
    group.servers[0].pause();
    group.master_after(0).await;
    // The old master's copies of the leases run out.
    at(now().after(TTL)).await;
    group.servers[0].resume();
    let by_idle = asked(&*idle, &claim("first", LONG), LIMIT).await;
    let by_control = asked(&*control, &claim("second", LONG), LIMIT).await;
    let is_grant = |answer: &Result<Answer, _>| matches!(answer, Ok(Answer::Granted(_)));
    assert!(
        !is_grant(&by_idle),
        "the old master has granted a held name"
    );
    assert!(
        is_grant(&by_control),
        "the fault is too tame: {by_control:?}"
    );
    rivalry.renewed_or_lost().await;
    first.check().expect("it was renewed at the new master");
    second.check().expect("it was renewed at the new master");
    let ended = rivalry.end();
    assert_eq!((ended.lost, ended.granted), (0, 0), "{ended}");
    assert!(ended.calls.worst < WORST_CALL, "{ended}");
}

#[tokio::test]
async fn a_failover_by_an_operator_costs_no_lease_and_few_calls() {
    let group = RedisGroup::start().await;
    let rivalry = Rivalry::begin(&group.url(), &group.url(), NAMES, TTL).await;
    rivalry.renewed_or_lost().await;
    group.fail_over().await;
    group.master_after(0).await;
    rivalry.renewed_or_lost().await;
    rivalry.caller_succeeds().await;
    let ended = rivalry.end();
    assert_eq!((ended.lost, ended.granted), (0, 0), "{ended}");
    // Those that were on their way when the old master closed its connections. Thousands are made.
    assert!(ended.calls.failed <= 30, "{ended}");
}

#[tokio::test]
async fn a_group_that_the_sentinels_do_not_know_is_said() {
    let group = RedisGroup::start().await;
    let url = group.url().replace("/main", "/mani");
    let answer = asked(&*open(&url).await, &claim("a", LONG), LIMIT).await;
    let error = answer.expect_err("no such group");
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(
        chain(&error).contains("know no master named \"mani\""),
        "{}",
        chain(&error)
    );
    for (address, what) in [
        (group.sentinels[0].host(), "redis+sentinel://HOST/NAME"),
        (
            format!("127.0.0.1:{}/main", group.servers[0].port()),
            "use redis://",
        ),
    ] {
        let scheme = if address.ends_with("/main") {
            "redis+sentinel"
        } else {
            "redis"
        };
        let store = open(&format!("{scheme}://{address}")).await;
        let error = asked(&*store, &claim("a", LONG), LIMIT)
            .await
            .expect_err("of another kind");
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(chain(&error).contains(what), "{}", chain(&error));
    }
    let none = format!("redis+sentinel://{}/main", "127.0.0.1:1");
    let error = asked(&*open(&none).await, &claim("a", LONG), LIMIT).await;
    assert_eq!(
        error.expect_err("nobody is there").kind(),
        ErrorKind::Unavailable
    );
}

async fn two_servers() -> [RedisServer; 2] {
    let start = || Setup::default().with_port().start();
    [start().await, start().await]
}

#[tokio::test]
async fn one_sentinel_behind_the_name_of_all_takes_no_failover_back() {
    let [old, new] = two_servers().await;
    for times_named in [1, 2] {
        let sentinel = FakeSentinel::naming(new.port(), 5).await;
        let hosts = vec![sentinel.host(); times_named].join(",");
        takes_no_failover_back(&sentinel, &hosts, &format!("n-{times_named}"), &old).await;
    }
}

#[tokio::test]
async fn one_sentinel_under_two_names_takes_no_failover_back() {
    let [old, new] = two_servers().await;
    for knows_itself in [true, false] {
        let sentinel = FakeSentinel::naming(new.port(), 5).await;
        if !knows_itself {
            sentinel.deny_its_id();
        }
        let other_name = sentinel.host().replace("127.0.0.1", "localhost");
        let hosts = format!("{},{other_name}", sentinel.host());
        takes_no_failover_back(&sentinel, &hosts, &format!("n-{knows_itself}"), &old).await;
    }
}

#[tokio::test]
async fn a_fresh_client_does_not_believe_a_near_sentinel_that_missed_a_failover() {
    let [old, new] = two_servers().await;
    let near = FakeSentinel::naming(old.port(), 4).await;
    let far = [
        FakeSentinel::naming(new.port(), 5).await,
        FakeSentinel::naming(new.port(), 5).await,
    ];
    let hosts = [near.host(), far[0].host(), far[1].host()].join(",");
    let url = format!("redis+sentinel://{hosts}/main");
    let lease = claim("a", LONG);
    granted(
        &*open(&format!("redis://127.0.0.1:{}", new.port())).await,
        &lease,
    )
    .await;
    // The control: they are as near.
    held(&*open(&url).await, &claim("a", LONG)).await;
    far.iter()
        .for_each(|far| far.delay(Duration::from_millis(200)));
    held(&*open(&url).await, &claim("a", LONG)).await;
}

#[tokio::test]
async fn a_fresh_client_of_mostly_silent_sentinels_waits_for_one_discovery() {
    let master = Setup::default().with_port().start().await;
    let near = FakeSentinel::naming(master.port(), 4).await;
    let silent = [
        FakeSentinel::naming(master.port(), 4).await,
        FakeSentinel::naming(master.port(), 4).await,
    ];
    let hosts = [near.host(), silent[0].host(), silent[1].host()].join(",");
    let url = format!("redis+sentinel://{hosts}/main");
    for (is_silent, least, most) in [(0, 0, 450), (1, 0, 450), (2, 450, 1_500)] {
        for sentinel in &silent[..is_silent] {
            sentinel.delay(Duration::from_secs(60));
        }
        let store = open(&url).await;
        let began_at = now();
        granted(&*store, &claim(&format!("a{is_silent}"), LONG)).await;
        let took = now().since(began_at).as_millis();
        println!("{is_silent} of 3 Sentinels silent: the first claim takes {took} ms");
        assert!(
            (least..most).contains(&took),
            "{is_silent} silent: {took} ms"
        );
        let began_at = now();
        granted(&*store, &claim(&format!("b{is_silent}"), LONG)).await;
        let took = now().since(began_at).as_millis();
        assert!(took < 450, "{is_silent} silent, a later claim: {took} ms");
    }
}

/// A name that is held stays held, although the Sentinel at these hosts missed a failover and names the old master.
async fn takes_no_failover_back(
    sentinel: &FakeSentinel,
    hosts: &str,
    name: &str,
    old: &RedisServer,
) {
    let url = format!("redis+sentinel://{hosts}/main");
    let (holder, rival) = (open(&url).await, open(&url).await);
    granted(&*holder, &claim(name, LONG)).await;
    held(&*rival, &claim(name, LONG)).await;
    sentinel.name(old.port(), 4);
    let asked = sentinel.asked();
    until_so("it was looked again", async || {
        held(&*rival, &claim(name, LONG)).await;
        sentinel.asked() >= asked + 6
    })
    .await;
}

#[tokio::test]
async fn a_slow_answer_does_not_count_if_another_master_was_made_meanwhile() {
    let [old, new] = two_servers().await;
    let proxy = old.proxy().await;
    let sentinel = FakeSentinel::naming(port_of(&proxy), 1).await;
    let store = open(&format!("redis+sentinel://{}/main", sentinel.host())).await;
    granted(&*store, &claim("warm", LONG)).await;
    // The next claim begins with a look, and the one after that comes half a second later.
    at(now().after(Duration::from_millis(600))).await;
    let late = Fault::DelayReply(Duration::from_millis(300));
    proxy.once(Request::is_script, late);
    let asked = sentinel.asked();
    let claim = claim("a", LONG);
    let mut request = store.acquire(&claim, claim.ask, LIMIT);
    begin(&mut request).await;
    let deposed = async {
        until_so("it was looked", async || sentinel.asked() > asked).await;
        sentinel.name(new.port(), 2);
    };
    let (answer, ()) = join(request, deposed).await;
    let failed = answer.expect_err("the old master's answer");
    assert_eq!(failed.error.kind(), ErrorKind::Unavailable);
    assert!(chain(&failed.error).contains("taken over"), "{failed:?}");
}

#[tokio::test]
async fn a_discovery_that_another_one_overtook_takes_no_failover_back() {
    let [old, new] = two_servers().await;
    let sentinel = FakeSentinel::naming(old.port(), 1).await;
    let store = open(&format!("redis+sentinel://{}/main", sentinel.host())).await;
    granted(&*store, &claim("warm", LONG)).await;
    let own = store.on_own_connection(Purpose::Watchdog).await;
    let own = own.expect("connected");
    // The next claim begins with a look, and the one after that comes half a second later.
    at(now().after(Duration::from_millis(600))).await;
    let looked = sentinel.asked();
    sentinel.delay(Duration::from_millis(300));
    let first = claim("a", LONG);
    let mut request = store.acquire(&first, first.ask, LIMIT);
    begin(&mut request).await;
    let overtaken = async {
        until_so("it was looked", async || sentinel.asked() > looked).await;
        sentinel.name(new.port(), 2);
        sentinel.delay(Duration::ZERO);
        until_so("the other look", async || {
            let _ = asked(&*own, &claim("b", LONG), LIMIT).await;
            new.keys().await.contains(&"leasehold:{b}".into())
        })
        .await;
    };
    let (answer, ()) = join(request, overtaken).await;
    let failed = answer.expect_err("the old master's answer");
    assert_eq!(failed.error.kind(), ErrorKind::Unavailable, "{failed:?}");
    for (store, name) in [(&store, "c"), (&own, "d")] {
        granted(&**store, &claim(name, LONG)).await;
        let keys = new.keys().await;
        assert!(keys.contains(&format!("leasehold:{{{name}}}")), "{keys:?}");
    }
}
