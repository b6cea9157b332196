//! The address of the servers: a URL, checked once, and shown without its secrets ever after.

use std::fmt;
use std::time::Duration;

use crate::error::Error;
use crate::name;
use crate::percent;
use crate::store::kit::server_url::{Reason, ServerUrl};

/// The port on which servers listen by default.
const PORT: u16 = 2181;
/// The node that has all names by default.
const PREFIX: &str = "leasehold";
/// Requested time-out of a session: the maximum that an ensemble grants with the usual settings.
const SESSION: Duration = Duration::from_secs(40);

/// How long a name's last token is remembered after it was freed. To a server that lags behind for longer, a name that
/// was swept looks as if it was never granted; the ensemble excludes a server that lags for ten seconds.
const TOKEN_MEMORY: Duration = Duration::from_secs(60 * 60);

/// The parameters that a URL can have.
const PARAMETERS: &[&str] = &["prefix", "session"];

/// The servers' addresses, the login, and the settings that a URL can have.
pub(crate) struct Address {
    /// Each `host:port`.
    pub(super) servers: Vec<String>,
    /// `user:password`.
    pub(super) login: Option<String>,
    /// Empty, or a path without a slash at its end.
    pub(super) chroot: String,
    pub(super) prefix: String,
    pub(super) session: Duration,
    /// How long a name's last token is remembered after it was freed.
    pub(super) token_memory: Duration,
}

impl Address {
    /// Reads a URL.
    ///
    /// # Errors
    /// `Invalid`; the message has no part of the URL that could be a secret.
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let read = Self::read(url).map_err(|why| refused(&why));
        let address = read?;
        name::check("prefix", &address.prefix)?;
        Ok(address)
    }

    fn read(url: &str) -> Result<Self, Reason> {
        let read = ServerUrl::read(url)?;
        if read.scheme != "zookeeper" {
            return Err("it is not a URL of ZooKeeper".into());
        }
        read.expect_only(PARAMETERS)?;
        if read.hosts.iter().any(|(host, _)| host.is_empty()) {
            return Err("it names no host".into());
        }
        let endpoints = read.endpoints(PORT);
        let servers = endpoints.iter();
        let prefix = read.parameter("prefix").unwrap_or(PREFIX);
        Ok(Self {
            servers: servers.map(ToString::to_string).collect(),
            login: login(&read)?,
            chroot: chroot(&read.path)?,
            prefix: prefix.into(),
            session: read.parameter("session").map_or(Ok(SESSION), session)?,
            token_memory: TOKEN_MEMORY,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (servers, chroot) = (self.servers.join(","), percent::encode(&self.chroot));
        let prefix = percent::encode(&self.prefix);
        write!(f, "zookeeper://{servers}{chroot}?prefix={prefix}")
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn login(read: &ServerUrl) -> Result<Option<String>, Reason> {
    match (&read.user, &read.password) {
        (None, None) => Ok(None),
        (Some(user), Some(password)) if !user.contains(':') => {
            Ok(Some(format!("{user}:{password}")))
        }
        _ => Err("its user or its password is missing, or its user has a colon".into()),
    }
}

fn chroot(path: &str) -> Result<String, Reason> {
    let path = path.trim_end_matches('/');
    let is_bad = |part: &str| {
        part.is_empty()
            || part == "."
            || part == ".."
            || part.trim() != part
            || part.chars().any(char::is_control)
    };
    match path {
        "" => Ok(String::new()),
        _ if path.split('/').any(is_bad) => Err("its path is no path of a node".into()),
        _ => Ok(format!("/{path}")),
    }
}

/// Reads the time-out of a session.
fn session(text: &str) -> Result<Duration, Reason> {
    let time = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(ms), _) => ms.parse().ok().map(Duration::from_millis),
        (None, Some(seconds)) => seconds.parse().ok().map(Duration::from_secs),
        (None, None) => None,
    };
    let sound = Duration::from_secs(1)..=Duration::from_secs(86_400);
    let time = time.filter(|time| sound.contains(time));
    Ok(time.ok_or("its session is no time from 1s to 86400s")?)
}

fn refused(why: &str) -> Error {
    Error::invalid(format!(
        "store URL refused: {why}; expected zookeeper://[USER:PASSWORD@]HOST[:PORT][,HOST...][/CHROOT]\
         [?prefix=NAME&session=40s], with special characters as %XX"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::kit::server_url::assert_listed;

    fn parse(url: &str) -> Address {
        Address::parse(url).expect("a URL in order")
    }

    #[test]
    fn a_url_is_taken_apart() {
        let address = parse("zookeeper://me:se%40cret@a,b:2182,[::1]:9/app/x?session=9s&prefix=p");
        assert_eq!(address.servers, ["a:2181", "b:2182", "[::1]:9"]);
        assert_eq!(address.login.as_deref(), Some("me:se@cret"));
        assert_eq!((&*address.chroot, &*address.prefix), ("/app/x", "p"));
        assert_eq!(address.session, Duration::from_secs(9));
        let address = parse("zookeeper://a/");
        assert_eq!((&*address.chroot, &*address.prefix), ("", "leasehold"));
        assert_eq!(address.session, Duration::from_secs(40));
    }

    #[test]
    fn it_is_shown_without_its_secrets() {
        let address = parse("zookeeper://me:secret@a/app");
        for shown in [address.to_string(), format!("{address:?}")] {
            assert_eq!(shown, "zookeeper://a:2181/app?prefix=leasehold");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_without_repeating_it() {
        for url in [
            "redis://secret",
            "zookeeper://",
            "zookeeper://secret@a",
            "zookeeper://:secret@a",
            "zookeeper://me:secret%4@a",
            "zookeeper://a:0",
            "zookeeper://::1",
            "zookeeper://a//b",
            "zookeeper://a/..",
            "zookeeper://a?session=0s",
            "zookeeper://a?session=1h",
            "zookeeper://a?secret",
            "zookeeper://a#secret",
        ] {
            let error = Address::parse(url).expect_err(url).to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn the_page_of_the_store_lists_each_parameter() {
        assert_listed("zookeeper", PARAMETERS);
    }
}
