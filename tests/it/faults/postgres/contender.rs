//! A client in a process of its own, behind a network that breaks, which takes a few names again and again and says what
//! it holds, until it is killed.

use std::path::Path;
use std::time::Duration;

use leasehold::WaitOrder;

use crate::faults::turns::take_turn;
use crate::harness::leases::client_at;
use crate::harness::relay::{Passing, Relay};
use crate::harness::subprocess::{self, Subprocess};
use crate::harness::wait::{at, now};

const TTL: Duration = Duration::from_millis(1_500);

/// Starts one at the server behind this socket. It says what its [turns](take_turn) brought.
pub(super) fn start(socket: &Path, seed: u64) -> Subprocess {
    let test = "faults::postgres::contender::a_contender_takes_turns_until_it_is_killed";
    Subprocess::start(test, &format!("{seed} {}", socket.display()))
}

#[test]
fn a_contender_takes_turns_until_it_is_killed() {
    let Some(task) = subprocess::task() else {
        // In the suite itself there is no server to contend at, and a contender can be started.
        drop(start(Path::new("/nowhere"), 1));
        return;
    };
    let (seed, socket) = task.split_once(' ').expect("a seed and a socket");
    let seed = seed.parse().expect("a number");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut orders = subprocess::orders();
        tokio::select! {
            () = contend(Path::new(socket), seed) => {}
            _ = orders.recv() => {}
        }
    });
    std::process::exit(0);
}

async fn contend(socket: &Path, seed: u64) {
    let relay = Relay::before(socket).await;
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", relay.port());
    let client = client_at(&url, TTL).await;
    let mut dice = fastrand::Rng::with_seed(seed);
    tokio::join!(fail(&relay, dice.fork()), async {
        loop {
            let order = dice.choice([WaitOrder::Any, WaitOrder::Fair]);
            take_turn(&client, order.expect("two"), &mut dice).await;
        }
    });
}

/// Breaks the network now and then, and has it work again.
async fn fail(relay: &Relay, mut dice: fastrand::Rng) {
    let mut rest = async |range| at(now().after(Duration::from_millis(dice.u64(range)))).await;
    for failing in [Passing::All, Passing::Requests, Passing::Nothing]
        .into_iter()
        .cycle()
    {
        rest(500..6_000).await;
        relay.pass(failing);
        rest(50..2_000).await;
        relay.cut();
        relay.pass(Passing::All);
    }
}
