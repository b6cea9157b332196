//! Leases in an etcd cluster: a team that already runs one for its databases or its Kubernetes can use it for its jobs,
//! too.
//!
//! ```no_run
//! # #[tokio::main]
//! # async fn main() -> Result<(), leasehold::Error> {
//! use leasehold::{Client, store::etcd};
//!
//! let store = etcd::open("etcd://etcd-1,etcd-2,etcd-3").await?;
//! let client = Client::builder().store(store).build().await?;
//! let lease = client.acquire("nightly").await?;
//! # drop(lease);
//! # Ok(())
//! # }
//! ```
//!
//! The protocol is that of [`record`](super::record), with records that end by themselves: each is a key with a lease
//! of etcd, whose time the leader counts. The wire, the failures and what etcd needs are in `README.md` next to the
//! sources.
//!
//! # URLs
//! `etcd://USER:PASSWORD@HOST:PORT,HOST:PORT?PARAMETERS`, with TLS `etcds://`. All servers are of one cluster: one is
//! used, and the next one when it fails. The port is 2379 unless it is given. Without a user none is needed, or the
//! certificate has its name.
//!
//! - `prefix`: what all keys begin with (default: `leasehold`); leases under different prefixes are unrelated.
//! - `ca`, `cert`, `key`, `server_name`: the certificates, for `etcds://`, as [`Tls`](super::Tls) has them, with the
//!   variables of the environment.
//!
//! # Rights
//! The user's role needs `readwrite` on the keys that begin with the prefix and a slash. Who has it can take any name.
//!
//! # Limits
//! Leases of etcd are in whole seconds: a ttl is rounded up, and 2 s is the least. A grant is two writes through the
//! log of the cluster, a renewal none. etcd keeps each version of a key until it is compacted: set
//! `--auto-compaction-retention`.

mod address;
mod connection;
mod failure;
mod hazards;
mod keys;
mod messages;
mod notices;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::address::Address;
use self::connection::{Connection, Ended};
use self::keys::{At, HeldRecord, Keyspace, end_of, seconds};
use self::messages::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, PutRequest, RangeRequest,
    RangeResponse, RequestOp, StatusRequest, StatusResponse, TxnRequest,
};
use super::kit::watches;
use super::record::{
    Expiry, Failure, Put, Record, Records, Register, Seen, Traits, Version, Versioned,
};
use super::{Hazard, Member, MemberState, Notices, Purpose};
use crate::error::{Error, ErrorKind};
use crate::store::Sent;
use crate::telemetry::ConnectionPurpose;

/// The kind of this store in its facts and in metrics.
const KIND: &str = "etcd";
/// The shortest lease that etcd gives with its usual settings.
const LEAST_TTL: Duration = Duration::from_secs(2);
/// Maximum delay of the end of a lease while the leader stays: etcd rounds it up to a second, and checks twice a
/// second.
const LATE_BY: Duration = Duration::from_secs(2);
/// Number of records in one answer to a list.
const PAGE: i64 = 500;
/// Time limit for the removal of a lease without a key, which ends by itself anyway.
const REVOKE_LIMIT: Duration = Duration::from_secs(2);

/// The leases of a cluster.
#[derive(Debug)]
pub struct Etcd {
    address: Arc<Address>,
    keys: Keyspace,
    connection: Arc<Connection>,
}

/// Opens the leases of a cluster. It reads the files of the certificates, and asks no server.
///
/// # Errors
/// `Invalid` for a URL out of order, and for certificates that cannot be read.
///
/// # Cancel safety
/// Dropping the future leaves nothing behind.
pub async fn open(url: &str) -> Result<Records<Etcd>, Error> {
    let url = url.to_owned();
    let parsed = tokio::task::spawn_blocking(move || Address::parse(&url)).await;
    let address = parsed.map_err(|source| {
        let what = "open failed: the runtime of this call ends store=etcd";
        Error::new(ErrorKind::Closed, what).with_source(source)
    })?;
    let address = Arc::new(address?);
    Ok(Records::new(Etcd::new(
        address,
        ConnectionPurpose::Requests,
    )))
}

impl Etcd {
    fn new(address: Arc<Address>, purpose: ConnectionPurpose) -> Self {
        Self {
            keys: Keyspace::new(&address.prefix),
            connection: Arc::new(Connection::new(address.clone(), Some(purpose))),
            address,
        }
    }

    /// Returns what each server says of itself, with its address.
    async fn conditions(&self) -> Vec<(String, Result<StatusResponse, Ended>)> {
        let asked = self.address.each_server().map(async |alone| {
            let server = alone.servers[0].to_string();
            let connection = Connection::new(Arc::new(alone), None);
            (server, connection.ask(&StatusRequest {}).await)
        });
        futures_util::future::join_all(asked.collect::<Vec<_>>()).await
    }

