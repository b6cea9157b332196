//! Many clients at one server: those that wait or leave take nothing that a renewal needs. The long form is in
//! `faults::redis::crowds`.

use std::time::Duration;

use leasehold::{Client, Lease, OutagePolicy, WaitOrder};
use tokio::task::JoinSet;

use crate::harness::leases::{client_at, take};
use crate::harness::proxy::Fault;
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::wait::now;

/// A server with room for few clients, some of which hold leases.
pub(crate) struct Full {
    server: RedisServer,
    holders: Vec<(Client, Lease)>,
    waiting: JoinSet<()>,
}

impl Full {
    /// So many clients, each with a lease of this length, at a server with this room.
    pub(crate) async fn of(connections: u32, holders: usize, ttl: Duration) -> Self {
        let room = connections.to_string();
        let setup = Setup::default().with([
            "--maxclients",
            &room,
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
        ]);
        let server = setup.with_port().start().await;
        let mut held = Vec::new();
        for index in 0..holders {
            let client = client_at(&server.url(), ttl).await;
            let lease = take(&client, &format!("held/{index}")).await;
            held.push((client, lease));
        }
        Self {
            server,
            holders: held,
            waiting: JoinSet::new(),
        }
    }

    /// So many further clients wait in turn for the first of these leases, for as long as it takes.
    pub(crate) fn wait(&mut self, clients: usize) {
        for _ in 0..clients {
            let url = self.server.url();
            self.waiting.spawn(async move {
                let client = client_at(&url, Duration::from_secs(20)).await;
                let request = client.request("held/0").order(WaitOrder::Fair);
                let waited = request.on_outage(OutagePolicy::WaitOut).acquire().await;
                drop(waited.expect("granted"));
            });
        }
    }

    /// The server ends, and comes back with its data after a second.
    pub(crate) async fn restart(&mut self) {
        self.server.kill();
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.server.launch();
    }

    /// Returns how many leases were lost within this time.
    pub(crate) async fn lost_within(&self, time: Duration) -> usize {
        tokio::time::sleep(time).await;
        let lost = self
            .holders
            .iter()
            .filter_map(|(_, lease)| lease.check().err());
        lost.inspect(|error| println!("{error}")).count()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_clients_that_find_no_room_cost_no_lease_at_a_restart() {
    let ttl = Duration::from_secs(10);
    let mut full = Full::of(24, 8, ttl).await;
    full.restart().await;
    assert_eq!(full.lost_within(ttl).await, 0, "without waiting clients");
    full.wait(40);
    assert_eq!(full.lost_within(ttl / 2).await, 0, "beside a crowd");
    full.restart().await;
    assert_eq!(full.lost_within(ttl * 5 / 4).await, 0, "of eight");
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
