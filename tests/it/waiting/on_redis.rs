//! Waiting on a real server while something goes wrong.

use std::time::Duration;

use deadpool_redis::redis;
use leasehold::store::Queued;
use leasehold::{Client, Lease, ReleaseOutcome, WaitOrder};
use tokio::task::JoinSet;

use super::{child, waiter};
use crate::harness::leases::client_at;
use crate::harness::proxy::{Fault, Proxy, Request};
use crate::harness::redis_server::RedisServer;
use crate::harness::times::{LONG, STORED_TTL};
use crate::harness::wait::{now, soon, until_so};

/// How long a lost notice can cost at most.
const CAP: Duration = Duration::from_secs(5);
const QUEUE: &str = "leasehold:{a}:queue";
const LEASE: &str = "leasehold:{a}";

/// A lease of a minute, which no test outlives.
async fn long_lease(client: &Client) -> Lease {
    client.request("a").ttl(LONG).acquire().await.unwrap()
}

/// Returns once so many clients are told when the name is freed.
async fn subscribed(server: &RedisServer, clients: usize) {
    let channel = "leasehold:{a}:freed";
    until_so("the subscriptions", async || {
        let (_, count): (String, usize) = server.told(&format!("PUBSUB NUMSUB {channel}")).await;
        count >= clients
    })
    .await;
    scripts_quiet(server).await;
}

/// Returns once so many clients stand in line and are told of their turns.
async fn until_queued(server: &RedisServer, clients: usize) {
    until_so("the line", async || {
        let turns: Vec<String> = server.told("PUBSUB CHANNELS leasehold:{a}:turn:*").await;
        let line: usize = server.told(&format!("ZCARD {QUEUE}")).await;
        line == clients && turns.len() >= clients
    })
    .await;
    scripts_quiet(server).await;
}

/// Returns once no client asks any more: all have looked after their subscription.
async fn scripts_quiet(server: &RedisServer) {
    let mut before = usize::MAX;
    until_so("the waiters to sleep", async || {
        let calls = scripts(server).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        std::mem::replace(&mut before, calls) == calls && scripts(server).await == calls
    })
    .await;
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
    let waiter = waiter(&client_at(&server.url(), STORED_TTL).await, WaitOrder::Any);
    subscribed(&server, 1).await;
    let freed = now();
    let () = server.told(&format!("DEL {LEASE}")).await;
    drop(soon(waiter).await.unwrap());
    let took = now().since(freed);
    assert!(took < CAP + Duration::from_secs(1), "{took:?}");
    drop(lease);
}

#[tokio::test]
async fn a_killed_subscriber_comes_back_and_looks_again() {
    let server = RedisServer::start().await;
    let lease = long_lease(&client_at(&server.url(), STORED_TTL).await).await;
    let waiter = waiter(&client_at(&server.url(), STORED_TTL).await, WaitOrder::Any);
    subscribed(&server, 1).await;
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
            let waiter = waiter(&client, WaitOrder::Any);
            waiters.spawn(async move { waiter.await.unwrap().release().await });
        }
    }
    subscribed(&server, 10).await;
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
async fn a_notice_that_comes_twice_releases_no_holder() {
    let server = RedisServer::start().await;
    let lease = long_lease(&client_at(&server.url(), STORED_TTL).await).await;
    let next = client_at(&server.url(), STORED_TTL).await;
    let waiting = waiter(&next, WaitOrder::Fair);
    until_queued(&server, 1).await;
    let turns: Vec<String> = server.told("PUBSUB CHANNELS leasehold:{a}:turn:*").await;
    lease.release().await;
    let lease = soon(waiting).await.unwrap();
    for message in ["turn", "turn", "next:1", "turn"] {
        let heard: usize = server
            .told(&format!("PUBLISH {} {message}", turns[0]))
            .await;
        assert_eq!(heard, 1);
        let () = server.told("PUBLISH leasehold:{a}:freed 0").await;
    }
    // A turn that no waiter wants makes the client leave the queue, which is answered once it is done.
    until_so("the client's leaving", async || {
        let keys = server.keys().await;
        !keys.iter().any(|key| key == QUEUE)
    })
    .await;
    scripts_quiet(&server).await;
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
    let waiting = waiter(&next, WaitOrder::Any);
    subscribed(&server, 1).await;
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

#[tokio::test]
async fn a_dead_client_at_its_turn_costs_one_offer_and_no_spin() {
    let server = RedisServer::start().await;
    let lease = long_lease(&client_at(&server.url(), STORED_TTL).await).await;
    let mut dead = child::start(&server.url(), STORED_TTL);
    dead.order("fair a");
    until_queued(&server, 1).await;
    let clients = [
        client_at(&server.url(), STORED_TTL).await,
        client_at(&server.url(), STORED_TTL).await,
    ];
    let [next, other] = [
        waiter(&clients[0], WaitOrder::Fair),
        waiter(&clients[1], WaitOrder::Fair),
    ];
    until_queued(&server, 3).await;
    dead.kill();
    let before = scripts(&server).await;
    let freed = now();
    lease.release().await;
    let winner = tokio::select! { lease = next => lease, lease = other => lease };
    let took = now().since(freed);
    assert!(took >= Queued::OFFER, "{took:?}");
    assert!(took < Queued::OFFER + Duration::from_secs(1), "{took:?}");
    let calls = scripts(&server).await - before;
    assert!(calls < 12, "{calls} scripts while the dead was waited for");
    drop(winner.unwrap());
}

#[tokio::test]
async fn a_waiter_that_is_stopped_at_its_turn_loses_the_turn_and_is_served_later() {
    let server = RedisServer::start().await;
    let lease = long_lease(&client_at(&server.url(), STORED_TTL).await).await;
    let mut stopped = child::start(&server.url(), STORED_TTL);
    stopped.order("fair a");
    until_queued(&server, 1).await;
    let next = client_at(&server.url(), STORED_TTL).await;
    let waiting = waiter(&next, WaitOrder::Fair);
    until_queued(&server, 2).await;
    stopped.pause();
    lease.release().await;
    let second = soon(waiting).await.unwrap();
    stopped.resume();
    // It wakes with the notice of a turn that is over. Its claim is an ordinary one, and it waits.
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

#[tokio::test]
async fn a_flush_with_twenty_waiting_costs_the_order_and_nothing_else() {
    let server = RedisServer::start().await;
    let lease = long_lease(&client_at(&server.url(), STORED_TTL).await).await;
    let token = lease.token();
    let mut waiters = JoinSet::new();
    for _ in 0..20 {
        let client = client_at(&server.url(), STORED_TTL).await;
        waiters.spawn(async move {
            let lease = waiter(&client, WaitOrder::Fair).await.unwrap();
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
