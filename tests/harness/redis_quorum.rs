//! Independent Redis servers, the members of a quorum.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::store::Store as _;
use leasehold::store::quorum::Quorum;
use leasehold::store::redis::Redis;
use tokio::task::JoinHandle;

use super::redis_server::{RedisServer, Setup};
use super::times::LIMIT;

/// The longest ttl of the quorums in tests.
pub const MAX_TTL: Duration = Duration::from_secs(60);

/// The members. They end on drop.
#[derive(Debug)]
pub struct RedisQuorum {
    pub servers: Vec<RedisServer>,
}

impl RedisQuorum {
    /// Starts so many servers, and sets them up.
    pub async fn start(members: usize) -> Self {
        Self::start_new(members).await.set_up(MAX_TTL).await
    }

    /// The same for members that also listen on ports, for a URL of all of them.
    pub async fn start_with_ports(members: usize) -> Self {
        Self::with(members, Setup::default, MAX_TTL).await
    }

    /// The same for members that are set up so, with this longest ttl.
    pub async fn with(members: usize, setup: impl Fn() -> Setup, max_ttl: Duration) -> Self {
        let mut servers = Vec::new();
        // One after the other, so that no two find the same port free.
        for _ in 0..members {
            servers.push(setup().with_port().start().await);
        }
        Self { servers }.set_up(max_ttl).await
    }

    /// Starts so many servers that were never used, and also listen on ports.
    pub async fn start_new_with_ports(members: usize) -> Self {
        let mut servers = Vec::new();
        // One after the other, so that no two find the same port free.
        for _ in 0..members {
            servers.push(Setup::default().with_port().start().await);
        }
        Self { servers }
    }

    /// Starts so many servers that were never used.
    pub async fn start_new(members: usize) -> Self {
        let servers = (0..members).map(|_| Setup::default().start());
        let servers = join_all(servers).await;
        Self { servers }
    }

    /// Makes these servers the members of a quorum with this longest ttl, as `leasehold init` does.
    pub async fn set_up(self, max_ttl: Duration) -> Self {
        let store = self.open_with(max_ttl);
        store.init(LIMIT).await.expect("set up");
        store.close().await;
        self
    }

    /// Returns the URLs of the members. They are those of [`url`](Self::url), if they have ports.
    fn urls(&self) -> impl Iterator<Item = String> {
        self.servers.iter().map(|server| match server.has_port() {
            true => format!("redis://127.0.0.1:{}", server.port()),
            false => server.url(),
        })
    }

    /// Returns the URL of all of them.
    pub fn url(&self) -> String {
        let servers = self
            .servers
            .iter()
            .map(|server| format!("127.0.0.1:{}", server.port()));
        format!("redis+quorum://{}", servers.collect::<Vec<_>>().join(","))
    }

    /// Returns a store on all of them, which takes the longest ttl from them.
    pub fn open(&self) -> Quorum {
        let servers = self.urls().map(|url| Redis::builder(&url));
        Quorum::of(servers).expect("settings in order")
    }

    /// Returns a store on all of them, with this longest ttl.
    pub fn open_with(&self, max_ttl: Duration) -> Quorum {
        on(self.urls(), max_ttl)
    }
}

/// Returns a store on the servers at these URLs, with this longest ttl.
pub fn on(urls: impl IntoIterator<Item = String>, max_ttl: Duration) -> Quorum {
    let servers = urls
        .into_iter()
        .map(|url| Redis::builder(&url).max_ttl(max_ttl));
    Quorum::of(servers).expect("settings in order")
}

/// A client that looks at the members by the list that they were set up with, as an exporter does, until it is dropped. A
/// member that lost its data is taken in by such a client only, and not by those behind a proxy.
#[derive(Debug)]
pub struct Watch(JoinHandle<()>);

impl RedisQuorum {
    pub fn watch(&self) -> Watch {
        let store = self.open();
        Watch(tokio::spawn(async move {
            loop {
                let _ = store.members(LIMIT).await;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Ends the keep-out of a member that is out, as if it had been out for long enough. The next client that meets it takes it in.
pub async fn end_keep_out(server: &RedisServer) {
    // A member notes when it is first seen with the first request that it answers.
    let _: i64 = server.told("HSET leasehold:node seen_at 1").await;
}
