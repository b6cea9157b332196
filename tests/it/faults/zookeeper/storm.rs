//! Every fault of servers and networks, at random from a seed, under clients that take a name in turns.

use std::time::Duration;

use super::{Contest, ensemble};
use crate::harness::relay::{Passing, Relay};
use crate::harness::wait::{at, now};
use crate::harness::zookeeper_server::ZookeeperEnsemble;

const CLIENTS: usize = 6;
const FAULTS: usize = 24;

/// The networks between one client and the servers.
struct Way(Vec<Relay>);

impl Way {
    async fn to(ensemble: &ZookeeperEnsemble) -> Self {
        let mut relays = Vec::new();
        for server in &ensemble.servers {
            relays.push(Relay::before_port(server.port()).await);
        }
        Self(relays)
    }

    fn url(&self) -> String {
        let servers = self.0.iter().map(|it| format!("127.0.0.1:{}", it.port()));
        let servers: Vec<_> = servers.collect();
        super::quick(&format!("zookeeper://{}", servers.join(",")))
    }

    fn pass(&self, passing: Passing) {
        self.0.iter().for_each(|relay| relay.pass(passing));
    }

    fn cut(&self) {
        self.0.iter().for_each(Relay::cut);
    }
}

async fn fault(
    ensemble: &ZookeeperEnsemble,
    ways: &[Way],
    dice: &mut fastrand::Rng,
) -> &'static str {
    let server = &ensemble.servers[dice.usize(..3)];
    let way = &ways[dice.usize(..ways.len())];
    let rest = Duration::from_millis(dice.u64(300..4_000));
    match dice.u32(..6) {
        0 => {
            server.kill();
            at(now().after(rest)).await;
            server.run();
            ensemble.serving().await;
            "a server killed"
        }
        1 => {
            server.pause();
            at(now().after(rest)).await;
            server.resume();
            "a server stopped"
        }
        2 => {
            way.cut();
            "the connections of a client reset"
        }
        3 => {
            way.pass(Passing::Requests);
            at(now().after(rest)).await;
            way.pass(Passing::All);
            way.cut();
            "replies to a client lost"
        }
        4 => {
            way.pass(Passing::Nothing);
            at(now().after(rest)).await;
            way.pass(Passing::All);
            "a client behind a black hole"
        }
        _ => {
            ways.iter().for_each(Way::cut);
            "the connections of all reset"
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_hold_at_once_and_tokens_rise_in_turns() {
    let seed = std::env::var("LEASEHOLD_TEST_SEED").ok();
    let seed = seed
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..));
    eprintln!("LEASEHOLD_TEST_SEED={seed}");
    let mut dice = fastrand::Rng::with_seed(seed);
    let ensemble = ensemble().await;
    let mut ways = Vec::new();
    for _ in 0..CLIENTS {
        ways.push(Way::to(&ensemble).await);
    }
    let mut contest = Contest::begin_at(ways.iter().map(Way::url)).await;
    contest.advance(2 * CLIENTS).await;
    for _ in 0..FAULTS {
        let begun = now();
        let what = fault(&ensemble, &ways, &mut dice).await;
        contest.advance(CLIENTS).await;
        eprintln!("{what}: {:.1?}", now().since(begun));
    }
    contest.end("storm").await;
}
