//! Waiting on a real server while something goes wrong.

use std::time::Duration;

use deadpool_redis::redis;
use leasehold::{Client, Lease, ReleaseOutcome};
use tokio::runtime;
use tokio::task::{JoinHandle, JoinSet};

use super::{child, waiter};
use crate::harness::leases::client_at;
use crate::harness::proxy::{Fault, Proxy, Request};
use crate::harness::redis_server::RedisServer;
use crate::harness::subprocess::Subprocess;
use crate::harness::times::{LONG, STORED_TTL};
use crate::harness::wait::{now, soon, until_so};

/// How long a lost notice can cost at most: a client that waits polls three times in the term of its place.
const CAP: Duration = STORED_TTL;
const LEASE: &str = "leasehold:{a}";
/// A claim that no client made.
const RIVAL: &str = "00000000000000000000000000000002-0000000000000002";

/// A lease of a minute, which no test outlives.
async fn long_lease(client: &Client) -> Lease {
    client.request("a").ttl(LONG).acquire().await.unwrap()
}

/// Returns once so many clients wait and hear of a grant.
async fn until_queued(server: &RedisServer, clients: usize) {
    until_so("the queue", async || {
        let claims: Vec<String> = server.told("HVALS leasehold:{a}:waiting").await;
        let hears = |claim: &&String| claim.split(' ').nth(2) == Some("1");
        claims.iter().filter(hears).count() == clients
    })
    .await;
}

/// The claim of the only client that waits.
async fn holder_that_waits(server: &RedisServer) -> String {
    let claims: Vec<String> = server.told("HVALS leasehold:{a}:waiting").await;
    claims[0].split(' ').nth(3).unwrap().into()
}

/// The channel on which the only client that waits hears of a grant.
async fn granted_channel(server: &RedisServer) -> String {
    let mut channels: Vec<String> = server.told("PUBSUB CHANNELS leasehold:{a}:granted:*").await;
    assert_eq!(channels.len(), 1, "{channels:?}");
    channels.remove(0)
}

