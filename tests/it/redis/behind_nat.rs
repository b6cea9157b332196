//! Servers that name one another by addresses that this process cannot reach.

use std::collections::HashMap;

use leasehold::ErrorKind;
use leasehold::store::Store;
use leasehold::store::redis::Redis;

use crate::harness::asking::{claim, granted};
use crate::harness::fake_sentinel::FakeSentinel;
use crate::harness::proxy::Proxy;
use crate::harness::redis_cluster::RedisCluster;
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::times::LONG;

/// Returns the port of a proxy.
pub(super) fn port_of(proxy: &Proxy) -> u16 {
    let url = proxy.url();
    let (_, port) = url.rsplit_once(':').expect("a port");
    port.parse().expect("a number")
}

/// Returns a store at this URL that reaches each server through the proxy before it.
pub(super) fn outside(url: &str, servers: &[RedisServer], proxies: &[Proxy]) -> Redis {
    let inside = servers.iter().map(RedisServer::port);
    let ports: HashMap<_, _> = inside.zip(proxies.iter().map(port_of)).collect();
    let map = move |host: &str, port| (host.to_owned(), ports.get(&port).copied().unwrap_or(port));
    let store = Redis::builder(url).address_map(map).build();
    store.expect("settings in order")
}

/// No client is connected to the server's port. The proxies and the test use its socket.
async fn is_reached_by_proxy_only(server: &RedisServer) {
    let clients: String = server.told("CLIENT LIST").await;
    assert!(!clients.contains(" addr=127.0.0.1:"), "{clients}");
    assert!(clients.contains("name="), "{clients}");
}

#[tokio::test]
async fn nodes_are_reached_where_the_address_map_says_also_after_a_redirection() {
    let cluster = RedisCluster::start().await;
    let mut proxies = Vec::new();
    for node in &cluster.nodes {
        proxies.push(node.proxy().await);
    }
    let url = format!("redis+cluster://127.0.0.1:{}", port_of(&proxies[0]));
    let store = outside(&url, &cluster.nodes, &proxies);
    for node in 0..3 {
        let name = cluster.name_on(node).await;
        granted(&store, &claim(&name, LONG)).await;
    }
    let notices = store.notices().await.expect("a subscription");
    assert!(notices.is_some());
    let moved = format!("{}-moved", cluster.name_on(0).await);
    let slot = cluster.slot_of(&moved).await;
    let from = cluster.primary_of(&moved).await;
    let to = (from + 1) % 3;
    // Without keys, which the nodes would send over their ports.
    cluster.begin_move(slot, from, to).await;
    cluster.end_move(slot, from, to).await;
    granted(&store, &claim(&moved, LONG)).await;
    for node in &cluster.nodes {
        is_reached_by_proxy_only(node).await;
    }
}

#[tokio::test]
async fn a_master_is_reached_where_the_address_map_says() {
    let master = Setup::default().with_port().start().await;
    let proxy = master.proxy().await;
    let sentinel = FakeSentinel::naming(master.port(), 1).await;
    let url = format!("redis+sentinel://{}/main", sentinel.host());
    let (servers, proxies) = ([master], [proxy]);
    let store = outside(&url, &servers, &proxies);
    granted(&store, &claim("a", LONG)).await;
    let notices = store.notices().await.expect("a subscription");
    assert!(notices.is_some());
    is_reached_by_proxy_only(&servers[0]).await;
}

#[test]
fn an_address_map_for_one_server_is_refused() {
    let map = |host: &str, port| (host.to_owned(), port);
    let built = Redis::builder("redis://localhost").address_map(map).build();
    let error = built.expect_err("one server names no others");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("redis+cluster://"), "{error}");
}
