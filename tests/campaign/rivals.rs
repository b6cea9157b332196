//! The locks that the controls take instead of leasehold's leases: two of the textbooks, and a published crate. None of
//! them has a token, so none of their writes can be fenced.

use std::time::Duration;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{self, AsyncConnectionConfig, RedisError};
use leasehold::clock::wall_clock;
use rslock::LockManager;
use serde::{Deserialize, Serialize};

/// How long one request may take.
const LIMIT: Duration = Duration::from_millis(500);

/// A lock that is not ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Rival {
    /// `SET name me NX PX ttl`, and `DEL name`.
    SetNx,
    /// `SETNX name <end>`; one that finds the end passed takes over with `GETSET`.
    GetSet,
    /// The crate rslock, on one server.
    Rslock,
}

/// A connection that locks.
pub(crate) struct Locker {
    rival: Rival,
    url: String,
    ttl: Duration,
    manager: LockManager,
}

/// What was locked.
pub(crate) enum Locked {
    Key(String),
    Rslock(rslock::Lock),
}

impl Locker {
    pub(crate) fn new(rival: Rival, url: &str, ttl: Duration) -> Self {
        Self {
            rival,
            url: url.into(),
            ttl,
            manager: LockManager::new(vec![url.to_owned()]),
        }
    }

    /// Tries once.
    pub(crate) async fn lock(&self, name: &str) -> Option<Locked> {
        let key = format!("lock:{name}");
        match self.rival {
            Rival::SetNx => self.set_nx(&key).await.ok()?.then_some(Locked::Key(key)),
            Rival::GetSet => self.get_set(&key).await.ok()?.then_some(Locked::Key(key)),
            Rival::Rslock => {
                let lock = self.manager.lock(key.as_str(), self.ttl).await.ok()?;
                Some(Locked::Rslock(lock))
            }
        }
    }

    pub(crate) async fn unlock(&self, locked: Locked) {
        match locked {
            Locked::Key(key) => {
                if let Ok(mut connection) = self.connect().await {
                    let _ = redis::cmd("DEL")
                        .arg(&key)
                        .query_async::<()>(&mut connection)
                        .await;
                }
            }
            Locked::Rslock(lock) => self.manager.unlock(&lock).await,
        }
    }

    async fn set_nx(&self, key: &str) -> Result<bool, RedisError> {
        let mut set = redis::cmd("SET");
        set.arg(key).arg("me").arg("NX");
        set.arg("PX").arg(self.ttl.as_millis() as u64);
        let set: Option<String> = set.query_async(&mut self.connect().await?).await?;
        Ok(set.is_some())
    }

    async fn get_set(&self, key: &str) -> Result<bool, RedisError> {
        let mut connection = self.connect().await?;
        let now = wall_clock().duration_since(std::time::UNIX_EPOCH);
        let now_ms = now.expect("it is later than 1970").as_millis() as u64;
        let end_ms = now_ms + self.ttl.as_millis() as u64;
        let mut set = redis::cmd("SETNX");
        set.arg(key).arg(end_ms);
        if set.query_async(&mut connection).await? {
            return Ok(true);
        }
        let mut get = redis::cmd("GET");
        let end: Option<u64> = get.arg(key).query_async(&mut connection).await?;
        if end.is_none_or(|end| end > now_ms) {
            return Ok(false);
        }
        let mut swap = redis::cmd("GETSET");
        swap.arg(key).arg(end_ms);
        let before: Option<u64> = swap.query_async(&mut connection).await?;
        Ok(before == end)
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(LIMIT))
            .set_response_timeout(Some(LIMIT));
        let client = redis::Client::open(self.url.as_str())?;
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
    }
}
