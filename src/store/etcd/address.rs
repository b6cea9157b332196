//! The address of the servers: a URL, checked once, and shown without its secrets ever after.

use std::fmt;

use crate::error::Error;
use crate::name;
use crate::percent;
use crate::store::Tls;
use crate::store::kit::server_url::{HostPort, Reason, ServerUrl};

/// The port on which servers listen by default.
const PORT: u16 = 2379;
/// The prefix of all keys by default.
const PREFIX: &str = "leasehold";

const PARAMETERS: [&str; 5] = ["prefix", "ca", "cert", "key", "server_name"];

/// The servers' addresses, the login, and the settings of a URL.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) servers: Vec<HostPort>,
    /// The user and the password.
    pub(super) login: Option<(String, String)>,
    pub(super) prefix: String,
    /// `None`: without TLS.
    pub(super) tls: Option<Tls>,
}

impl Address {
    /// Reads a URL, and the files of its certificates. It may block.
    ///
    /// # Errors
    /// `Invalid`; the message has no part of the URL that could be a secret.
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let read = ServerUrl::read(url).map_err(|why| refused(&why))?;
        let mut address = Self::of(&read).map_err(|why| refused(&why))?;
        name::check("prefix", &address.prefix)?;
        let tls = Tls::of_url(|name| read.parameter(name).map(Into::into))?;
        if read.scheme == "etcds" {
            let tls = tls.or(Tls::of_environment()?);
            tls.config()?;
            address.tls = Some(tls);
        } else if !tls.is_empty() {
            let why = "it has TLS settings, but it does not use TLS (etcds:// does)";
            return Err(refused(&why.into()));
        }
        Ok(address)
    }

    fn of(read: &ServerUrl) -> Result<Self, Reason> {
        read.expect_only(&PARAMETERS)?;
        if read.hosts.iter().any(|(host, _)| host.is_empty()) {
            return Err("it names no host".into());
        }
        if !read.path.is_empty() {
            return Err("it has a path; prefix= is what all keys begin with".into());
        }
        let login = match (&read.user, &read.password) {
            (None, None) => None,
            (Some(user), Some(password)) => Some((user.clone(), password.clone())),
            _ => return Err("its user or its password is missing".into()),
        };
        Ok(Self {
            servers: read.endpoints(PORT),
            login,
            prefix: read.parameter("prefix").unwrap_or(PREFIX).into(),
            tls: None,
        })
    }

    /// Returns the address of each server alone.
    pub(super) fn each_server(&self) -> impl Iterator<Item = Self> {
        let servers = self.servers.iter();
        servers.map(|server| Self {
            servers: vec![server.clone()],
            ..self.clone()
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<_> = self.servers.iter().map(ToString::to_string).collect();
        let scheme = self.tls.as_ref().map_or("etcd", |_| "etcds");
        let prefix = percent::encode(&self.prefix);
        write!(f, "{scheme}://{}?prefix={prefix}", servers.join(","))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn refused(why: &Reason) -> Error {
    Error::invalid(format!(
        "store URL refused: {why}; expected etcd://USER:PASSWORD@HOST,HOST or etcds:// with TLS, with parameters among {}",
        PARAMETERS.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_a_login_and_the_parameters_are_read() {
        let address = Address::parse("etcd://a,[::1]:23790").expect("in order");
        assert_eq!(
            address.servers,
            [HostPort::new("a", PORT), HostPort::new("::1", 23_790)]
        );
        assert_eq!((&address.login, &*address.prefix), (&None, PREFIX));
        let address = Address::parse("etcds://me:p%40ss@a?prefix=jobs").expect("in order");
        assert_eq!(address.login, Some(("me".into(), "p@ss".into())));
        assert!(address.tls.is_some());
        let shown = format!("{address} {address:?}");
        assert!(shown.contains("etcds://a:2379?prefix=jobs"), "{shown}");
        assert!(!shown.contains("p@ss"), "{shown}");
    }

    #[test]
    fn another_form_is_refused_without_a_word_of_it() {
        for (url, said) in [
            ("etcd://", "no host"),
            ("etcd://a,", "no host"),
            ("etcd://me@a", "password is missing"),
            ("etcd://:s3cret@a", "password is missing"),
            ("etcd://a/s3cret", "it has a path"),
            ("etcd://a?token=s3cret", "unknown parameter"),
            ("etcd://a?ca=s3cret.pem", "etcds:// does"),
            ("etcds://a?cert=s3cret.pem", "needs both cert and key"),
            ("etcd://a?prefix=%7Bs%7D", "prefix"),
        ] {
            let error = Address::parse(url).expect_err(url).to_string();
            assert!(error.contains(said), "{url}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn the_page_lists_each_parameter() {
        crate::store::kit::server_url::assert_listed("etcd", &PARAMETERS);
    }
}
