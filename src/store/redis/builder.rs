//! The settings of a Redis store, checked all at once.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use deadpool_redis::Pool;

use super::Redis;
use super::address::AddressMap;
use super::connection::Connector;
use super::fleet::Fleet;
use super::protocol::keys::Keys;
use super::protocol::scripts::{PROGRAM, Program};
use super::target::{Target, UrlServers};
use crate::error::Error;
use crate::store::Tls;
use crate::store::kit::connect_timeout;
use crate::store::kit::server_url::ServerUrl;
use crate::telemetry::ConnectionPurpose;
use crate::term::Timing;

/// Maximum duration of a handshake: three round trips around the globe, and a slow server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of replicas that can be required.
const MOST_REPLICAS: u8 = 8;
/// The range of longest ttls that can be set.
const MAX_TTLS: RangeInclusive<Duration> = Timing::MIN_TTL_WITH_MARGIN..=Timing::MAX_TTL;

/// Builds a [`Redis`] store. [`Redis::builder`] and [`Redis::from_pool`] make one.
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    /// It contains the password.
    url: Result<ServerUrl, Error>,
    pool: Option<Pool>,
    prefix: String,
    connect_timeout: Duration,
    acknowledged_by: u8,
    max_ttl: Option<Duration>,
    is_alone: bool,
    program: Program,
    tls: Tls,
    address_map: AddressMap,
}

impl Builder {
    pub(crate) fn new(url: Result<ServerUrl, Error>, pool: Option<Pool>) -> Self {
        Self {
            url,
            pool,
            prefix: Keys::DEFAULT_PREFIX.into(),
            connect_timeout: CONNECT_TIMEOUT,
            acknowledged_by: 0,
            max_ttl: None,
            is_alone: false,
            program: PROGRAM,
            tls: Tls::new(),
            address_map: AddressMap::default(),
        }
    }

    /// Sets what all keys begin with (default: `leasehold`; in a URL `?prefix=NAME`). The rules for names hold.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how long making a connection may take (default: 2 s, at most 20 s).
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// Sets how many replicas must have a grant or a renewal before it counts (default: 0, at most 8; in a URL
    /// `?acknowledged_by=N`).
    ///
    /// Without it the server answers before any replica has the lease, so a failover can grant a held name again: the
    /// old holder believes in its lease for up to a third of a ttl, or, cut off together with its server, until it is
    /// reconnected. With it such a holder is lost by its own deadline, before the copy of the promoted replica runs
    /// out. With fewer than all replicas, the one that is promoted may be one that missed the write, so only the number
    /// of all replicas closes a partition. A grant that too few replicas have is `Unavailable`, and its renewal is
    /// tried again until the deadline. It costs about a fifth of the speed, and a missing replica stops all
    /// grants.
    pub fn acknowledged_by(mut self, replicas: u8) -> Self {
        self.acknowledged_by = replicas;
        self
    }

