//! Leases in a table of a MySQL or MariaDB database: a team that has one runs nothing for them.
//!
//! ```no_run
//! # #[tokio::main]
//! # async fn main() -> Result<(), leasehold::Error> {
//! use leasehold::{Client, store::mysql};
//!
//! // Once: leasehold init --store mysql://...
//! let store = mysql::open("mysql://jobs:PASSWORD@db/jobs").await?;
//! let client = Client::builder().store(store).build().await?;
//! let lease = client.acquire("nightly").await?;
//! # drop(lease);
//! # Ok(())
//! # }
//! ```
//!
//! The protocol is that of [`record`](super::record): a row a name, changed by single statements on the version that was
//! read, whose age the server's own clock tells. The wire, what a failover costs, and what proxies and clusters need are in
//! `README.md` next to the sources.
//!
//! # URLs
//! `mysql://USER:PASSWORD@HOST:PORT,HOST/DATABASE?PARAMETERS`, or `mariadb://`. Of several hosts the first one that
//! accepts writes is used. The port is 3306 unless it is given; without a password that of the variable `MYSQL_PWD` is
//! used. TLS is on, and the server's certificate is checked, unless all hosts are of this machine.
//!
//! - `sslmode`: `require` or `disable`.
//! - `ca`, `cert`, `key`, `server_name`: the certificates, as [`Tls`](super::Tls) has them, with the variables of the
//!   environment.
//! - `socket`: the path of the socket of a server on this machine, instead of a host.
//! - `skew`: the most by which the clocks of the servers differ (default: `1s`).
//! - `poll`: the interval at which a waiting client polls (default: `100ms`).
//!
//! # Rights
//! The user needs `SELECT`, `INSERT`, `UPDATE` and `DELETE` on the table `leasehold_record`. Who has them can take any name.
//!
//! # Limits
//! Replication is asynchronous unless a cluster does it: a failover can lose a grant, and then only a
//! [fence](crate::fence) protects. Nothing tells a waiting client that a name was freed: it polls ten times a second. Each
//! renewal is a write that is flushed to disk, ten at a time.

mod address;
mod connection;
mod failure;
mod hazards;
mod statements;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use uuid::Uuid;

use self::address::Address;
use self::connection::{Connections, Rows, is_read_only, open as open_server};
use self::failure::{DUPLICATE, Ended, read_only};
use super::kit::backend::Failing as _;
use super::record::{
    Expiry, Failure, MARK, Put, Record, Records, Register, Seen, Traits, Version, Versioned,
};
use super::{Hazard, Member, MemberState, Notices, Purpose, TableSettings};
use crate::error::{Error, ErrorKind};
use crate::store::Sent;
use crate::telemetry::ConnectionPurpose;

/// The kind of this store in its facts and in metrics.
const KIND: &str = "mysql";
/// The step of the server's clock.
const GRAIN: Duration = Duration::from_micros(1);

/// The leases of a database.
#[derive(Debug)]
pub struct Mysql {
    address: Arc<Address>,
    connections: Connections,
}

/// Opens the leases of a database. It reads the files of the certificates, and asks no server.
///
/// # Errors
/// `Invalid` for a URL out of order, and for certificates that cannot be read.
///
/// # Cancel safety
/// Dropping the future leaves nothing behind.
pub async fn open(url: &str) -> Result<Records<Mysql>, Error> {
    Ok(Records::new(Mysql::at(url).await?))
}

/// Makes the table, if it is missing.
pub(crate) async fn init(url: &str, settings: TableSettings, limit: Duration) -> Result<(), Error> {
    check_settings(settings)?;
    let mysql = Mysql::at(url).await?;
    let made = async {
        mysql.connections.ask(statements::TABLE).await?;
        // Also one that was there, and is of another form.
        mysql.read(MARK).await.map(drop)
    };
    let made = tokio::time::timeout(limit, made).await;
    let silent = |_| {
        Err(Failure::new(
            ErrorKind::TimedOut,
            Sent::Perhaps,
            "no answer in time",
        ))
    };
    let made = made.unwrap_or_else(silent);
    made.map_err(|failure| failure.during("init", format_args!("store={}", mysql.address)))
}

/// Returns the SQL that makes the table.
pub(crate) fn init_script(url: &str, settings: TableSettings) -> Result<String, Error> {
    check_settings(settings)?;
    Address::parse(url)?;
    Ok(format!("{};\n", statements::TABLE))
}

fn check_settings(settings: TableSettings) -> Result<(), Error> {
    match settings.max_ttl {
        None => Ok(()),
        Some(_) => Err(Error::invalid(
            "init refused: a table in MySQL has no longest ttl; expected no settings",
        )),
    }
}

impl Mysql {
    async fn at(url: &str) -> Result<Self, Error> {
        let url = url.to_owned();
        let parsed = tokio::task::spawn_blocking(move || Address::parse(&url)).await;
        let address = parsed.map_err(|source| {
            let what = "open failed: the runtime of this call ends store=mysql";
            Error::new(ErrorKind::Closed, what).with_source(source)
        })?;
        Ok(Self::new(Arc::new(address?), ConnectionPurpose::Requests))
    }

