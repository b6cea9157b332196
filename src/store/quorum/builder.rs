//! The settings of a quorum, checked all at once.

use std::fmt;
use std::time::Duration;

use super::KIND;
use super::members::{Members, QuorumMember};
use super::store::Quorum;
use crate::error::Error;
use crate::store::Tls;
use crate::store::redis::{MAX_TTLS, Redis, each_server};

/// The prefix of keys, if none is set.
const PREFIX: &str = "leasehold";
/// The longest time that a handshake may take, as with one server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Builds a [`Quorum`]. [`Quorum::builder`] makes one.
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    /// They contain the passwords.
    urls: Vec<String>,
    prefix: String,
    max_ttl: Option<Duration>,
    connect_timeout: Duration,
    tls: Tls,
}

impl Builder {
    pub(super) fn of_members(urls: Vec<String>) -> Self {
        Self {
            urls,
            prefix: PREFIX.into(),
            max_ttl: None,
            connect_timeout: CONNECT_TIMEOUT,
            tls: Tls::new(),
        }
    }

    /// Returns a builder for the servers of one URL, `redis+quorum://HOST,HOST,HOST[?max_ttl=60s]`.
    ///
    /// # Errors
    /// `Invalid` for a URL that cannot be used. The message contains no secrets.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        let (urls, settings) =
            each_server(url, KIND).map_err(|error| refused(&error.to_string()))?;
        if settings.acknowledged_by.is_some() {
            return Err(refused("acknowledged_by is of no use in a quorum"));
        }
        let mut builder = Self::of_members(urls);
        builder.max_ttl = settings.max_ttl;
        Ok(builder)
    }

    /// Sets what all keys begin with (default: `leasehold`). The rules for names hold.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the longest ttl of a lease. [`Quorum::init`] writes it on the members (default: 60 s); a client that sets
    /// another one than they have gets `Misconfigured`, and one that sets none takes theirs. A claim with a longer ttl
    /// is `Invalid`.
    ///
    /// It is also the time for which a member that was restarted takes no part.
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.max_ttl = Some(max_ttl);
        self
    }

    /// Sets how long making a connection may take (default: 2 s, at most 20 s).
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// Sets how TLS is done, where the URLs do not say it. They must use TLS.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// Checks all settings and makes the store. The only I/O is that certificate files are read.
    ///
    /// # Errors
    /// `Invalid`, with the setting that is refused.
    pub fn build(self) -> Result<Quorum, Error> {
        let count = self.urls.len();
        if count < 3 || count.is_multiple_of(2) {
            return Err(Error::invalid(format!(
                "quorum refused: expected an odd number of members, at least 3 members={count}"
            )));
        }
        if let Some(refused) = self.max_ttl.filter(|max_ttl| !MAX_TTLS.contains(max_ttl)) {
            return Err(Error::invalid(format!(
                "max_ttl refused: expected {:?} to {:?} max_ttl={refused:?}",
                MAX_TTLS.start(),
                MAX_TTLS.end()
            )));
        }
        let mut members: Vec<QuorumMember> = Vec::new();
        for url in &self.urls {
            let server = Redis::builder(url)
                .prefix(&*self.prefix)
                .connect_timeout(self.connect_timeout)
                .tls(self.tls.clone());
            let member = QuorumMember::new(server)?;
            let place = &member.server.place;
            if members.iter().any(|other| other.server.place == *place) {
                return Err(Error::invalid(format!(
                    "quorum refused: expected different members member={place}"
                )));
            }
            members.push(member);
        }
        let members = Members::new(members);
        Ok(Quorum::of(members, self.max_ttl, self.connect_timeout))
    }
}

/// Makes the error for a URL that cannot be used, of which Redis' part has said what is wrong.
fn refused(why: &str) -> Error {
    let why = why.split("; expected redis").next().unwrap_or_default();
    let why = why.strip_prefix("store URL refused: ").unwrap_or(why);
    Error::invalid(format!(
        "store URL refused: {why}; expected redis+quorum://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT],HOST[:PORT][/DB][?max_ttl=60s], \
         rediss+quorum:// with TLS, with special characters as %XX"
    ))
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("members", &self.urls.len())
            .field("prefix", &self.prefix)
            .field("max_ttl", &self.max_ttl)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}
