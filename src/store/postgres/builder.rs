//! The settings of a Postgres store, checked all at once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Postgres;
use super::address::Address;
use super::connection::connections::Connections;
use super::protocol::schema::Schema;
use crate::error::Error;
use crate::store::{Tls, connect_timeout};

/// Says how many connections may carry requests: with a disk flush of one millisecond, some 650 grants a second.
const CONNECTIONS: usize = 4;
/// The longest time that a handshake may take: a few round trips around the globe, and a slow server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Builds a [`Postgres`] store. [`Postgres::builder`] makes one.
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    url: String,
    schema: Option<String>,
    connections: Option<usize>,
    connect_timeout: Duration,
    notices: bool,
    tls: Tls,
}

impl Builder {
    pub(super) fn from_url(url: &str) -> Self {
        Self {
            url: url.into(),
            schema: None,
            connections: None,
            connect_timeout: CONNECT_TIMEOUT,
            notices: true,
            tls: Tls::new(),
        }
    }

    /// Sets the schema that has the tables (default: the URL's `schema` parameter, or else `leasehold`). Leases in
    /// different schemas are unrelated.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// Sets the greatest number of connections for requests (default: the URL's `connections` parameter, or else 4). A
    /// second connection is opened only when the first is busy; unused ones are closed after ten seconds. The watchdog
    /// and the waiting clients each have one more.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = Some(connections);
        self
    }

    /// Sets how long the handshake with one server may take (default: 2 s, at most 20 s). Of several hosts or addresses
    /// the next one is tried as well once one takes longer than 300 ms.
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// Sets whether waiting clients listen for freed names (default: true). Without notices they only check again after
    /// some time.
    pub fn notices(mut self, notices: bool) -> Self {
        self.notices = notices;
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
        let mut address = Address::parse(&self.url, &self.tls)?;
        if let Some(schema) = &self.schema {
            address.schema = Schema::new(schema)?;
        }
        connect_timeout::check(self.connect_timeout)?;
        let connections = self
            .connections
            .or(address.connections)
            .unwrap_or(CONNECTIONS);
        if connections == 0 {
            return Err(Error::invalid(
                "connections refused: expected at least 1 connections=0",
            ));
        }
        let has_notices = self.notices && address.has_notices;
        let address = Arc::new(address);
        Ok(Postgres {
            connections: Arc::new(Connections::new(
                &address,
                connections,
                self.connect_timeout,
            )),
            address,
            connect_timeout: self.connect_timeout,
            has_notices,
            has_told_of_pooler: Arc::default(),
            max_ttl: Arc::default(),
        })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL contains the password.
        f.debug_struct("Builder")
            .field("schema", &self.schema)
            .field("connections", &self.connections)
            .field("connect_timeout", &self.connect_timeout)
            .field("notices", &self.notices)
            .finish_non_exhaustive()
    }
}
