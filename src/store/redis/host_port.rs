//! Where a server is reached.

use std::fmt;
use std::sync::Arc;

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct HostPort {
    pub(super) host: Arc<str>,
    pub(super) port: u16,
}

impl HostPort {
    pub(super) fn new(host: &str, port: u16) -> Self {
        let host = host.into();
        Self { host, port }
    }

    /// Returns a host of a URL, with this port unless it has one of its own.
    pub(super) fn of((host, port): &(String, Option<u16>), default_port: u16) -> Self {
        Self::new(host, port.unwrap_or(default_port))
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}
