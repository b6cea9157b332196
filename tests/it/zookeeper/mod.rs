//! The store in ZooKeeper, under what servers, sessions and operators do.

use std::sync::Arc;
use std::time::Duration;

use leasehold::store::Store;
use leasehold::store::zookeeper::Zookeeper;

use crate::conformance::check_at;
use crate::harness::zookeeper_server::ZookeeperServer;

mod clients;
mod errors;
mod limits;
mod notices;
mod outages;
mod rules;
mod sessions;
pub(crate) mod sweep;
mod tokens;

/// The store at a URL that is in order.
pub(crate) fn open(url: &str) -> Arc<dyn Store> {
    Arc::new(Zookeeper::open(url).expect("a URL in order"))
}

/// The same, which sweeps names a second after they were freed.
pub(crate) fn open_sweeping(url: &str) -> Arc<dyn Store> {
    let store = Zookeeper::open_sweeping(url, Duration::from_secs(1));
    Arc::new(store.expect("a URL in order"))
}

/// A store in an empty chroot of the server of this run.
async fn store_in_chroot() -> Arc<dyn Store> {
    open(&ZookeeperServer::chroot().await)
}

/// The node of the name `a` in this chroot: the hash of `a` is 2c.
fn node_of_a(url: &str) -> String {
    let (_, chroot) = url.rsplit_once('/').expect("it has a chroot");
    format!("/{chroot}/leasehold/2c/a")
}

#[tokio::test]
async fn the_contract_is_kept_on_a_long_tick() {
    check_at(ZookeeperServer::chroot().await).await;
}

#[tokio::test]
async fn the_contract_is_kept_on_a_short_tick() {
    let server = ZookeeperServer::start(Duration::from_millis(500)).await;
    check_at(server.url("")).await;
}
