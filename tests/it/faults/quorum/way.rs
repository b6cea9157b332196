//! The networks between one client and the members of a quorum, each of which fails on its own.

use std::time::Duration;

use crate::harness::proxy::{Fault, Proxy, Weather};
use crate::harness::redis_quorum::RedisQuorum;

/// One network for each member.
#[derive(Debug)]
pub(super) struct Way(pub(super) Vec<Proxy>);

/// How often requests met each fault.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Met {
    pub(super) late: usize,
    pub(super) doubled: usize,
    pub(super) lost: usize,
}

impl Way {
    pub(super) async fn to(quorum: &RedisQuorum) -> Self {
        let mut proxies = Vec::new();
        for server in &quorum.servers {
            proxies.push(server.proxy().await);
        }
        Self(proxies)
    }

    /// Returns the URL of a quorum with this longest ttl, over these networks.
    pub(super) fn url(&self, max_ttl: Duration) -> String {
        let urls = self.0.iter().map(Proxy::url);
        let servers: Vec<_> = urls.map(|url| url.replace("redis://", "")).collect();
        let (servers, ms) = (servers.join(","), max_ttl.as_millis());
        format!("redis+quorum://{servers}?max_ttl={ms}ms")
    }

    /// From now on so many of 1,000 requests arrive late by this time, and so many twice; one tenth of the late ones is
    /// lost as well, and of as many the reply.
    pub(super) fn storm(&self, seed: u64, late: Duration, shares: [u32; 2]) {
        let [late_ones, doubled] = shares;
        let lost = late_ones.div_ceil(10);
        for (proxy, member) in self.0.iter().zip(0..) {
            proxy.set_weather(Weather {
                seed: seed ^ member,
                per_mille: vec![
                    (late_ones, Fault::DelayRequest(late)),
                    (doubled, Fault::DoubleRequest),
                    (lost, Fault::DropRequest),
                    (lost, Fault::DropReply),
                ],
            });
        }
    }

    /// Ends the storm. What is late still arrives.
    pub(super) fn calm(&self) {
        self.0.iter().for_each(|proxy| proxy.set(|_| None));
    }

    pub(super) fn met(&self) -> Met {
        let mut met = Met::default();
        for (_, fault) in self.0.iter().flat_map(Proxy::faults) {
            match fault {
                Fault::DelayRequest(_) => met.late += 1,
                Fault::DoubleRequest => met.doubled += 1,
                _ => met.lost += 1,
            }
        }
        met
    }
}
