//! The line of clients on a server: what a full server and the dead do to those who wait.

use std::time::Duration;

use leasehold::store::Queued;
use leasehold::store::redis::Redis;

use crate::harness::asking::{claim, granted, held, queued, released};
use crate::harness::redis_server::RedisServer;

const TTL: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_full_server_sends_no_waiting_client_away() {
    let server = RedisServer::start().await;
    let store = Redis::open(&server.url()).unwrap();
    let (first, stands, comes) = (claim("a", TTL), queued("a", TTL), queued("a", TTL));
    granted(&store, &first).await;
    assert_eq!(held(&store, &stands).await.ahead, Some(0));
    let () = server.told("CONFIG SET maxmemory-policy noeviction").await;
    let () = server.told("CONFIG SET maxmemory 1").await;
    assert_eq!(held(&store, &stands).await.ahead, Some(0), "it stands on");
    assert_eq!(held(&store, &comes).await.ahead, Some(1), "it joins");
    released(&store, &first).await;
    let () = server.told("CONFIG SET maxmemory 0").await;
    granted(&store, &stands).await;
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn dead_clients_do_not_count_as_before_a_queued_one() {
    let server = RedisServer::start().await;
    let store = Redis::open(&server.url()).unwrap();
    granted(&store, &claim("a", TTL)).await;
    for place in 0..100 {
        let dead = format!("ZADD leasehold:{{a}}:queue {place} dead{place}");
        let _: i64 = server.told(&dead).await;
    }
    let next = queued("a", TTL);
    // At most 64 of them are dropped at once.
    assert_eq!(held(&store, &next).await.ahead, Some(36));
    assert_eq!(held(&store, &next).await.ahead, Some(0));
}

/// A busy name would collect what each client that died at its turn left behind.
#[tokio::test]
async fn a_client_that_does_not_answer_its_offer_leaves_nothing_behind() {
    let server = RedisServer::start().await;
    let store = Redis::open(&server.url()).unwrap();
    let (first, dies, next) = (claim("a", TTL), queued("a", TTL), queued("a", TTL));
    granted(&store, &first).await;
    for client in [&dies, &next] {
        held(&store, client).await;
    }
    released(&store, &first).await;
    for count in ["HLEN leasehold:{a}:alive", "ZCARD leasehold:{a}:queue"] {
        let left: i64 = server.told(count).await;
        assert_eq!(left, 1, "{count}: the one behind it");
    }
    let _: i64 = server.told("DEL leasehold:{a}").await;
    granted(&store, &next).await;
}

/// A client that took its offer and waits on is no client that let an offer lapse.
#[tokio::test]
async fn a_client_that_took_its_offer_is_offered_the_name_again() {
    let server = RedisServer::start().await;
    let store = Redis::open(&server.url()).unwrap();
    let (first, mut next) = (claim("a", TTL), queued("a", TTL));
    granted(&store, &first).await;
    held(&store, &next).await;
    released(&store, &first).await;
    next.ask.queued = Some(Queued::new(1));
    granted(&store, &next).await;
    released(&store, &next).await;
    held(&store, &claim("a", TTL)).await;
    granted(&store, &next).await;
}
