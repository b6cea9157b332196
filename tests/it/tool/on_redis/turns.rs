//! Turns on a server.

use deadpool_redis::redis;

use super::super::HOLDER;
use super::super::turns::{WAITERS, turn};
use super::{KEY, Site};
use crate::harness::wait::until;

#[tokio::test]
async fn runs_are_served_in_the_order_in_which_they_came() {
    let site = Site::start().await;
    let holder = site.run(&[], HOLDER);
    site.sandbox.mark("first");
    let mut connection = site.server.connect().await.expect("it is up");
    let mut runs = Vec::new();
    for clients in 1..=WAITERS {
        runs.push(site.run(&[], &turn(clients)));
        until("the line", async || {
            let mut ask = redis::cmd("ZCARD");
            ask.arg(format!("{KEY}:queue"));
            let count: u32 = ask.query_async(&mut connection).await.expect("answered");
            (count == clients).then_some(())
        })
        .await;
    }
    site.sandbox.let_go();
    runs.push(holder);
    site.sandbox.served(runs, &[1, 2, 3, 4, 5]);
    site.server.assert_all_keys_run_out().await;
}
