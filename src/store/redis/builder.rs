//! The settings of a Redis store, checked all at once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::{Manager, Pool, Runtime};

use super::Redis;
use super::address::{self, Address};
use super::connector::Connector;
use super::fleet::{self, Fleet, Many, Place, Sentinel, Sentinels, Template};
use super::keys::Keys;
use super::runtime_lanes::RuntimeLanes;
use super::server::Server;
use super::target::Target;
use crate::error::Error;
use crate::store::{Tls, connect_timeout};

/// How many connections the pool may have. The requests of a runtime share one; the others allow for its replacement.
const POOL_SIZE: usize = 4;
/// How long a handshake may take: three round trips around the globe, and a slow server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Builds a [`Redis`] store. [`Redis::builder`] and [`Redis::from_pool`] make one.
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    source: Source,
    prefix: String,
    pool_size: usize,
    connect_timeout: Duration,
    tls: Tls,
}

/// The source of the connections.
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
            tls: Tls::new(),
        }
    }

    /// Sets the URL of the server behind the pool, so that waiting clients can subscribe to notices.
    pub fn notices_from(mut self, url: &str) -> Self {
        let url = url.into();
        self.source = match self.source {
            Source::Url(_) => Source::Url(url),
            Source::Pool(pool, _) => Source::Pool(pool, Some(url)),
        };
        self
    }

    /// Sets what all keys begin with (default: `leasehold`). The rules for names hold.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how many connections the store's own pool may have (default: 4). The requests of each runtime share one, and
    /// the watchdog and the subscription have theirs beside the pool, so only a program with more runtimes needs more;
    /// without that, further connections are made beside the pool. It has no effect on a pool of the caller's, and none
    /// with TLS, where every connection is made outside a pool because its certificates are read for it.
    pub fn pool_size(mut self, pool_size: usize) -> Self {
        self.pool_size = pool_size;
        self
    }

    /// Sets how long making a connection may take (default: 2 s, at most 20 s).
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// Sets how TLS is done, where the URL does not say it. The URL must use TLS. It has no effect on a pool of the
    /// caller's, which makes its own connections.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// Checks all settings and makes the store. The only I/O is that certificate files are read.
    ///
    /// # Errors
    /// `Invalid`, with the setting that is refused.
    pub fn build(self) -> Result<Redis, Error> {
        let keys = Keys::new(&self.prefix)?;
        connect_timeout::check(self.connect_timeout)?;
        if self.pool_size == 0 {
            return Err(Error::invalid(
                "pool_size refused: expected at least 1 pool_size=0",
            ));
        }
        let limit = self.connect_timeout;
        let node: Arc<str> = keys.node().into();
        let mut own_pool = None;
        let (fleet, place) = match self.source {
            Source::Url(url) => {
                let target = Target::parse(&url, &self.tls)?;
                let shown = target.shown();
                let fleet = match target {
                    Target::One(address) => {
                        let source = if address.is_tls() {
                            Connector::Address(Box::new(address.clone()))
                        } else {
                            let pool = make_pool(&address, self.pool_size, limit)?;
                            Connector::Pool(own_pool.insert(pool).clone())
                        };
                        one(source, Some(address), &shown, (node, limit))
                    }
                    Target::Sentinels {
                        sentinel,
                        server,
                        places,
                        name,
                    } => {
                        let sentinel_at = |place: Place| {
                            let address = sentinel.at(&place.host, place.port);
                            let source = Connector::Address(Box::new(address));
                            let lanes = RuntimeLanes::of_master(source, node.clone(), limit, None);
                            Sentinel::new(place, lanes)
                        };
                        let all = places.into_iter().map(sentinel_at).collect();
                        many(
                            fleet::Source::Sentinels(Sentinels { name, all }),
                            server,
                            (node, limit),
                        )
                    }
                    Target::Cluster { server, places } => {
                        many(fleet::Source::Nodes(places), server, (node, limit))
                    }
                };
                (fleet, shown)
            }
            Source::Pool(pool, url) => {
                let address = url.map(|url| Address::parse(&url, &self.tls)).transpose()?;
                let place = match &address {
                    Some(address) => address.to_string(),
                    None => "redis behind a pool of the caller's".into(),
                };
                (
                    one(Connector::Pool(pool), address, &place, (node, limit)),
                    place,
                )
            }
        };
        Ok(Redis {
            fleet,
            keys,
            connect_timeout: limit,
            own_pool,
            place: place.into(),
        })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL contains the password.
        f.debug_struct("Builder")
            .field("prefix", &self.prefix)
            .field("pool_size", &self.pool_size)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}

fn one(
    source: Connector,
    address: Option<Address>,
    place: &str,
    (node, limit): (Arc<str>, Duration),
) -> Fleet {
    let lanes = RuntimeLanes::new(source, node, limit);
    Fleet::One(Arc::new(Server::new(place.into(), lanes)), address)
}

fn many(
    source: fleet::Source,
    address: Address,
    (node, connect_timeout): (Arc<str>, Duration),
) -> Fleet {
    let template = Template {
        address,
        node,
        connect_timeout,
    };
    Fleet::Many(Arc::new(Many::new(source, template)))
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
