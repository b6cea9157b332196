//! Names that are no longer used leave nothing behind.

use std::time::Duration;

use leasehold::Token;
use leasehold::store::Store;

use super::{open, open_sweeping};
use crate::harness::asking::{claim, granted, next_token, released};
use crate::harness::times::LONG;
use crate::harness::wait::{at, now, until};
use crate::harness::zookeeper_server::{Wire, ZookeeperServer};

/// The folder of a name, as the wire's description has it.
fn folder(name: &str) -> u32 {
    let fold = |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    name.bytes().fold(0x811c_9dc5, fold) & 0xff
}

#[tokio::test]
async fn grants_remove_names_that_were_idle_for_longer_than_the_token_memory() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let store = open_sweeping(&server.url(""));
    for name in in_one_folder("old").take(16) {
        next_token(&*store, &name).await;
    }
    at(now().after(Duration::from_millis(1_500))).await;
    let mut news = in_one_folder("new").take(200);
    let mut operator = Wire::connect(&server);
    until("a sweep", async || {
        // One new name in four sweeps, unless a sweep is under way.
        if let Some(name) = news.next() {
            next_token(&*store, &name).await;
        }
        let names = operator.children("/leasehold/07");
        let old = names.iter().filter(|name| name.starts_with("old"));
        (old.count() <= 8).then_some(())
    })
    .await;
}

/// Names of the folder 07.
pub(crate) fn in_one_folder(prefix: &'static str) -> impl Iterator<Item = String> {
    let names = (0..).map(move |number| format!("{prefix}-{number}"));
    names.filter(|name| folder(name) == 7)
}

/// Uses new names until this one, which was freed, is swept away.
pub(crate) async fn swept(server: &ZookeeperServer, store: &dyn Store, name: &str) {
    at(now().after(Duration::from_millis(1_500))).await;
    let mut news = in_one_folder("new");
    let mut operator = Wire::connect(server);
    until("the sweep", async || {
        next_token(store, &news.next()?).await;
        let node = format!("/leasehold/07/{name}");
        operator.children(&node).is_empty().then_some(())
    })
    .await;
}

/// Its holder may only be slow, or the leader's clock may have been set forward.
#[tokio::test]
async fn a_lease_that_ran_out_just_now_is_not_swept_away() {
    const KEPT: Duration = Duration::from_millis(1_200);
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let store = open_sweeping(&server.url(""));
    let name = in_one_folder("old").next().expect("a name");
    let (begun, mut news) = (now(), in_one_folder("new"));
    granted(&*store, &claim(&name, Duration::from_millis(300))).await;
    let mut operator = Wire::connect(&server);
    while now().since(begun) < KEPT {
        next_token(&*store, &news.next().expect("a name")).await;
        let nodes = operator.children(&format!("/leasehold/07/{name}"));
        let is_held = nodes.iter().any(|node| node.starts_with("h-"));
        assert!(is_held || now().since(begun) >= KEPT, "{nodes:?}");
    }
}

/// Its token says that it was granted, and never that it was freed.
#[tokio::test]
async fn a_name_whose_holder_ended_without_a_release_is_swept_away() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let (dead, store) = (open(&server.url("")), open_sweeping(&server.url("")));
    let name = in_one_folder("old").next().expect("a name");
    // Short enough to end with the session.
    granted(&*dead, &claim(&name, Duration::from_secs(2))).await;
    dead.close().await;
    swept(&server, &*store, &name).await;
}

#[tokio::test]
async fn tokens_that_were_ahead_of_the_clock_rise_through_a_sweep() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let store = open_sweeping(&server.url(""));
    let name = in_one_folder("old").next().expect("a name");
    let first = next_token(&*store, &name).await;
    let floor = Token::new(first.get() + 24 * 3_600_000_000).expect("a day ahead");
    let lifted = claim(&name, LONG).with_floor(floor);
    let token = granted(&*store, &lifted).await;
    released(&*store, &lifted).await;
    swept(&server, &*store, &name).await;
    let next = next_token(&*open(&server.url("")), &name).await;
    assert!(next > token, "{next} after {token}");
}

/// As do two leaders, of which the first is ahead: it forgets a token that is ahead of the second one's clock.
#[tokio::test]
async fn tokens_rise_through_a_sweep_and_a_step_back_of_the_clock() {
    const HOURS_MS: i64 = 2 * 3_600_000;
    let server = ZookeeperServer::start_on_own_machine(Duration::from_secs(2)).await;
    server.step_clock(HOURS_MS);
    let store = open_sweeping(&server.url(""));
    let name = in_one_folder("old").next().expect("a name");
    let token = next_token(&*store, &name).await;
    swept(&server, &*store, &name).await;
    server.step_clock(-HOURS_MS);
    let next = next_token(&*open(&server.url("")), &name).await;
    assert!(next > token, "{next} after {token}");
}