    fn new(address: Arc<Address>, purpose: ConnectionPurpose) -> Self {
        Self {
            connections: Connections::new(address.clone(), purpose),
            address,
        }
    }

    /// Carries a change out that makes a new version. Without a changed row another one was there, or the server takes no
    /// writes any more, as the next read tells.
    async fn change(&self, sql: String, new: Version) -> Result<Put, Failure> {
        match self.connections.ask(sql).await {
            Ok(Rows { changed: 1, .. }) => Ok(Put::Done(new)),
            Ok(_) => Ok(Put::Conflict),
            Err(Ended::Refused(refusal)) if refusal.code == DUPLICATE => Ok(Put::Conflict),
            Err(ended) => Err(ended.into()),
        }
    }
}

/// Returns a version that no write had, on whichever server: after a failover that lost some, a count of them would come
/// again.
fn new_version() -> Version {
    Uuid::new_v4().simple().to_string()
}

fn micros(time: i64) -> Duration {
    Duration::from_micros(time.try_into().unwrap_or_default())
}

fn versioned(version: String, record: &[u8], written_us: i64) -> Result<Versioned, Failure> {
    let record = Record::from_text(record)?;
    Ok(Versioned::new(version, record, Some(micros(written_us))))
}

impl Register for Mysql {
    fn traits(&self) -> Traits {
        let [skew, grain] = [self.address.skew, GRAIN];
        let mut traits = Traits::new(KIND, Expiry::Counted { skew, grain });
        traits.look_every = self.address.look_every;
        traits
    }

    fn location(&self) -> &dyn fmt::Display {
        &*self.address
    }

    async fn read(&self, key: &str) -> Result<Seen, Failure> {
        type Columns = (bool, i64, Option<String>, Option<Vec<u8>>, Option<i64>);
        let answered = self.connections.ask(statements::read(key)).await?;
        let (is_writable, now_us, version, record, written_us): Columns = answered.first()?;
        if !is_writable {
            self.connections.leave();
            return Err(read_only("the server"));
        }
        let record = match (version, record, written_us) {
            (Some(version), Some(record), Some(written_us)) => {
                Some(versioned(version, &record, written_us)?)
            }
            _ => None,
        };
        Ok(Seen::new(record, Some(micros(now_us))))
    }

    async fn put(
        &self,
        key: &str,
        on: Option<&Version>,
        record: &Record,
        _: Option<Duration>,
    ) -> Result<Put, Failure> {
        let (new, record) = (new_version(), record.to_text());
        let sql = match on {
            Some(on) => statements::update(key, on, &new, &record),
            None => statements::insert(key, &new, &record),
        };
        self.change(sql, new).await
    }

    async fn extend(
        &self,
        key: &str,
        on: &Version,
        record: &Record,
        lasts: Duration,
    ) -> Result<Put, Failure> {
        self.put(key, Some(on), record, Some(lasts)).await
    }

    async fn remove(&self, key: &str, on: &Version) -> Result<Put, Failure> {
        self.change(statements::delete(key, on), Version::new())
            .await
    }

    async fn list(
        &self,
        prefix: &str,
        before: Option<Duration>,
    ) -> Result<Vec<(String, Versioned)>, Failure> {
        let answered = self
            .connections
            .ask(statements::list(prefix, before))
            .await?;
        let rows: Vec<(String, String, Vec<u8>, i64)> = answered.columns()?;
        let rows = rows.into_iter();
        let named = rows.map(|(name, version, record, written_us)| {
            Ok((name, versioned(version, &record, written_us)?))
        });
        named.collect()
    }

    async fn time(&self) -> Result<Option<Duration>, Failure> {
        let answered = self.connections.ask(statements::time()).await?;
        answered.first().map(|now_us| Some(micros(now_us)))
    }

    async fn notices(&self) -> Result<Option<Box<dyn Notices>>, Failure> {
        Ok(None)
    }

    async fn hazards(&self) -> Result<Vec<Hazard>, Failure> {
        hazards::all(self).await
    }

    async fn members(&self) -> Result<Vec<Member>, Failure> {
        let reads = self.address.servers.iter().map(async |server| {
            let shown = server.to_string();
            match open_server(&self.address, server).await {
                Ok((_, says)) => {
                    let state = match is_read_only(&says) {
                        true => MemberState::Standby,
                        false => MemberState::Up,
                    };
                    Ok(Member::new(shown, state).with_version(hazards::version(&says)))
                }
                Err(failure) if failure.kind().is_transient() => {
                    Ok(Member::new(shown, MemberState::Down))
                }
                Err(failure) => Err(failure),
            }
        });
        join_all(reads).await.into_iter().collect()
    }

    async fn on_own_connection(&self, purpose: Purpose) -> Result<Self, Failure> {
        let purpose = match purpose {
            Purpose::Watchdog => ConnectionPurpose::Watchdog,
            Purpose::Waiting => ConnectionPurpose::Requests,
        };
        Ok(Self::new(self.address.clone(), purpose))
    }

    async fn close(&self) {
        self.connections.close();
    }
}
