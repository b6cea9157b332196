//! Many clients at one server: those that wait or leave take nothing that a renewal needs. The long form is in
//! `faults::redis::crowds`.

use std::time::Duration;

use crate::harness::crowd::Crowd;
use crate::harness::leases::{client_at, take};
use crate::harness::proxy::Fault;
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::wait::now;

/// Holders outlive restarts of a server with room for so many connections, beside clients that wait. It comes back with
/// its data after a second.
pub(crate) async fn outlive_restarts(
    connections: u32,
    holders: usize,
    waiting: usize,
    ttl: Duration,
) {
    let room = connections.to_string();
    let setup = Setup::default().with([
        "--maxclients",
        &room,
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ]);
    let mut server = setup.with_port().start().await;
    let mut crowd = Crowd::of_holders(server.url(), holders, ttl).await;
    let restart = async || {
        server.kill();
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.launch();
    };
    crowd.outlives_restarts(waiting, restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_clients_that_find_no_room_cost_no_lease_at_a_restart() {
    outlive_restarts(24, 8, 40, Duration::from_secs(10)).await;
}

/// The renewals go over one connection with the releases of dropped guards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_dropped_guards_on_a_slow_line_delay_no_renewal_of_others() {
    let ttl = Duration::from_millis(1_500);
    let server = RedisServer::start().await;
    let proxy = server.proxy().await;
    let client = client_at(&proxy.url(), ttl).await;
    let kept = take(&client, "kept").await;
    let mut guards = Vec::new();
    for index in 0..1_000 {
        let request = client.request(format!("dropped/{index}"));
        guards.push(request.ttl(ttl * 20).acquire().await.expect("free"));
    }
    proxy.set(|_| Some(Fault::DelayReply(Duration::from_millis(200))));
    let least_left = async |time: Duration| {
        let (mut least, end) = (i64::MAX, now().after(time));
        while now() < end {
            kept.check().expect("held");
            least = least.min(server.told("PTTL leasehold:{kept}").await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        least
    };
    let alone = least_left(ttl * 2).await;
    drop(guards);
    let beside = least_left(ttl * 2).await;
    println!("the least time left: {alone} ms alone, {beside} ms beside the releases");
    let keys = server.keys().await;
    let dropped = keys.iter().filter(|key| key.contains("dropped/")).count();
    assert!(dropped < 500, "{dropped} of the guards are not released");
    assert!(beside > alone - 200, "{beside} ms, and {alone} ms alone");
}
