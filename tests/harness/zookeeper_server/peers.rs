//! The networks between the servers of an ensemble: one for each connection that a server makes to another one.

use std::time::Duration;

use super::{ServerAddress, ZookeeperEnsemble, ZookeeperServer, configured};
use crate::ports::free_port;
use crate::relay::{Passing, Relay};

/// All of them. Each server knows the others by the ports of these networks alone.
#[derive(Debug)]
pub struct PeerNetwork {
    links: Vec<Link>,
}

#[derive(Debug)]
struct Link {
    from: usize,
    to: usize,
    relay: Relay,
}

impl PeerNetwork {
    /// Starts three servers with this `tickTime`, with networks between them, and each with a wall clock that the test moves.
    pub async fn start(tick: Duration) -> (ZookeeperEnsemble, Self) {
        let ports = [(); 9].map(|()| free_port());
        let (client, peer) = ports.split_at(3);
        let own: Vec<&[u16]> = peer.chunks(2).collect();
        let (mut links, mut peers) = (Vec::new(), Vec::new());
        for from in 0..own.len() {
            let mut known = Vec::new();
            for (to, ports) in own.iter().enumerate() {
                let mut seen = ports.to_vec();
                if from != to {
                    seen.clear();
                    for port in *ports {
                        let relay = Relay::before_port(*port).await;
                        seen.push(relay.port());
                        links.push(Link { from, to, relay });
                    }
                }
                known.push(format!("127.0.0.1:{}:{}", seen[0], seen[1]));
            }
            peers.push(known);
        }
        let addresses = client.iter().map(|port| ServerAddress::here(*port));
        let servers = configured(addresses, tick, |server| peers[server].clone());
        let servers = servers.map(ZookeeperServer::with_clock);
        (
            ZookeeperEnsemble::run(servers.collect()).await,
            Self { links },
        )
    }

    /// From now on passes only this between these servers and all others.
    ///
    /// Votes may still pass: a server that is asked for a vote connects back to the address that the asking one names as
    /// its own. So a leader that is cut off can be elected again and again, and no one serves until they meet. A whole
    /// partition needs hosts of their own (`ZookeeperEnsemble::on_hosts`).
    pub fn pass(&self, servers: &[usize], passing: Passing) {
        for link in &self.links {
            if servers.contains(&link.from) || servers.contains(&link.to) {
                link.relay.pass(passing);
            }
        }
    }
}
