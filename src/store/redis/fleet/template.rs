//! The settings that are the same for all servers of a store, and the address of a server that others name.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::super::address::Address;
use super::super::connection::Connector;
use super::super::connection::origin::Origin;
use super::super::protocol::scripts::PROGRAM;
use super::map::HostPort;

/// The settings that are the same for all servers.
#[derive(Debug, Clone)]
pub(in super::super) struct Template {
    /// The address of any of them, with the credentials and the certificates.
    pub(in super::super) address: Address,
    pub(in super::super) connect_timeout: Duration,
    /// Says how many replicas must have a write before it counts.
    pub(in super::super) acknowledged_by: u8,
    pub(in super::super) address_map: AddressMap,
}

/// Translates the addresses that Sentinels and nodes name into those at which this process reaches the servers.
#[derive(Clone, Default)]
pub(in super::super) struct AddressMap(Option<Arc<Translation>>);

type Translation = dyn Fn(&str, u16) -> (String, u16) + Send + Sync;

impl Template {
    /// Returns the settings of the connections to the server at this address.
    pub(in super::super) fn settings(&self, address: Address) -> Connector {
        Connector {
            source: Origin::Address(Box::new(address)),
            program: PROGRAM,
            connect_timeout: self.connect_timeout,
            acknowledged_by: self.acknowledged_by,
            // Others say that it is a master.
            has_written: Arc::new(AtomicBool::new(true)),
        }
    }
}

impl AddressMap {
    pub(in super::super) fn new(
        map: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(map)))
    }

    pub(in super::super) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Returns where the server is reached that is named so.
    pub(super) fn reached(&self, named: HostPort) -> HostPort {
        match &self.0 {
            None => named,
            Some(map) => {
                let (host, port) = map(&named.host, named.port);
                HostPort::new(&host, port)
            }
        }
    }
}

impl fmt::Debug for AddressMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            None => "none",
            Some(_) => "of the caller",
        })
    }
}
