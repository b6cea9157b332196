//! The settings of a Postgres store, checked all at once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Postgres;
use super::address::Address;
use super::connection::connections::Connections;
use crate::error::Error;
use crate::store::Tls;
use crate::store::kit::connect_timeout;

/// The longest time that a handshake may take: a few round trips around the globe, and a slow server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Builds a [`Postgres`] store. [`Postgres::builder`] makes one.
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    url: String,
    connect_timeout: Duration,
    tls: Tls,
}

impl Builder {
    pub(super) fn from_url(url: &str) -> Self {
        Self {
            url: url.into(),
            connect_timeout: CONNECT_TIMEOUT,
            tls: Tls::new(),
        }
    }

    /// Sets how long the handshake with one server may take (default: 2 s, at most 20 s). Of several hosts or addresses
    /// the next one is tried as well once one takes longer than 300 ms.
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// Sets how TLS is done, where the URL does not say it. The URL must use TLS, as it does unless all its hosts are
    /// of this machine.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// Checks all settings and makes the store. The only I/O is that certificate files are read.
    ///
    /// # Errors
    /// `Invalid`, with the setting that is refused.
    pub fn build(self) -> Result<Postgres, Error> {
        let address = Arc::new(Address::parse(&self.url, &self.tls)?);
        connect_timeout::check(self.connect_timeout)?;
        Ok(Postgres {
            connections: Arc::new(Connections::new(&address, self.connect_timeout)),
            side: super::Side::All,
            address,
            connect_timeout: self.connect_timeout,
            has_told_of_pooler: Arc::default(),
            max_ttl: Arc::default(),
        })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL contains the password.
        f.debug_struct("Builder")
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}
