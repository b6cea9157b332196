//! The servers of a store: one, or several of which each serves its slots.
//!
//! ```text
//!   run(slot, call) --> map: slot to place --> server at that place --> answer, which counts if the place is still right
//!                        ^
//!                        +-- look: the Sentinels or the cluster's nodes are asked, beside the calls; refusals correct it
//! ```
//!
//! The clients and the watchdog of a store share one map, so both give up a server at the same moment. Each looks on
//! its own connections, because a runtime that is blocked must not keep the other from looking.

mod beside;
mod each;
mod look;
mod many;
mod map;
mod nodes;
mod sentinels;
mod template;

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::Value;

pub(super) use self::each::Call;
pub(super) use self::many::{Discovery, Many};
pub(super) use self::map::HostPort;
pub(super) use self::sentinels::{Sentinel, Sentinels};
pub(super) use self::template::{AddressMap, Template};
use super::address::Address;
use super::connection::budget::Budget;
use super::connection::open::Request;
use super::connection::server::Server;
use super::failure::Failure;
use super::protocol::slot::slot_of;
use crate::name::Name;
use crate::telemetry::LaneUse;

/// The servers of a store.
#[derive(Debug)]
pub(super) enum Fleet {
    /// One server. The address is missing where only a pool of the caller's knows it.
    One(Arc<Server>, Option<Box<Address>>),
    /// The master of a group that Sentinels watch, or the primaries of a cluster.
    Many(Arc<Many>),
}

/// Says where notices come from.
#[derive(Debug, Clone)]
pub(super) enum Ear {
    One(Box<Address>),
    /// From the master, or from any primary: a node passes what is published to all the others.
    Many(Arc<Many>),
}

impl Fleet {
    /// Calls a script on the server of this name's slot.
    pub(super) async fn run(
        &self,
        name: &Name,
        call: Request<'_>,
        budget: Budget,
        replace_every: Duration,
    ) -> Result<Value, Failure> {
        match self {
            Self::One(server, _) => server.run(call, budget, replace_every).await,
            Self::Many(many) => {
                many.run(slot_of(name.as_str()), call, budget, replace_every)
                    .await
            }
        }
    }

    /// Returns the servers of a cluster: there a script takes names of one slot only.
    pub(super) fn cluster(&self) -> Option<&Arc<Many>> {
        match self {
            Self::Many(many) if many.is_cluster() => Some(many),
            _ => None,
        }
    }

    /// Returns the servers that were discovered through others.
    pub(super) fn many(&self) -> Option<&Arc<Many>> {
        match self {
            Self::One(..) => None,
            Self::Many(many) => Some(many),
        }
    }

    pub(super) fn shard(&self, name: &Name) -> u32 {
        match self {
            Self::One(..) => 0,
            Self::Many(many) => many.shard(slot_of(name.as_str())),
        }
    }

    /// Notes that a write was carried out.
    pub(super) fn note_write(&self) {
        match self {
            Self::One(server, _) => server.connections.note_write(),
            // The map says who takes writes.
            Self::Many(_) => {}
        }
    }

    /// Returns the same fleet on connections of its own.
    pub(super) fn beside(&self, purpose: Option<LaneUse>) -> Self {
        match self {
            Self::One(server, address) => {
                let server = Server::new(server.place.clone(), server.connections.beside(purpose));
                Self::One(Arc::new(server), address.clone())
            }
            Self::Many(many) => Self::Many(Arc::new(many.beside(purpose))),
        }
    }

    /// Makes the connections of the calling runtime now.
    pub(super) async fn connect(&self, limit: Duration) -> Result<(), Failure> {
        match self {
            Self::One(server, _) => server.connections.connect().await,
            Self::Many(many) => many.connect(limit).await,
        }
    }

    /// Returns each server that grants leases.
    pub(super) async fn servers(&self, budget: Budget) -> Result<Vec<Arc<Server>>, Failure> {
        match self {
            Self::One(server, _) => Ok(vec![server.clone()]),
            Self::Many(many) => many.primaries(budget).await,
        }
    }

    /// Returns where to listen for notices. `None` if it is not known.
    pub(super) fn ear(&self) -> Option<Ear> {
        match self {
            Self::One(_, address) => address.clone().map(Ear::One),
            Self::Many(many) => Some(Ear::Many(many.clone())),
        }
    }

    pub(super) fn close(&self) {
        match self {
            Self::One(server, _) => server.connections.close(),
            Self::Many(many) => many.close(),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::One(server, _) => server.connections.is_closed(),
            Self::Many(many) => many.is_closed(),
        }
    }
}

impl Ear {
    /// Returns the server to listen to.
    pub(super) async fn address(&self, budget: Budget) -> Result<Address, Failure> {
        match self {
            Self::One(address) => Ok((**address).clone()),
            Self::Many(many) => many.any_primary(budget).await,
        }
    }

    /// Returns once there is a better server to listen to than this one.
    pub(super) async fn moved(&self, from: &Address) {
        match self {
            Self::One(_) => std::future::pending().await,
            Self::Many(many) => many.no_primary_at(from).await,
        }
    }
}