    /// Turns keep-out on, with this longest ttl (default: off; in a URL `?max_ttl=60s`). It must be the same for all
    /// clients of a server, and a claim with a longer ttl is `Invalid`.
    ///
    /// A server that comes back without its data, or another one that is promoted instead, then grants nothing for
    /// this long, so that every lease that it may have forgotten has ended before a name is granted again. Renewals and
    /// releases go on, and a claim is answered as held in the state [`KeepOut`](crate::store::HeldState::KeepOut), with
    /// the time that is left. Every restart and every failover costs this time, as does the first contact with a server
    /// that was never used, unless [`Redis::init`] was called before. All clients obey it, those without this setting
    /// too, but they do not turn it on again after a flush. Their users need the permission `+info`.
    ///
    /// It does not help against an old master that keeps running after a failover, cut off together with a
    /// holder: that needs [`acknowledged_by`](Self::acknowledged_by). It is not offered for a cluster.
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.max_ttl = Some(max_ttl);
        self
    }

    /// Declares that the server never has a replica, and that no other server ever takes its address (default: off; in
    /// a URL `?alone=yes`). Then a keep-out after a restart counts from the start of the server, and no longer from the
    /// first claim: after a longer stop the first claim is granted at once.
    ///
    /// It cannot be checked: a replica that joined after the last claim, and was promoted while this server was down,
    /// has left no trace on it. If it is not true, this server grants names again that are held at the other one.
    pub fn alone(mut self) -> Self {
        self.is_alone = true;
        self
    }

    /// Makes this a server of another kind of store.
    #[cfg(feature = "_remote")]
    pub(crate) fn program(mut self, program: Program) -> Self {
        self.program = program;
        self
    }

    /// Sets how to reach the servers that Sentinels or the nodes of a cluster name, if their addresses differ from
    /// here, as behind NAT or a load balancer. The function gets a host and a port, and returns the host and the port
    /// to connect to; it should return an unknown address unchanged. The hosts of the URL are used as they are. In a
    /// URL it is `?reach=HOST:PORT=HOST:PORT`, or a list of these with commas: the endpoint that servers name, and the
    /// one to connect to.
    ///
    /// ```
    /// use leasehold::store::redis::Redis;
    ///
    /// let outside = |host: &str, port: u16| match host {
    ///     "10.0.0.7" => ("redis.example".to_owned(), 30_000 + port % 1_000),
    ///     _ => (host.to_owned(), port),
    /// };
    /// let store = Redis::builder("redis+sentinel://sentinels.example/main")
    ///     .address_map(outside)
    ///     .build()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn address_map(
        mut self,
        map: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static,
    ) -> Self {
        self.address_map = AddressMap::new(map);
        self
    }

    /// Sets the parameters of TLS that the URL does not have. The URL must use TLS. It has no effect on the connections
    /// that a pool of the caller's makes.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// Checks all settings and makes the store. The only I/O is that certificate files are read.
    ///
    /// # Errors
    /// `Invalid`, with the setting that is refused.
    pub fn build(self) -> Result<Redis, Error> {
        connect_timeout::check(self.connect_timeout)?;
        let target = Target::new(&self.url.clone()?, &self.tls)?;
        let prefix = target.settings.prefix.as_ref().unwrap_or(&self.prefix);
        let keys = Keys::new(prefix)?;
        let location = target.shown(prefix);
        let acknowledged_by = target.settings.acknowledged_by;
        let acknowledged_by = acknowledged_by.unwrap_or(self.acknowledged_by);
        if acknowledged_by > MOST_REPLICAS {
            return Err(Error::invalid(format!(
                "acknowledged_by refused: expected 0 to {MOST_REPLICAS} replicas acknowledged_by={acknowledged_by}"
            )));
        }
        let max_ttl = target.settings.max_ttl.or(self.max_ttl);
        check_max_ttl(max_ttl)?;
        let is_alone = target.settings.is_alone.unwrap_or(self.is_alone);
        if is_alone && (max_ttl.is_none() || !matches!(target.servers, UrlServers::One)) {
            return Err(Error::invalid(
                "alone refused: it says how a server without replicas keeps out; expected redis:// with max_ttl",
            ));
        }
        self.check_servers(&target.servers, max_ttl, &location)?;
        let connector = Connector {
            address: target.address,
            is_of_several: !matches!(target.servers, UrlServers::One),
            pool: self.pool,
            program: self.program,
            connect_timeout: self.connect_timeout,
            acknowledged_by,
            is_of_watchdog: false,
            need: Arc::default(),
            refusals: Arc::default(),
            has_written: Arc::new(AtomicBool::new(!matches!(target.servers, UrlServers::One))),
            changes: Arc::default(),
        };
        let purpose = Some(ConnectionPurpose::Requests);
        let address_map = match target.settings.reach.is_empty() {
            true => self.address_map,
            false => AddressMap::of(target.settings.reach),
        };
        let fleet = Fleet::new(target.servers, connector, address_map, purpose);
        Ok(Redis {
            fleet: Arc::new(fleet),
            keys,
            max_ttl,
            is_alone,
            location: location.into(),
        })
    }

    /// Refuses settings that do not fit the servers of the URL.
    fn check_servers(
        &self,
        servers: &UrlServers,
        max_ttl: Option<Duration>,
        location: &str,
    ) -> Result<(), Error> {
        let needs_one = self.pool.is_some() || self.program.kind != PROGRAM.kind;
        match servers {
            UrlServers::One if self.address_map.is_set() => Err(Error::invalid(
                "address_map refused: the URL names one server, which names no others; \
                 expected redis+sentinel:// or redis+cluster://",
            )),
            UrlServers::One => Ok(()),
            _ if needs_one => Err(Error::invalid(format!(
                "store URL refused: expected one server, as redis:// or rediss:// store={location}"
            ))),
            UrlServers::Cluster(_) if max_ttl.is_some() => Err(Error::invalid(
                "max_ttl refused: a cluster does not keep out; use acknowledged_by with the number of replicas of a primary",
            )),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Builder {
    // The URL contains the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").finish_non_exhaustive()
    }
}

fn check_max_ttl(max_ttl: Option<Duration>) -> Result<(), Error> {
    let Some(refused) = max_ttl.filter(|max_ttl| !MAX_TTLS.contains(max_ttl)) else {
        return Ok(());
    };
    Err(Error::invalid(format!(
        "max_ttl refused: expected {:?} to {:?} max_ttl={refused:?}",
        MAX_TTLS.start(),
        MAX_TTLS.end()
    )))
}
