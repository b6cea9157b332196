//! The settings of a store, checked all at once.

use std::fmt;
use std::time::Duration;

use deadpool_redis::{Manager, Pool, Runtime};

use super::Redis;
use super::address::{self, Address};
use super::keys::Keys;
use super::lane::{Connector, Lane, Sharing};
use super::scripts::Server;
use crate::error::Error;

/// How many connections the pool may have. Requests share one; the rest is room to replace it.
const POOL_SIZE: usize = 4;
/// How long a handshake may take: three round trips around the globe, and a slow server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Makes a [`Redis`]. Begun by [`Redis::builder`] or [`Redis::from_pool`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    source: Source,
    prefix: String,
    pool_size: usize,
    connect_timeout: Duration,
}

/// Where connections come from.
enum Source {
    Url(String),
    /// A pool of the caller's, and the URL of its server for subscriptions.
    Pool(Pool, Option<String>),
}

impl Builder {
    pub(super) fn from_url(url: &str) -> Self {
        Self::new(Source::Url(url.into()))
    }

    pub(super) fn from_pool(pool: Pool) -> Self {
        Self::new(Source::Pool(pool, None))
    }

    fn new(source: Source) -> Self {
        Self {
            source,
            prefix: Keys::DEFAULT_PREFIX.into(),
            pool_size: POOL_SIZE,
            connect_timeout: CONNECT_TIMEOUT,
        }
    }

    /// The URL of the server behind the pool, so that waiters can be told when a name is freed.
    pub fn notices_from(mut self, url: &str) -> Self {
        let url = url.into();
        self.source = match self.source {
            Source::Url(_) => Source::Url(url),
            Source::Pool(pool, _) => Source::Pool(pool, Some(url)),
        };
        self
    }

    /// What all keys begin with, by default `leasehold`. The rules for names hold.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How many connections the store's own pool may have, by default 4. Has no effect on a pool of the caller's, and none with
    /// TLS, where each connection is made by itself because its certificates are read for it.
    pub fn pool_size(mut self, pool_size: usize) -> Self {
        self.pool_size = pool_size;
        self
    }

    /// How long making a connection may take, by default two seconds.
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// Checks everything and makes the store. Connects to nothing.
    ///
    /// # Errors
    /// `Invalid`, with the setting that cannot be.
    pub fn build(self) -> Result<Redis, Error> {
        let keys = Keys::new(&self.prefix)?;
        if self.connect_timeout < Duration::from_millis(1) {
            return Err(Error::invalid(format!(
                "connect_timeout refused: expected at least one millisecond connect_timeout={:?}",
                self.connect_timeout
            )));
        }
        if self.pool_size == 0 {
            return Err(Error::invalid(
                "pool_size refused: expected at least 1 pool_size=0",
            ));
        }
        let (source, own_pool, address) = match self.source {
            Source::Url(url) => {
                let address = Address::parse(&url)?;
                if address.is_tls() {
                    let source = Connector::Address(Box::new(address.clone()));
                    (source, None, Some(address))
                } else {
                    let pool = make_pool(&address, self.pool_size, self.connect_timeout)?;
                    (Connector::Pool(pool.clone()), Some(pool), Some(address))
                }
            }
            Source::Pool(pool, url) => {
                let address = url.as_deref().map(Address::parse).transpose()?;
                (Connector::Pool(pool), None, address)
            }
        };
        let lane = Lane::new(
            source,
            Sharing::Shared,
            keys.node().into(),
            self.connect_timeout,
        );
        Ok(Redis {
            server: Server::new(lane),
            keys,
            connect_timeout: self.connect_timeout,
            own_pool,
            address,
        })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL has the password.
        f.debug_struct("Builder")
            .field("prefix", &self.prefix)
            .field("pool_size", &self.pool_size)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}

fn make_pool(address: &Address, size: usize, limit: Duration) -> Result<Pool, Error> {
    let unusable =
        |error: String| Error::invalid(format!("store URL refused: {error} store={address}"));
    let manager = Manager::new_with_config(address.info(), address::config(limit))
        .map_err(|error| unusable(error.to_string()))?;
    Pool::builder(manager)
        .max_size(size)
        .wait_timeout(Some(limit))
        .create_timeout(Some(limit))
        .recycle_timeout(Some(limit))
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(|error| unusable(error.to_string()))
}
