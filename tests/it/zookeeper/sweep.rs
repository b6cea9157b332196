//! Names that are no longer used leave nothing behind.

use std::time::Duration;

use super::open;
use crate::harness::asking::next_token;
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
    let store = open(&server.url("?token_memory=1s"));
    let in_one_folder = |prefix: &'static str, count| {
        let names = (0..).map(move |number| format!("{prefix}-{number}"));
        names.filter(|name| folder(name) == 7).take(count)
    };
    for name in in_one_folder("old", 16) {
        next_token(&*store, &name).await;
    }
    at(now().after(Duration::from_millis(1_500))).await;
    let mut news = in_one_folder("new", 200);
    let mut operator = Wire::connect(&server);
    until("a sweep", async || {
        // Each fourth new name sweeps, unless a sweep is under way.
        if let Some(name) = news.next() {
            next_token(&*store, &name).await;
        }
        let old = in_one_folder("old", 16).filter(|name| {
            let path = format!("/leasehold/07/{name}");
            !operator.children(&path).is_empty()
        });
        (old.count() <= 8).then_some(())
    })
    .await;
}
