//! The address of the servers: a URL, checked once, and shown without its secrets ever after.

use std::fmt;
use std::time::Duration;

use crate::error::Error;
use crate::name;
use crate::percent;
use crate::store::url::{STRAY_AT, has_stray_at};

/// The port on which servers listen by default.
const PORT: u16 = 2181;
/// The node that has all names, unless told otherwise.
const PREFIX: &str = "leasehold";
/// The time-out of a session that is asked for; what an ensemble grants at most with the usual settings.
const SESSION: Duration = Duration::from_secs(40);

/// The time for which a name's last token is remembered after it was freed.
const TOKEN_MEMORY: Duration = Duration::from_secs(60 * 60);

/// The servers' addresses, the login, and the settings that a URL can have.
pub(super) struct Address {
    servers: Vec<String>,
    login: Option<String>,
    /// Empty, or a path without a slash at its end.
    chroot: String,
    prefix: String,
    session: Duration,
    token_memory: Duration,
}

impl Address {
    /// Reads a URL.
    ///
    /// # Errors
    /// `Invalid`; the message has no part of the URL that could be a secret.
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let rest = url
            .strip_prefix("zookeeper://")
            .ok_or_else(|| refused("it is not a URL of ZooKeeper"))?;
        if has_stray_at(url) {
            return Err(refused(STRAY_AT));
        }
        if rest.contains('#') {
            return Err(refused("it has a part after '#'"));
        }
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, chroot) = match place.find('/') {
            Some(at) => place.split_at(at),
            None => (place, ""),
        };
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(read_login(login)?), hosts),
            None => (None, authority),
        };
        let mut address = Self {
            servers: hosts
                .split(',')
                .map(read_server)
                .collect::<Result<_, _>>()?,
            login,
            chroot: read_chroot(chroot)?,
            prefix: PREFIX.into(),
            session: SESSION,
            token_memory: TOKEN_MEMORY,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("prefix", prefix)) => {
                    address.prefix = decode(prefix)?;
                    name::check("prefix", &address.prefix)?;
                }
                Some(("session", time)) => address.session = read_time("session", time)?,
                Some(("token_memory", time)) => {
                    address.token_memory = read_time("token_memory", time)?;
                }
                // Not repeated: it may be half of a password with a '?' in it.
                _ => {
                    return Err(refused(
                        "it has a parameter other than prefix, session and token_memory",
                    ));
                }
            }
        }
        Ok(address)
    }

    /// Each `host:port`.
    pub(super) fn servers(&self) -> &[String] {
        &self.servers
    }

    /// `user:password`.
    pub(super) fn login(&self) -> Option<&str> {
        self.login.as_deref()
    }

    pub(super) fn chroot(&self) -> &str {
        &self.chroot
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) const fn session(&self) -> Duration {
        self.session
    }

    /// Returns how long a name's last token is remembered after it was freed.
    pub(super) const fn token_memory(&self) -> Duration {
        self.token_memory
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (servers, chroot) = (self.servers.join(","), &self.chroot);
        write!(f, "zookeeper://{servers}{chroot}?prefix={}", self.prefix)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn read_login(text: &str) -> Result<String, Error> {
    let (user, password) = text
        .split_once(':')
        .ok_or_else(|| refused("it has a user without a password"))?;
    let user = decode(user)?;
    if user.is_empty() || user.contains(':') {
        return Err(refused("its user is empty or has a colon"));
    }
    Ok(format!("{user}:{}", decode(password)?))
}

fn read_server(text: &str) -> Result<String, Error> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            let port = port.parse().ok().filter(|port: &u16| *port > 0);
            let port = port.ok_or_else(|| refused("its port is no number from 1 to 65535"))?;
            (host, port)
        }
        _ => (text, PORT),
    };
    let is_bare = !host.starts_with('[') && host.contains(':');
    if host.is_empty() || is_bare {
        return Err(refused("it names no host, or an IPv6 address without []"));
    }
    Ok(format!("{}:{port}", decode(host)?))
}

fn read_chroot(text: &str) -> Result<String, Error> {
    let chroot = decode(text.trim_end_matches('/'))?;
    let is_bad = |part: &str| {
        part.is_empty() || part == "." || part == ".." || part.chars().any(char::is_control)
    };
    if chroot.split('/').skip(1).any(is_bad) {
        return Err(refused("its path is no path of a node"));
    }
    Ok(chroot)
}

fn read_time(what: &str, text: &str) -> Result<Duration, Error> {
    let time = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(ms), _) => ms.parse().ok().map(Duration::from_millis),
        (None, Some(seconds)) => seconds.parse().ok().map(Duration::from_secs),
        (None, None) => None,
    };
    let sound = Duration::from_secs(1)..=Duration::from_secs(86_400);
    time.filter(|time| sound.contains(time))
        .ok_or_else(|| refused(&format!("its {what} is no time from 1s to 86400s")))
}

/// Reads `%XX`.
fn decode(text: &str) -> Result<String, Error> {
    percent::decode(text).ok_or_else(|| {
        refused("it has a '%' without two hexadecimal digits, or bytes that are no UTF-8")
    })
}

fn refused(why: &str) -> Error {
    Error::invalid(format!(
        "store URL refused: {why}; expected zookeeper://[USER:PASSWORD@]HOST[:PORT][,HOST...][/CHROOT]\
         [?prefix=NAME&session=40s&token_memory=3600s], with special characters as %XX"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Address {
        Address::parse(url).expect("a URL in order")
    }

    #[test]
    fn a_url_is_taken_apart() {
        let address = parse("zookeeper://me:se%40cret@a,b:2182,[::1]:9/app/x?session=9s&prefix=p");
        assert_eq!(address.servers(), ["a:2181", "b:2182", "[::1]:9"]);
        assert_eq!(address.login(), Some("me:se@cret"));
        assert_eq!((address.chroot(), address.prefix()), ("/app/x", "p"));
        assert_eq!(address.session(), Duration::from_secs(9));
        let address = parse("zookeeper://a/");
        assert_eq!((address.chroot(), address.prefix()), ("", "leasehold"));
        assert_eq!(address.session(), Duration::from_secs(40));
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
}
