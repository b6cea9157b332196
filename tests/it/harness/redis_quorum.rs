//! Independent Redis servers, the members of a quorum.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::store::quorum::{Builder, Quorum};

use super::redis_server::{RedisServer, Setup};

/// The longest ttl of the quorums in tests.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(60);

/// The members. They end on drop.
#[derive(Debug)]
pub(crate) struct RedisQuorum {
    pub(crate) servers: Vec<RedisServer>,
}

impl RedisQuorum {
    /// Starts so many members that have been in use for a long time: they take claims at once.
    pub(crate) async fn start(members: usize) -> Self {
        Self::start_new(members).await.settled(MAX_TTL).await
    }

    /// The same for members that also listen on ports, for a URL of all of them.
    pub(crate) async fn start_with_ports(members: usize) -> Self {
        Self::with(members, Setup::default, MAX_TTL).await
    }

    /// The same for members that are set up so, with this longest ttl.
    pub(crate) async fn with(members: usize, setup: impl Fn() -> Setup, max_ttl: Duration) -> Self {
        let mut servers = Vec::new();
        // One after the other, so that no two find the same port free.
        for _ in 0..members {
            servers.push(setup().with_port().start().await);
        }
        Self { servers }.settled(max_ttl).await
    }

    /// Starts so many servers that were never used.
    pub(crate) async fn start_new(members: usize) -> Self {
        let servers = (0..members).map(|_| Setup::default().start());
        let servers = join_all(servers).await;
        Self { servers }
    }

    async fn settled(self, max_ttl: Duration) -> Self {
        join_all(self.servers.iter().map(|server| settle(server, max_ttl))).await;
        self
    }

    /// Returns a builder of a store on all of them.
    pub(crate) fn builder(&self) -> Builder {
        Quorum::builder(self.servers.iter().map(RedisServer::url)).max_ttl(MAX_TTL)
    }

    /// Returns the URL of all of them.
    pub(crate) fn url(&self) -> String {
        let places = self
            .servers
            .iter()
            .map(|server| format!("127.0.0.1:{}", server.port()));
        format!("redis+quorum://{}", places.collect::<Vec<_>>().join(","))
    }

    /// Returns a store on all of them.
    pub(crate) fn open(&self) -> Quorum {
        self.builder().build().expect("settings in order")
    }
}

/// Makes a server look as if it had been a member for a long time, with this longest ttl.
pub(crate) async fn settle(server: &RedisServer, max_ttl: Duration) {
    let run = run_id(server).await;
    let max_ttl = max_ttl.as_millis();
    let row = format!("HSET leasehold:node run {run} ready 0 floor 0 keep_out {max_ttl}");
    let _: i64 = server.told(&row).await;
}

/// Returns the run of this server.
pub(crate) async fn run_id(server: &RedisServer) -> String {
    let info: String = server.told("INFO server").await;
    let line = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    line.expect("a run").trim().into()
}