    /// Removes a lease without keys in the background.
    fn revoke(&self, id: i64) {
        let connection = self.connection.clone();
        tokio::spawn(async move {
            let revoke = LeaseRevokeRequest { id };
            let _ = tokio::time::timeout(REVOKE_LIMIT, connection.ask(&revoke)).await;
        });
    }

    /// Makes a lease of etcd for a record that ends after this many seconds. Returns its id and the leader's number.
    async fn grant(&self, seconds: i64) -> Result<(i64, i64), Failure> {
        // With a number of its own, so that a lost answer leaves a lease without a key, and nothing else.
        let id = i64::from_le_bytes(random()?) & i64::MAX;
        let granted = self
            .connection
            .ask(&LeaseGrantRequest { seconds, id })
            .await;
        let granted = granted.map_err(|ended| Failure::from(ended).before_it_was_sent())?;
        Ok((id, granted.header.unwrap_or_default().raft_term))
    }

    /// Carries these steps out if the name has this version. Returns the revision, or `None` after a conflict.
    async fn change(
        &self,
        key: &str,
        at: At,
        steps: Vec<RequestOp>,
    ) -> Result<Option<i64>, Failure> {
        let compare = self.keys.is_at(key, at);
        let transaction = TxnRequest { compare, steps };
        match self.connection.ask(&transaction).await {
            Ok(done) if done.succeeded => Ok(Some(done.header.unwrap_or_default().revision)),
            Ok(_) => Ok(None),
            Err(Ended::Refused(refusal)) if refusal.is_of_a_lease_that_ended() => Ok(None),
            Err(ended) => Err(ended.into()),
        }
    }

    /// Writes a record that ends by a lease of its own. A grant raises the mark in the same step.
    async fn put_held(&self, key: &str, at: At, record: &Record) -> Result<Put, Failure> {
        let seconds = seconds(record.ttl());
        let (lease, term) = self.grant(seconds).await?;
        let mut steps = vec![put(self.keys.held(key), record, lease)];
        if at.held.is_none() {
            steps.push(put(self.keys.mark(key), &Record::free(record.token), 0));
        }
        let done = self.change(key, at, steps).await;
        let unused = match (&done, at.held) {
            (Ok(Some(_)), before) => before.map(|held| held.lease),
            (Ok(None), _) => Some(lease),
            // It may be carried out yet.
            (Err(_), _) => None,
        };
        if let Some(unused) = unused {
            self.revoke(unused);
        }
        Ok(done?.map_or(Put::Conflict, |revision| {
            let mark = at.held.map_or(revision, |_| at.mark);
            let held = Some(HeldRecord {
                revision,
                lease,
                seconds,
                term,
            });
            Put::Done(At { held, mark }.to_string())
        }))
    }
}

fn random() -> Result<[u8; 8], Failure> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| {
        let what = "the operating system gives no random bits";
        Failure::new(ErrorKind::Misconfigured, Sent::Never, what).with_source(error)
    })?;
    Ok(bytes)
}

fn range(key: Vec<u8>) -> RangeRequest {
    RangeRequest {
        key,
        ..RangeRequest::default()
    }
}

fn put(key: Vec<u8>, record: &Record, lease: i64) -> RequestOp {
    let value = record.to_text().into();
    RequestOp {
        put: Some(PutRequest { key, value, lease }),
        ..RequestOp::default()
    }
}

impl Register for Etcd {
    fn traits(&self) -> Traits {
        let mut traits = Traits::new(KIND, Expiry::ByStorage { late_by: LATE_BY });
        traits.has_notices = true;
        traits.least_ttl = LEAST_TTL;
        traits
    }

    fn location(&self) -> &dyn fmt::Display {
        &*self.address
    }

    // Without `serializable`, so that a majority answers.
    async fn read(&self, key: &str) -> Result<Seen, Failure> {
        let steps = [self.keys.held(key), self.keys.mark(key)].map(|key| RequestOp {
            range: Some(range(key)),
            ..RequestOp::default()
        });
        let read = TxnRequest {
            compare: Vec::new(),
            steps: steps.into(),
        };
        let read = self.connection.ask(&read).await?.steps.into_iter();
        let mut found = read.map(|step| step.range.and_then(|range| range.kvs.into_iter().next()));
        let (held, mark) = (found.next().flatten(), found.next().flatten());
        let at = At {
            held: None,
            mark: mark.as_ref().map_or(0, |mark| mark.mod_revision),
        };
        let (at, record) = match (&held, &mark) {
            (Some(held), _) => {
                let (held, record) = HeldRecord::read(held)?;
                (
                    At {
                        held: Some(held),
                        ..at
                    },
                    record,
                )
            }
            (None, Some(mark)) => (at, keys::record(mark)?),
            (None, None) => return Ok(Seen::default()),
        };
        Ok(Seen::new(
            Some(Versioned::new(at.to_string(), record, None)),
            None,
        ))
    }

