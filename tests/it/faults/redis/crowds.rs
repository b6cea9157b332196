//! The crowd of `redis::crowds`, at the size that once lost leases.

use std::time::Duration;

use crate::redis::crowds::outlive_restarts;

#[tokio::test(flavor = "multi_thread")]
async fn forty_holders_and_a_hundred_waiting_clients_lose_no_lease_at_a_restart() {
    outlive_restarts(100, 40, 100, Duration::from_secs(20)).await;
}
