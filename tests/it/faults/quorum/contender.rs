//! A client of a quorum in a process of its own, which takes a few names again and again and says what it holds, until it
//! is killed.

use std::time::Duration;

use leasehold::WaitOrder;

use crate::faults::turns::take_turn;
use crate::harness::leases::client_at;
use crate::harness::subprocess::{self, Subprocess};

/// The ttl of its leases, and the longest of the quorum.
pub(super) const TTL: Duration = Duration::from_secs(1);

/// Starts one at the quorum of this URL. It says what its [turns](take_turn) brought.
pub(super) fn start(url: &str, seed: u64) -> Subprocess {
    let test = "faults::quorum::contender::a_contender_takes_turns_until_it_is_killed";
    Subprocess::start(test, &format!("{seed} {url}"))
}

#[test]
fn a_contender_takes_turns_until_it_is_killed() {
    let Some(task) = subprocess::task() else {
        // In the suite itself there is no server to contend at, and a contender can be started.
        drop(start("redis+quorum://a,b,c", 1));
        return;
    };
    let (seed, url) = task.split_once(' ').expect("a seed and a URL");
    let mut dice = fastrand::Rng::with_seed(seed.parse().expect("a number"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut orders = subprocess::orders();
        let client = client_at(url, TTL).await;
        let turns = async {
            loop {
                take_turn(&client, WaitOrder::Any, &mut dice).await;
            }
        };
        tokio::select! {
            () = turns => {}
            _ = orders.recv() => {}
        }
    });
    std::process::exit(0);
}
