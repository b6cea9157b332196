//! What a storage brings to be a store of leases: records, each with a version, and a put that succeeds only on the
//! version that was read.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use super::Record;
use crate::error::{Error, ErrorKind};
use crate::store::kit::backend::Failing;
use crate::store::{Hazard, Member, Notices, Purpose, Sent};

/// A storage of records with a compare-and-set. [`Records`](super::Records) makes a store of it.
///
/// A record has a key: a name, or [`MARK`](super::MARK), which is no name. How a key is written in the storage is its
/// own matter, as long as no two keys are written alike.
///
/// # Guarantees
/// 1. A put is carried out only if the record has the version that is given, or there is none and none is given; it
///    changes the version. No version of a key comes again, also not after a removal.
/// 2. A read shows every put that was answered before it was sent. A read from a replica that may lag breaks it.
/// 3. A put that may have been carried out is not answered with [`Put::Conflict`].
///
/// # Errors
/// A [`Failure`] says whether a put or a removal may have been carried out. In doubt it is [`Sent::Perhaps`]. A
/// storage that refuses because it has too much to do is [`Unavailable`](ErrorKind::Unavailable).
///
/// # Cancel safety
/// Each call is given up by dropping its future: its outcome is unknown then.
///
/// No method is defaulted: a wrapper that forgets one must not compile.
pub trait Register: fmt::Debug + Send + Sync + 'static {
    /// Returns what the engine has to know about the storage.
    fn traits(&self) -> Traits;

    /// Returns where the records are, for people to read and without secrets.
    fn location(&self) -> &dyn fmt::Display;

    /// Reads the record of this key.
    fn read(&self, key: &str) -> impl Future<Output = Result<Seen, Failure>> + Send;

    /// Writes the record of this key if it still has the version `on`; if that is `None`, if there is no record. The
    /// record matters for `lasts` from now: a storage that ends records by itself may remove it after that time, and no
    /// earlier. `None`: it matters for ever.
    fn put(
        &self,
        key: &str,
        on: Option<&Version>,
        record: &Record,
        lasts: Option<Duration>,
    ) -> impl Future<Output = Result<Put, Failure>> + Send;

    /// Begins the record's ttl anew, if it still has the version `on`. Where nothing less does it, this is a
    /// [`put`](Self::put).
    fn extend(
        &self,
        key: &str,
        on: &Version,
        record: &Record,
        lasts: Duration,
    ) -> impl Future<Output = Result<Put, Failure>> + Send;

    /// Removes the record if it still has the version `on`. Called only if [`removes`](Traits::removes).
    fn remove(&self, key: &str, on: &Version) -> impl Future<Output = Result<Put, Failure>> + Send;

    /// Reads the records of all keys with this prefix, without those that were written after `before` by the storage's
    /// clock, where that is given and the storage knows it.
    fn list(
        &self,
        prefix: &str,
        before: Option<Duration>,
    ) -> impl Future<Output = Result<Vec<(String, Versioned)>, Failure>> + Send;

    /// Returns the time of the storage's clock since 1970, rounded down, by a request of its own. `None` where each
    /// [`read`](Self::read) tells it, or the storage has no clock.
    fn time(&self) -> impl Future<Output = Result<Option<Duration>, Failure>> + Send;

    /// Opens a subscription to notices that names were freed. `None` if the storage has none.
    fn notices(&self) -> impl Future<Output = Result<Option<Box<dyn Notices>>, Failure>> + Send;

    /// Returns the faults of the set-up that weaken the promises.
    fn hazards(&self) -> impl Future<Output = Result<Vec<Hazard>, Failure>> + Send;

    /// Returns the servers of the storage.
    fn members(&self) -> impl Future<Output = Result<Vec<Member>, Failure>> + Send;

    /// Returns the same storage on connections of its own, made on the calling runtime.
    fn on_own_connection(
        &self,
        purpose: Purpose,
    ) -> impl Future<Output = Result<Self, Failure>> + Send
    where
        Self: Sized;

    /// Closes the connections.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// The properties of a storage that the engine has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traits {
    /// The kind of store, in one lower-case word: the value of the label `store` in metrics.
    pub kind: &'static str,
    /// What ends a record that is not renewed.
    pub expiry: Expiry,
    /// Whether a record can be removed on a version. Otherwise an old one is emptied.
    pub removes: bool,
    /// Whether the storage gives notices that names were freed.
    pub has_notices: bool,
    /// The shortest ttl that the storage can keep.
    pub least_ttl: Duration,
    /// Interval between polls of a waiting client where the storage gives no notices.
    pub look_every: Duration,
}

