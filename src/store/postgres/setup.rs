//! Makes the tables and functions, once and only when asked to: no store makes them by itself. Applications rarely have
//! the permission, and a database that was named by mistake must not get them.

use std::fmt;
use std::time::Duration;

use tokio::time::timeout;

use super::address::Address;
use super::connection::connect::{self, GivenUp, Opened};
use super::failure::Failure;
use crate::error::Error;
use crate::store::backend::Failing;
use crate::store::{TableSettings, Tls};

/// The default of the longest ttl: after a failover nothing is granted for this long.
const MAX_TTL: Duration = Duration::from_secs(10 * 60);

/// Makes the schema with its tables and functions, or returns the SQL for a database administrator to run.
///
/// Both are idempotent: a second run repairs what is missing and changes nothing else. Several may run at once.
#[must_use = "a setup does nothing until `run` is called"]
pub struct Setup {
    address: Address,
    settings: TableSettings,
}

impl Setup {
    /// Begins a setup for the database and the schema of this URL.
    ///
    /// # Errors
    /// `Invalid` for a URL that cannot be used. The message contains no secrets.
    pub fn new(url: &str) -> Result<Self, Error> {
        Self::with_tls(url, &Tls::new())
    }

    /// Does the same, with these settings for what the URL does not say about TLS, as [`Builder::tls`] sets them.
    ///
    /// # Errors
    /// `Invalid` for a URL or a setting that cannot be used. The message contains no secrets.
    ///
    /// [`Builder::tls`]: super::Builder::tls
    pub fn with_tls(url: &str, tls: &Tls) -> Result<Self, Error> {
        Ok(Self {
            address: Address::parse(url, tls)?,
            settings: TableSettings::default(),
        })
    }

    /// Sets the longest ttl that the store grants (default: an earlier setting, or ten minutes).
    ///
    /// After a failover to a standby that may have missed grants, nothing is granted for this long. It must not be set
    /// lower while leases with a longer ttl are held.
    ///
    /// # Errors
    /// `Invalid` for less than a millisecond.
    pub fn max_ttl(mut self, max_ttl: Duration) -> Result<Self, Error> {
        if max_ttl < Duration::from_millis(1) {
            return Err(Error::invalid(format!(
                "max_ttl refused: expected at least one millisecond max_ttl={max_ttl:?}"
            )));
        }
        self.settings.max_ttl = Some(max_ttl);
        Ok(self)
    }

    /// Returns the SQL that would be sent, for `psql`.
    pub fn sql(&self) -> String {
        self.address.schema.sql(self.settings, MAX_TTL)
    }

    /// Makes what is missing, in one transaction. It needs the permission to create a schema in the database, or to own
    /// it.
    ///
    /// # Errors
    /// The errors of a store's requests; `Denied` also if the schema, or a table or function in it, belongs to another
    /// role that is not a superuser. After an error nothing was changed. If it timed out the outcome is unknown: run it
    /// again.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the outcome unknown: run it again.
    pub async fn run(&self, limit: Duration) -> Result<(), Error> {
        let mut locked = None;
        let making = async {
            loop {
                match self.send(limit).await {
                    // The server waits for a lock for a second only, and another run of this may take longer.
                    Err(failure) if failure.is_of_lock() => locked = Some(failure),
                    made => return made,
                }
            }
        };
        let made = timeout(limit, making).await;
        let made = made.unwrap_or_else(|_| Err(locked.unwrap_or(Failure::Silent)));
        made.map_err(|failure| failure.during("init", format_args!("store={}", self.address)))
    }

    async fn send(&self, limit: Duration) -> Result<(), Failure> {
        let opened = connect::open(&self.address, limit, &GivenUp::default()).await?;
        let Opened {
            client, connection, ..
        } = opened;
        let sql = self.sql();
        let sent = client.batch_execute(&sql);
        let sent = tokio::select! {
            sent = sent => sent,
            ended = connection => match ended {
                Ok(()) => return Err(Failure::Silent),
                Err(error) => Err(error),
            },
        };
        sent.map_err(|error| Failure::of_request(&error))
    }
}

/// Makes the tables of the store at a URL whose scheme is ours.
pub(in crate::store) async fn init_postgres(
    url: &str,
    settings: TableSettings,
    limit: Duration,
) -> Result<(), Error> {
    setup(url, settings)?.run(limit).await
}

/// Returns the SQL that makes them.
pub(in crate::store) fn postgres_sql(url: &str, settings: TableSettings) -> Result<String, Error> {
    Ok(setup(url, settings)?.sql())
}

fn setup(url: &str, settings: TableSettings) -> Result<Setup, Error> {
    let setup = Setup::new(url)?;
    match settings.max_ttl {
        Some(max_ttl) => setup.max_ttl(max_ttl),
        None => Ok(setup),
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup")
            .field("address", &self.address)
            .field("settings", &self.settings)
            .finish()
    }
}
