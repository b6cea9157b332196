//! The crowd of `redis::crowds` at the size at which leases were lost.

use std::time::Duration;

use crate::redis::crowds::Full;

#[tokio::test(flavor = "multi_thread")]
async fn forty_holders_and_a_hundred_waiting_clients_lose_no_lease_at_a_restart() {
    let ttl = Duration::from_secs(20);
    let mut full = Full::of(100, 40, ttl).await;
    full.restart().await;
    assert_eq!(full.lost_within(ttl).await, 0, "without waiting clients");
    full.wait(100);
    assert_eq!(full.lost_within(ttl / 2).await, 0, "beside a crowd");
    full.restart().await;
    assert_eq!(full.lost_within(ttl * 5 / 4).await, 0, "of forty");
}