impl Traits {
    /// Describes a storage of this kind that removes records and gives no notices, which a waiting client reads once a
    /// second.
    pub const fn new(kind: &'static str, expiry: Expiry) -> Self {
        Self {
            kind,
            expiry,
            removes: true,
            has_notices: false,
            least_ttl: Duration::ZERO,
            look_every: Duration::from_secs(1),
        }
    }
}

/// What ends a record without renewals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// Each client, as soon as it has seen the record unchanged for its ttl; and the storage's own clock, for a client
    /// that did not see it before, `skew` later.
    Counted {
        /// The most by which the clocks of the storage's servers differ. With a greater difference a lease can be
        /// granted before its holder has lost it.
        skew: Duration,
        /// Resolution of the clock: one second where times are in whole seconds.
        grain: Duration,
    },
    /// The storage itself, which then shows the record as free. It is at most this much late, and never early.
    ByStorage {
        /// Maximum time past its ttl that a record is still there.
        late_by: Duration,
    },
}

impl Expiry {
    /// Returns the maximum time past its ttl that a record counts for a client that did not see it before.
    pub(super) const fn grace(self) -> Duration {
        match self {
            Self::ByStorage { late_by } => late_by,
            Self::Counted { skew, grain } => skew.saturating_add(grain).saturating_add(grain),
        }
    }
}

/// The version of a record: what the storage compares.
pub type Version = String;

/// A record and what the storage says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Versioned {
    /// Its version.
    pub version: Version,
    /// The record.
    pub record: Record,
    /// The time of its last write by the storage's own clock since 1970, rounded down to its grain. `None` if the
    /// storage does not tell it.
    pub written_at: Option<Duration>,
}

impl Versioned {
    /// Makes a record with this version.
    pub const fn new(version: Version, record: Record, written_at: Option<Duration>) -> Self {
        Self {
            version,
            record,
            written_at,
        }
    }
}

/// The result of a read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Seen {
    /// The record, if there is one.
    pub record: Option<Versioned>,
    /// The time of the storage's clock since 1970 when it answered, rounded down, if the answer tells it.
    pub time: Option<Duration>,
}

impl Seen {
    /// Makes what a read saw.
    pub const fn new(record: Option<Versioned>, time: Option<Duration>) -> Self {
        Self { record, time }
    }
}

/// The answer to a put or a removal.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a conflict changes nothing"]
pub enum Put {
    /// It was carried out, and the record has this version now. After a removal the version has no meaning.
    Done(Version),
    /// The record has another version, and nothing was changed.
    Conflict,
}

/// The failure of a request to a storage.
#[derive(Debug)]
pub struct Failure {
    kind: ErrorKind,
    sent: Sent,
    what: String,
    advice: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
    made: Option<Error>,
}

impl Failure {
    /// Makes a failure with the cause in a few words. In doubt `sent` is [`Sent::Perhaps`].
    pub fn new(kind: ErrorKind, sent: Sent, what: impl Into<String>) -> Self {
        Self {
            kind,
            sent,
            what: what.into(),
            advice: None,
            source: None,
            made: None,
        }
    }

    /// Makes the failure of a request that was refused and changed nothing.
    pub fn answered(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self::new(kind, Sent::Answered, what)
    }

    /// Returns the same failure with the remedy for it.
    #[must_use = "returns the failure with the remedy"]
    pub fn with_advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Returns the same failure with its cause.
    #[must_use = "returns the failure with its cause"]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns the same failure as that of something which comes before a put, such as a read: nothing that changes the
    /// storage was sent.
    #[must_use = "returns the failure before anything was sent"]
    pub const fn before_it_was_sent(mut self) -> Self {
        self.sent = Sent::Never;
        self
    }

    pub(super) fn closed() -> Self {
        Self::new(ErrorKind::Closed, Sent::Never, "it was closed")
    }

    pub(super) fn silent() -> Self {
        Self::new(ErrorKind::TimedOut, Sent::Perhaps, "no answer in time")
    }
}

/// A complete error: the request is refused.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            made: Some(error.clone()),
            ..Self::answered(error.kind(), error.to_string())
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl StdError for Failure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.source.as_ref()?;
        Some(&**source)
    }
}

impl Failing for Failure {
    fn kind(&self) -> ErrorKind {
        self.kind
    }

    fn sent(&self) -> Sent {
        self.sent
    }

    fn made(&self) -> Option<&Error> {
        self.made.as_ref()
    }

    fn advice(&self) -> Option<String> {
        self.advice.clone()
    }
}