/// How many scripts were run.
async fn scripts(server: &RedisServer) -> usize {
    let info: String = server.told("INFO commandstats").await;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    let calls = line.and_then(|line| line.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

fn mentions(request: &Request, part: &str) -> bool {
    request.words.iter().any(|word| word.contains(part))
}

/// Returns when so many requests have met a fault.
async fn faulted(proxy: &Proxy, count: usize) {
    until_so("the fault", async || proxy.faults().len() >= count).await;
}

#[tokio::test]
async fn a_name_that_is_freed_without_a_notice_is_found_within_the_cap() {
    let server = RedisServer::start().await;
    let lease = long_lease(&client_at(&server.url(), STORED_TTL).await).await;
    let waiter = waiter(&client_at(&server.url(), STORED_TTL).await);
    until_queued(&server, 1).await;
    let freed = now();
    let () = server.told(&format!("DEL {LEASE}")).await;
    drop(soon(waiter).await.unwrap());
    let took = now().since(freed);
    assert!(took < CAP + Duration::from_secs(1), "{took:?}");
    drop(lease);
}

#[tokio::test]
async fn a_killed_subscriber_comes_back_and_checks_every_name() {
    let server = RedisServer::start().await;
    let lease = long_lease(&client_at(&server.url(), STORED_TTL).await).await;
    let waiter = waiter(&client_at(&server.url(), STORED_TTL).await);
    until_queued(&server, 1).await;
    let killed: usize = server.told("CLIENT KILL TYPE pubsub").await;
    assert_eq!(killed, 1);
    let freed = now();
    lease.release().await;
    drop(soon(waiter).await.unwrap());
    let took = now().since(freed);
    assert!(took < CAP / 2, "{took:?}");
}

#[tokio::test]
async fn two_hundred_waiters_are_served_after_a_restart() {
    let mut server = RedisServer::start().await;
    let lease = long_lease(&client_at(&server.url(), STORED_TTL).await).await;
    let mut waiters = JoinSet::new();
    for _ in 0..10 {
        let client = client_at(&server.url(), STORED_TTL).await;
        for _ in 0..20 {
            let waiter = waiter(&client);
            waiters.spawn(async move { waiter.await.unwrap().release().await });
        }
    }
    until_queued(&server, 10).await;
    server.kill();
    tokio::time::sleep(STORED_TTL / 4).await;
    server.restart_empty().await;
    let up = now();
    let served = tokio::time::timeout(CAP * 2, waiters.join_all()).await;
    let took = now().since(up);
    assert_eq!(served.expect("all are served").len(), 200);
    assert!(took < CAP + Duration::from_secs(2), "{took:?}");
    drop(lease);
}

#[tokio::test]
async fn a_notice_that_comes_twice_or_is_wrong_changes_nothing() {
    let server = RedisServer::start().await;
    let lease = long_lease(&client_at(&server.url(), STORED_TTL).await).await;
    let next = client_at(&server.url(), STORED_TTL).await;
    let waiting = waiter(&next);
    until_queued(&server, 1).await;
    let channel = granted_channel(&server).await;
    let publish = async |message: &str| {
        let mut connection = server.connect().await.unwrap();
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(&channel).arg(message);
        let heard: usize = publish.query_async(&mut connection).await.unwrap();
        assert_eq!(heard, 1);
    };
    let told = format!("{} 7", holder_that_waits(&server).await);
    for message in [
        "look",
        "",
        "x y z",
        &told,
        &format!("{RIVAL} 9007199254740000"),
    ] {
        publish(message).await;
    }
    let calls = scripts(&server).await;
    until_so("a poll", async || scripts(&server).await > calls).await;
    assert!(!waiting.is_finished(), "it holds what another one has");
    lease.check().unwrap();
    lease.release().await;
    let lease = soon(waiting).await.unwrap();
    for message in ["look", &format!("{} {}", lease.holder(), lease.token())] {
        publish(message).await;
        let () = server.told("PUBLISH leasehold:{a}:freed 0").await;
    }
    lease.check().unwrap();
    let value: String = server.told(&format!("GET {LEASE}")).await;
    assert!(value.starts_with(&lease.holder().to_string()), "{value}");
    assert_eq!(lease.release().await, ReleaseOutcome::Released);
}

#[tokio::test]
async fn a_release_whose_reply_is_lost_frees_once() {
    let server = RedisServer::start().await;
    let proxy = server.proxy().await;
    let holder = client_at(&proxy.url(), STORED_TTL).await;
    let lease = holder.acquire("a").await.unwrap();
    let next = client_at(&server.url(), STORED_TTL).await;
    let waiting = waiter(&next);
    until_queued(&server, 1).await;
    let name = lease.holder().to_string();
    proxy.set(move |request| {
        (request.is_script() && mentions(request, &name)).then_some(Fault::DropReply)
    });
    assert_eq!(lease.release().await, ReleaseOutcome::Unknown);
    let second = soon(waiting).await.unwrap();
    // The release is repeated, and finds another holder.
    faulted(&proxy, 2).await;
    second.check().unwrap();
    assert_eq!(second.release().await, ReleaseOutcome::Released);
}

#[tokio::test]
async fn a_process_that_is_killed_before_it_hears_of_its_grant_holds_for_one_ttl() {
    let server = RedisServer::start().await;
    // The server is to know the scripts already, or the reply that is lost is that it does not.
    long_lease(&client_at(&server.url(), STORED_TTL).await)
        .await
        .release()
        .await;
    let proxy = server.proxy().await;
    proxy.once(
        |request| request.is_script() && mentions(request, "{a}"),
        Fault::HoldReply,
    );
    let mut child = child::start(&proxy.url(), STORED_TTL);
    child.order("acquire a");
    faulted(&proxy, 1).await;
    child.kill();
    until_so("the grant", async || {
        server.told::<usize>(&format!("EXISTS {LEASE}")).await == 1
    })
    .await;
    let granted = now();
    let lease = soon(client_at(&server.url(), STORED_TTL).await.acquire("a"))
        .await
        .unwrap();
    let took = now().since(granted);
    assert!(took < STORED_TTL + Duration::from_secs(1), "{took:?}");
    lease.release().await;
}

#[tokio::test]
async fn a_process_that_exits_without_a_release_holds_for_one_ttl() {
    let server = RedisServer::start().await;
    let mut child = child::start(&server.url(), STORED_TTL);
    child.order("acquire a");
    let token: u64 = child.answer().parse().unwrap();
    child.order("exit");
    let gone = now();
    let lease = soon(client_at(&server.url(), STORED_TTL).await.acquire("a"))
        .await
        .unwrap();
    let took = now().since(gone);
    assert!(took < STORED_TTL + Duration::from_secs(1), "{took:?}");
    assert!(lease.token().get() > token);
    lease.release().await;
}

/// A holder, another process that waits, and a client behind it.
async fn line(server: &RedisServer) -> (Lease, Subprocess, JoinHandle<Lease>) {
    let lease = long_lease(&client_at(&server.url(), STORED_TTL).await).await;
    let mut head = child::start(&server.url(), STORED_TTL);
    head.order("acquire a");
    until_queued(server, 1).await;
    let next = waiter(&client_at(&server.url(), STORED_TTL).await);
    until_queued(server, 2).await;
    (lease, head, next)
}

/// Releases the lease. Returns that of the waiter, and how long it took.
async fn handed_over(lease: Lease, waiter: JoinHandle<Lease>) -> (Lease, Duration) {
    let freed = now();
    assert_eq!(lease.release().await, ReleaseOutcome::Released);
    let next = soon(waiter).await.unwrap();
    (next, now().since(freed))
}

#[tokio::test]
async fn a_client_that_died_costs_those_behind_it_nothing() {
    let server = RedisServer::start().await;
    let (lease, mut head, next) = line(&server).await;
    head.kill();
    until_so("its connections to end", async || {
        let channels: Vec<String> = server.told("PUBSUB CHANNELS leasehold:{a}:granted:*").await;
        channels.len() == 1
    })
    .await;
    let (next, took) = handed_over(lease, next).await;
    println!("a dead head cost {took:?}");
    assert!(took < Duration::from_millis(500), "{took:?}");
    next.check().unwrap();
}

#[tokio::test]
async fn a_client_that_leaves_costs_those_behind_it_nothing() {
    let server = RedisServer::start().await;
    let lease = long_lease(&client_at(&server.url(), STORED_TTL).await).await;
    let head = client_at(&server.url(), STORED_TTL).await;
    let leaves = waiter(&head);
    until_queued(&server, 1).await;
    let next = waiter(&client_at(&server.url(), STORED_TTL).await);
    until_queued(&server, 2).await;
    leaves.abort();
    until_so("its place to be vacant", async || {
        let claims: Vec<String> = server.told("HVALS leasehold:{a}:waiting").await;
        claims.iter().any(|claim| claim.split(' ').count() == 2)
    })
    .await;
    let (next, took) = handed_over(lease, next).await;
    println!("a leaving head cost {took:?}");
    assert!(took < Duration::from_millis(500), "{took:?}");
    next.check().unwrap();
}

#[tokio::test]
async fn a_client_that_is_stopped_costs_its_term_and_is_served_later() {
    let server = RedisServer::start().await;
    let (lease, stopped, next) = line(&server).await;
    stopped.pause();
    let (second, took) = handed_over(lease, next).await;
    println!("a frozen head cost {took:?}");
    assert!(took < STORED_TTL + Duration::from_millis(500), "{took:?}");
    stopped.resume();
    // It wakes with the notice of a grant that is over, and waits again.
    until_queued(&server, 1).await;
    second.check().unwrap();
    let token = second.token();
    assert_eq!(second.release().await, ReleaseOutcome::Released);
    let answer: u64 = tokio::task::spawn_blocking(move || stopped.answer())
        .await
        .unwrap()
        .parse()
        .unwrap();
    assert!(answer > token.get());
}

/// The server has told it, and it can no longer act on that.
#[tokio::test]
async fn a_client_that_dies_in_the_moment_of_its_grant_costs_its_term() {
    let server = RedisServer::start().await;
    let (lease, mut head, next) = line(&server).await;
    head.pause();
    let before = scripts(&server).await;
    let freed = now();
    assert_eq!(lease.release().await, ReleaseOutcome::Released);
    let info = format!("\"pid\":{}", std::process::id());
    let value: String = server.told(&format!("GET {LEASE}")).await;
    assert!(
        !value.contains(&info),
        "it is granted to the other process: {value}"
    );
    head.kill();
    let next = soon(next).await.unwrap();
    let took = now().since(freed);
    println!("a head that died at its grant cost {took:?}");
    assert!(took < STORED_TTL + Duration::from_millis(500), "{took:?}");
    let calls = scripts(&server).await - before;
    assert!(calls < 12, "{calls} scripts while the dead was waited for");
    next.check().unwrap();
}

#[tokio::test]
async fn a_flush_with_twenty_waiting_costs_the_order_and_nothing_else() {
    let server = RedisServer::start().await;
    let lease = long_lease(&client_at(&server.url(), STORED_TTL).await).await;
    let token = lease.token();
    let mut waiters = JoinSet::new();
    for _ in 0..20 {
        let client = client_at(&server.url(), STORED_TTL).await;
        waiters.spawn(async move {
            let lease = waiter(&client).await.unwrap();
            let token = lease.token();
            lease.release().await;
            token
        });
    }
    until_queued(&server, 20).await;
    let flushed = now();
    let () = server.told("FLUSHALL").await;
    let mut tokens = soon(waiters.join_all()).await;
    let took = now().since(flushed);
    assert!(took < CAP + Duration::from_secs(1), "{took:?}");
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 20);
    assert!(tokens[0] > token);
    server.assert_all_keys_run_out().await;
    drop(lease);
}

#[test]
fn a_runtime_that_nobody_drives_keeps_no_notice_from_another_one() {
    for is_gone in [false, true] {
        let first = runtime::Builder::new_current_thread().enable_all().build();
        let second = runtime::Runtime::new().unwrap();
        let server = second.block_on(RedisServer::start());
        let (holder, client) = second.block_on(async {
            let url = server.url();
            (
                client_at(&url, STORED_TTL).await,
                client_at(&url, STORED_TTL).await,
            )
        });
        let held = second
            .block_on(holder.request("x").ttl(LONG).acquire())
            .unwrap();
        let first = first.unwrap();
        first.block_on(async {
            let _waits = tokio::spawn(client.request("x").acquire());
            until_so("the subscription", async || {
                let channels =
                    server.told::<Vec<String>>("PUBSUB CHANNELS leasehold:{x}:granted:*");
                !channels.await.is_empty()
            })
            .await;
        });
        let first = (!is_gone).then_some(first);
        second.block_on(async {
            // A poll may come in between, but not each time.
            let mut is_told = false;
            for _ in 0..10 {
                let lease = long_lease(&holder).await;
                let waiter = waiter(&client);
                until_queued(&server, 1).await;
                let before = scripts(&server).await;
                assert_eq!(lease.release().await, ReleaseOutcome::Released);
                let lease = soon(waiter).await.unwrap();
                is_told |= scripts(&server).await == before + 1;
                assert_eq!(lease.release().await, ReleaseOutcome::Released);
                if is_told {
                    break;
                }
            }
            assert!(is_told, "{is_gone}");
        });
        drop((held, first));
    }
}

#[tokio::test]
async fn a_client_has_one_subscription_for_all_names_it_waits_for() {
    let server = RedisServer::start().await;
    let (holder, waiting) = (
        client_at(&server.url(), STORED_TTL).await,
        client_at(&server.url(), STORED_TTL).await,
    );
    let mut leases = Vec::new();
    let mut waiters = JoinSet::new();
    for index in 0..300 {
        let name = format!("n{index}");
        leases.push(holder.request(&name).ttl(LONG).acquire().await.unwrap());
        let client = waiting.clone();
        waiters.spawn(async move { drop(client.acquire(name).await.unwrap()) });
    }
    until_so("all to listen", async || {
        let channels: Vec<redis::Value> = server.told("PUBSUB CHANNELS leasehold:{n*").await;
        channels.len() == 300
    })
    .await;
    let list: String = server.told("CLIENT LIST TYPE pubsub").await;
    assert_eq!(list.lines().count(), 1, "{list}");
    drop(leases);
    soon(waiters.join_all()).await;
}