    // The mark has the last token for ever, so nothing else has to last.
    async fn put(
        &self,
        key: &str,
        on: Option<&Version>,
        record: &Record,
        _: Option<Duration>,
    ) -> Result<Put, Failure> {
        let at = At::of(on);
        if record.state.is_some() {
            return self.put_held(key, at, record).await;
        }
        let delete = RequestOp {
            delete: Some(range(self.keys.held(key))),
            ..RequestOp::default()
        };
        if self.change(key, at, vec![delete]).await?.is_none() {
            return Ok(Put::Conflict);
        }
        if let Some(held) = at.held {
            self.revoke(held.lease);
        }
        Ok(Put::Done(At { held: None, ..at }.to_string()))
    }

    async fn extend(
        &self,
        key: &str,
        on: &Version,
        record: &Record,
        lasts: Duration,
    ) -> Result<Put, Failure> {
        let Some(held) = At::of(Some(on)).held else {
            return Ok(Put::Conflict);
        };
        if seconds(record.ttl()) != held.seconds {
            return self.put(key, Some(on), record, Some(lasts)).await;
        }
        let kept = self
            .connection
            .ask(&LeaseKeepAliveRequest { id: held.lease })
            .await?;
        if kept.seconds <= 0 {
            return Ok(Put::Conflict);
        }
        // The lease outlives its key where an operator frees the name.
        let seen = self.connection.ask(&range(self.keys.held(key))).await?;
        if !seen.kvs.iter().any(|kv| kv.mod_revision == held.revision) {
            return Ok(Put::Conflict);
        }
        // A leader that stood still and wakes up ends the leases that it knew, although the next leader renewed them,
        // and may renew one for itself alone. So the record gets a lease of the current leader.
        let headers = [kept.header, seen.header];
        let is_of_one_leader = headers.into_iter().all(|header| {
            let term = header.unwrap_or_default().raft_term;
            term == held.term
        });
        match is_of_one_leader {
            true => Ok(Put::Done(on.clone())),
            false => self.put(key, Some(on), record, Some(lasts)).await,
        }
    }

    async fn remove(&self, _: &str, _: &Version) -> Result<Put, Failure> {
        let what = "etcd ends its records itself";
        Err(Failure::answered(ErrorKind::Misconfigured, what))
    }

    async fn list(
        &self,
        prefix: &str,
        _: Option<Duration>,
    ) -> Result<Vec<(String, Versioned)>, Failure> {
        let mut key = self.keys.held(prefix);
        let range_end = end_of(key.clone());
        let mut listed = Vec::new();
        loop {
            let page = RangeRequest {
                key: key.clone(),
                range_end: range_end.clone(),
                limit: PAGE,
            };
            let RangeResponse { kvs, more, .. } = self.connection.ask(&page).await?;
            for kv in &kvs {
                let (held, record) = HeldRecord::read(kv)?;
                let at = At {
                    held: Some(held),
                    mark: 0,
                };
                let name = self.keys.name(&kv.key).unwrap_or_default().to_owned();
                listed.push((name, Versioned::new(at.to_string(), record, None)));
            }
            match kvs.last() {
                Some(last) if more => key = [&last.key[..], b"\0"].concat(),
                _ => return Ok(listed),
            }
        }
    }

    async fn time(&self) -> Result<Option<Duration>, Failure> {
        Ok(None)
    }

    async fn notices(&self) -> Result<Option<Box<dyn Notices>>, Failure> {
        let leases = Arc::new(Self::new(self.address.clone(), ConnectionPurpose::Notices));
        let subscription = watches::subscribe(leases, notices::watch).await;
        Ok(Some(Box::new(subscription)))
    }

    async fn hazards(&self) -> Result<Vec<Hazard>, Failure> {
        self.all_hazards().await
    }

    async fn members(&self) -> Result<Vec<Member>, Failure> {
        let conditions = self.conditions().await.into_iter();
        let member = |(server, condition): (String, Result<StatusResponse, Ended>)| match condition
        {
            Ok(said) => {
                let version = Some(format!("etcd {}", said.version));
                Member::new(server, MemberState::Up).with_version(version)
            }
            Err(Ended::Refused(_)) => Member::new(server, MemberState::Up),
            Err(Ended::Failed(_)) => Member::new(server, MemberState::Down),
        };
        Ok(conditions.map(member).collect())
    }

    async fn on_own_connection(&self, purpose: Purpose) -> Result<Self, Failure> {
        let purpose = match purpose {
            Purpose::Watchdog => ConnectionPurpose::Watchdog,
            Purpose::Waiting => ConnectionPurpose::Requests,
        };
        Ok(Self::new(self.address.clone(), purpose))
    }

    async fn close(&self) {}
}
