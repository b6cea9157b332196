//! Clients that hold leases at a server, and others that wait for one of these.

use std::time::Duration;

use leasehold::{Client, Lease, OutagePolicy};
use tokio::task::JoinSet;

use super::leases::{client_at, take};

pub struct Crowd {
    url: String,
    ttl: Duration,
    holders: Vec<(Client, Lease)>,
    waiting: JoinSet<()>,
}

impl Crowd {
    /// So many clients of the store at this URL, each with a lease of this length.
    pub async fn of_holders(url: String, holders: usize, ttl: Duration) -> Self {
        let mut held = Vec::new();
        for index in 0..holders {
            let client = client_at(&url, ttl).await;
            let lease = take(&client, &format!("held/{index}")).await;
            held.push((client, lease));
        }
        Self {
            url,
            ttl,
            holders: held,
            waiting: JoinSet::new(),
        }
    }

    /// No holder loses its lease at a restart, neither alone nor beside so many clients that wait.
    pub async fn outlives_restarts(&mut self, waiting: usize, mut restart: impl AsyncFnMut()) {
        let ttl = self.ttl;
        restart().await;
        assert_eq!(self.lost_within(ttl).await, 0, "without waiting clients");
        self.wait(waiting);
        assert_eq!(self.lost_within(ttl / 2).await, 0, "beside a crowd");
        restart().await;
        let lost = self.lost_within(ttl * 5 / 4).await;
        assert_eq!(lost, 0, "of {}", self.holders.len());
    }

    /// So many further clients wait in turn for the first of these leases, for as long as it takes.
    fn wait(&mut self, clients: usize) {
        for _ in 0..clients {
            let url = self.url.clone();
            self.waiting.spawn(async move {
                let client = client_at(&url, Duration::from_secs(20)).await;
                let request = client.request("held/0");
                let waited = request.on_outage(OutagePolicy::WaitOut).acquire().await;
                drop(waited.expect("granted"));
            });
        }
    }

    /// Returns how many leases were lost within this time.
    async fn lost_within(&self, time: Duration) -> usize {
        tokio::time::sleep(time).await;
        let lost = self
            .holders
            .iter()
            .filter_map(|(_, lease)| lease.check().err());
        lost.inspect(|error| println!("{error}")).count()
    }
}
