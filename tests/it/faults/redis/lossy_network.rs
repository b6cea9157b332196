//! Many holders of one name, while the network loses, delays and repeats requests by the dice.

use leasehold::Token;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::clock::Instant;
use leasehold::store::{Answer, Store};
use tokio::task::JoinSet;

use crate::harness::asking::{asked, claim};
use crate::harness::proxy::{Fault, Weather};
use crate::harness::redis_server::RedisServer;
use crate::harness::wait::now;
use crate::redis::open;

/// On a lossy network many tasks take and free one name. Each grant has a higher token than all before it, and no two tasks
/// hold the name at once. A lease that no task released expires by itself.
#[tokio::test]
async fn on_a_lossy_network_grants_exclude_each_other_and_tokens_rise() {
    let server = RedisServer::start().await;
    let proxy = server.proxy().await;
    let seed = std::env::var("LEASEHOLD_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let late = Duration::from_millis(30);
    proxy.set_weather(Weather {
        seed: seed.unwrap_or_else(|| fastrand::u64(..)),
        per_mille: vec![
            (20, Fault::DropRequest),
            (20, Fault::DropReply),
            (10, Fault::HoldRequest),
            (10, Fault::HoldReply),
            (50, Fault::DelayRequest(late)),
            (50, Fault::DelayReply(late)),
            (50, Fault::DoubleRequest),
        ],
    });
    let history = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    let end = now().after(Duration::from_secs(3));
    for _ in 0..6 {
        let url = proxy.url();
        let history = history.clone();
        tasks.spawn(async move {
            let store = open(&url).await;
            while now() < end {
                take_and_free(&*store, &history).await;
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    assert!(
        proxy.faults().len() > 20,
        "{} faults of {} requests",
        proxy.faults().len(),
        proxy.requests()
    );
    let mut history = std::mem::take(&mut *history.lock().expect("no panic"));
    history.sort_by_key(|stay| stay.token);
    assert!(history.len() > 20, "{} grants", history.len());
    for pair in history.windows(2) {
        assert!(pair[0].token < pair[1].token, "one token twice: {pair:?}");
        assert!(
            pair[0].until <= pair[1].since,
            "two were in at once: {pair:?}"
        );
    }
    server.assert_all_keys_run_out().await;
}

/// One holder's stay: surely granted by `since`, and not yet released at `until`.
#[derive(Debug)]
struct Stay {
    token: Token,
    since: Instant,
    until: Instant,
}

async fn take_and_free(store: &dyn Store, history: &Mutex<Vec<Stay>>) {
    let ttl = Duration::from_millis(400);
    let claim = claim("a", ttl);
    let sent_at = now();
    if let Ok(Answer::Granted(grant)) = asked(store, &claim, Duration::from_millis(100)).await {
        let since = now();
        tokio::task::yield_now().await;
        let until = now();
        // As a holder would: past its term it makes no claim to have been in.
        if until < sent_at.after(ttl) {
            let token = grant.token;
            history.lock().expect("no panic").push(Stay {
                token,
                since,
                until,
            });
        }
    }
    let limit = Duration::from_millis(100);
    for _ in 0..3 {
        if store
            .release(&claim.name, claim.holder, None, limit)
            .await
            .is_ok()
        {
            break;
        }
    }
}
