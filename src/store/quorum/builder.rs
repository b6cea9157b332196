//! The settings of a quorum, checked all at once.

use std::time::Duration;

use super::KIND;
use super::members::{Members, QuorumMember};
use super::store::Quorum;
use crate::error::Error;
use crate::store::Tls;
use crate::store::redis::{self, check_max_ttl};

/// Builds a [`Quorum`]. [`Quorum::builder`] makes one.
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    members: Vec<redis::Builder>,
    max_ttl: Option<Duration>,
}

impl Builder {
    const fn of_members(members: Vec<redis::Builder>, max_ttl: Option<Duration>) -> Self {
        Self { members, max_ttl }
    }

    /// Returns a builder for the servers of one URL, `redis+quorum://HOST,HOST,HOST[?max_ttl=60s]`.
    ///
    /// # Errors
    /// `Invalid` for a URL that cannot be used. The message contains no secrets.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        let each = redis::each_server(url, KIND);
        let (urls, settings) = each.map_err(|error| refused(&error.to_string()))?;
        let members = urls
            .into_iter()
            .map(|url| redis::Builder::new(Ok(url), None));
        match settings.acknowledged_by {
            Some(_) => Err(refused("acknowledged_by is of no use in a quorum")),
            None => Ok(Self::of_members(members.collect(), settings.max_ttl)),
        }
    }

    /// Sets what all keys begin with (default: `leasehold`). The rules for names hold.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        self.each(|member| member.prefix(&*prefix))
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
    pub fn connect_timeout(self, connect_timeout: Duration) -> Self {
        self.each(|member| member.connect_timeout(connect_timeout))
    }

    /// Sets how TLS is done, where the URLs do not say it. They must use TLS.
    pub fn tls(self, tls: Tls) -> Self {
        self.each(|member| member.tls(tls.clone()))
    }

    fn each(mut self, set: impl FnMut(redis::Builder) -> redis::Builder) -> Self {
        self.members = self.members.into_iter().map(set).collect();
        self
    }

    /// Checks all settings and makes the store. The only I/O is that certificate files are read.
    ///
    /// # Errors
    /// `Invalid`, with the setting that is refused.
    pub fn build(self) -> Result<Quorum, Error> {
        let count = self.members.len();
        if count < 3 || count.is_multiple_of(2) {
            return Err(Error::invalid(format!(
                "quorum refused: expected an odd number of members, at least 3 members={count}"
            )));
        }
        check_max_ttl(self.max_ttl)?;
        let mut members: Vec<QuorumMember> = Vec::new();
        for server in self.members {
            let member = QuorumMember::new(server)?;
            let place = &member.server.place;
            if members.iter().any(|other| other.server.place == *place) {
                return Err(Error::invalid(format!(
                    "quorum refused: expected different members member={place}"
                )));
            }
            members.push(member);
        }
        let connect_timeout = members[0].server.connect_timeout();
        Ok(Quorum::of(
            Members::new(members),
            self.max_ttl,
            connect_timeout,
        ))
    }
}

impl Quorum {
    /// Makes the store at this URL, `redis+quorum://HOST,HOST,HOST`, with the default settings.
    ///
    /// # Errors
    /// `Invalid` for a URL that cannot be used. The message contains no secrets.
    pub fn open(url: &str) -> Result<Self, Error> {
        Builder::from_url(url)?.build()
    }

    /// Returns a builder for the store on the servers at these URLs, each of which is that of a Redis server alone.
    pub fn builder<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> Builder {
        let members = urls
            .into_iter()
            .map(|url| redis::Redis::builder(&url.into()));
        Builder::of_members(members.collect(), None)
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
