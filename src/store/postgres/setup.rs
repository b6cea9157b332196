//! Makes the tables and functions, once and only when asked to: no store makes them by itself. Applications rarely have
//! the permission, and a database that was named by mistake must not get them.

use std::time::Duration;

use tokio::time::timeout;

use super::Postgres;
use super::address::Address;
use super::connection::connect::{self, GivenUp, Opened};
use super::failure::Failure;
use crate::error::Error;
use crate::store::kit::backend::Backend as _;
use crate::store::{TableSettings, Tls};

/// The default of the longest ttl: after a failover nothing is granted for this long.
const MAX_TTL: Duration = Duration::from_secs(10 * 60);

impl Postgres {
    /// Makes the schema with its tables and functions, in one transaction. A second run repairs what is missing and
    /// changes nothing else but the longest ttl, if the settings name one: it must not be set lower while leases with a
    /// longer ttl are held. Several may run at once. It needs the permission to create a schema in the database, or to
    /// own it. [`init_script`](crate::store::init_script) returns the SQL for an administrator to run.
    ///
    /// # Errors
    /// `Invalid` for a longest ttl of less than a millisecond; otherwise the errors of the store's requests, `Denied`
    /// also if the schema, or a table or function in it, belongs to another role that is not a superuser. After an
    /// error nothing was changed. If it timed out the outcome is unknown: run it again.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the outcome unknown: run it again.
    pub async fn init(&self, settings: TableSettings, limit: Duration) -> Result<(), Error> {
        let sql = sql(&self.address, settings)?;
        let mut locked = None;
        let making = async {
            loop {
                match send(&self.address, &sql, limit).await {
                    // The server waits for a lock for a second only, and another run of this may take longer.
                    Err(failure) if failure.is_of_lock() => locked = Some(failure),
                    // A first run that could not wait for another one, because a stranger had the lock.
                    Err(failure) if failure.is_of_other_init() => {}
                    made => return made,
                }
            }
        };
        let made = timeout(limit, making).await;
        let made = made.unwrap_or_else(|_| Err(locked.unwrap_or(Failure::Silent)));
        made.map_err(|failure| self.error_of_all(failure, "init"))
    }
}

async fn send(address: &Address, sql: &str, limit: Duration) -> Result<(), Failure> {
    let opened = connect::open(address, limit, &GivenUp::default()).await?;
    let Opened {
        client, connection, ..
    } = opened;
    let sent = tokio::select! {
        sent = client.batch_execute(sql) => sent,
        ended = connection => match ended {
            Ok(()) => return Err(Failure::Silent),
            Err(error) => Err(error),
        },
    };
    sent.map_err(|error| Failure::of_request(&error))
}

fn sql(address: &Address, settings: TableSettings) -> Result<String, Error> {
    match settings.max_ttl {
        Some(max_ttl) if max_ttl < Duration::from_millis(1) => Err(Error::invalid(format!(
            "max_ttl refused: expected at least one millisecond max_ttl={max_ttl:?}"
        ))),
        _ => Ok(address.schema.sql(settings, MAX_TTL)),
    }
}

/// Returns the SQL that sets up the store at a URL.
pub(crate) fn init_script(url: &str, settings: TableSettings) -> Result<String, Error> {
    sql(&Address::parse(url, &Tls::new())?, settings)
}
