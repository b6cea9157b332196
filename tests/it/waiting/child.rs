//! Another process that waits for names on the same server, told line by line what to do.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::{Client, Lease, OutagePolicy};

use crate::harness::leases::client_at;
use crate::harness::subprocess::{self, Subprocess};

/// Starts one that has its leases on this server, for this ttl. Its orders are `acquire NAME`, `release NAME` and
/// `exit`; it answers with the token of a grant, or how a release ended.
pub(super) fn start(url: &str, ttl: Duration) -> Subprocess {
    let test = "waiting::child::a_child_process_waits_for_names";
    Subprocess::start(test, &format!("{} {url}", ttl.as_millis()))
}

#[test]
fn a_child_process_waits_for_names() {
    let Some(task) = subprocess::task() else {
        // In the suite itself there is no server to wait at, and a child can be started.
        drop(start("memory:", Duration::from_secs(1)));
        return;
    };
    let (ttl, url) = task.split_once(' ').expect("a ttl and a url");
    let ttl = Duration::from_millis(ttl.parse().expect("a number"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        obey_as_client(client_at(url, ttl).await).await;
    });
}

async fn obey_as_client(client: Client) {
    let mut held: BTreeMap<String, Lease> = BTreeMap::new();
    for order in std::io::stdin().lines() {
        let order = order.expect("UTF-8");
        match order.split_once(' ') {
            Some(("acquire", name)) => {
                // A process that was stopped finds its requests overdue when it wakes.
                let request = client.request(name).on_outage(OutagePolicy::WaitOut);
                let lease = request.acquire().await.expect("granted at last");
                subprocess::say(lease.token());
                held.insert(name.to_owned(), lease);
            }
            Some(("release", name)) => {
                let lease = held.remove(name).expect("it is held");
                subprocess::say(format_args!("{:?}", lease.release().await));
            }
            _ => std::process::exit(0),
        }
    }
}
