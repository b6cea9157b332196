//! The origin of connections: a pool, or an address.

use std::fmt;
use std::time::Duration;

use deadpool::managed::{Manager, TimeoutType, Timeouts};
use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::{Connection, Pool, PoolError};

use super::super::address::Address;
use super::super::failure::Failure;

/// Says where connections come from.
#[derive(Clone)]
pub(in super::super) enum Origin {
    /// They are taken from the pool, counted by it, and never returned: a connection that is given up is broken or used
    /// by others. When the pool has none to spare, they are made beside it.
    Pool(Pool),
    /// They are made as the pool makes them, and not counted by it.
    BesidePool(Pool),
    /// Each is made separately, with the certificates as they are then.
    Address(Box<Address>),
}

/// A connection's place in the pool, which is freed when this is dropped.
pub(in super::super) struct PoolSlot(Option<Connection>);

impl Origin {
    /// The same, without taking from the pool.
    pub(in super::super) fn beside(&self) -> Self {
        match self {
            Self::Pool(pool) | Self::BesidePool(pool) => Self::BesidePool(pool.clone()),
            Self::Address(address) => Self::Address(address.clone()),
        }
    }

    pub(in super::super) async fn connect(
        &self,
        limit: Duration,
    ) -> Result<(MultiplexedConnection, Option<PoolSlot>), Failure> {
        let pool = match self {
            Self::Pool(pool) => pool,
            Self::BesidePool(pool) => return Ok((pool.manager().create().await?, None)),
            Self::Address(address) => return Ok((address.connect(limit).await?, None)),
        };
        let at_once = Timeouts {
            wait: Some(Duration::ZERO),
            ..pool.timeouts()
        };
        match pool.timeout_get(&at_once).await {
            Ok(connection) => {
                let slot = PoolSlot(Some(connection));
                let connection = slot.0.as_deref().expect("just put there").clone();
                Ok((connection, Some(slot)))
            }
            Err(PoolError::Timeout(TimeoutType::Wait)) => {
                Ok((pool.manager().create().await?, None))
            }
            Err(failure) => Err(failure.into()),
        }
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pool(_) => "pool",
            Self::BesidePool(_) => "beside the pool",
            Self::Address(_) => "address",
        })
    }
}

impl Drop for PoolSlot {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(Connection::take(connection));
        }
    }
}
