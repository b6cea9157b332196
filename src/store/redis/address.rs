//! The address of a server: its endpoint, credentials and TLS. Shown without its secrets.

use std::fmt;
use std::sync::Arc;

use deadpool_redis::redis::RedisConnectionInfo;
use rustls::ClientConfig;

use super::failure::Failure;
use crate::error::ErrorKind;
use crate::percent;
use crate::store::kit::server_url::{HostPort, Reason, ServerUrl};
use crate::store::{Sent, Tls};

/// The port of a server, if the URL has none.
pub(super) const PORT: u16 = 6_379;

/// A server's address and the credentials for it.
#[derive(Clone)]
pub(super) struct Address {
    /// The scheme of one server.
    pub(super) scheme: String,
    /// The endpoint of the server. A host that begins with a slash is the path of a socket.
    pub(super) endpoint: HostPort,
    /// The user, the password and the database.
    pub(super) login: RedisConnectionInfo,
    /// `None`: without TLS.
    tls: Option<Tls>,
}

/// Translates the addresses that Sentinels and nodes name into those that reach the servers from this process.
#[derive(Clone, Default)]
pub(super) struct AddressMap(Option<Arc<Translation>>);

type Translation = dyn Fn(&str, u16) -> (String, u16) + Send + Sync;

impl Address {
    /// Makes the address of the first host of a URL, or of its socket.
    ///
    /// # Errors
    /// Why the URL is refused.
    pub(super) fn new(
        scheme: &str,
        url: &ServerUrl,
        db: &str,
        tls: Option<Tls>,
    ) -> Result<Self, Reason> {
        let db: u32 = match db {
            "" => 0,
            db => (db.parse()).map_err(|_| "its database is not a number from 0")?,
        };
        let (endpoint, login) = match is_of_socket(scheme) {
            true => (
                HostPort::new(&format!("/{}", url.path), 0),
                login(url.parameter("user"), url.parameter("pass")),
            ),
            false => (
                url.endpoints(PORT).swap_remove(0),
                login(url.user.as_deref(), url.password.as_deref()),
            ),
        };
        Ok(Self {
            scheme: scheme.into(),
            endpoint,
            login: login.set_db(db.into()),
            tls,
        })
    }

    /// Returns the address of another server, with the same credentials and certificates.
    pub(super) fn at(&self, endpoint: &HostPort) -> Self {
        Self {
            endpoint: endpoint.clone(),
            ..self.clone()
        }
    }

    /// Returns the same address with other credentials, and the first database.
    pub(super) fn with_login(&self, user: Option<&str>, password: Option<&str>) -> Self {
        Self {
            login: login(user, password),
            ..self.clone()
        }
    }

    /// Returns the path of its socket, if it listens at one. A host that a server names is never one: a socket has no
    /// TLS.
    pub(super) fn socket(&self) -> Option<&str> {
        is_of_socket(&self.scheme).then_some(&*self.endpoint.host)
    }

    /// Returns the name that the certificate of the server at this host must have.
    pub(super) fn server_name<'a>(&'a self, host: &'a str) -> &'a str {
        self.tls.as_ref().map_or(host, |tls| tls.name_of(host))
    }

    /// Returns how a connection is encrypted, with the certificates as they are now. `None` without TLS.
    pub(super) async fn encryption(&self) -> Result<Option<Arc<ClientConfig>>, Failure> {
        let Some(tls) = &self.tls else {
            return Ok(None);
        };
        let unusable = |why| Failure::other(ErrorKind::Unavailable, Sent::Never, why);
        Ok(Some(tls.config_now().await.map_err(unusable)?))
    }
}

/// Returns whether this is the scheme of a server behind a socket.
pub(super) fn is_of_socket(scheme: &str) -> bool {
    scheme.ends_with("+unix")
}

fn login(user: Option<&str>, password: Option<&str>) -> RedisConnectionInfo {
    // The name that `CLIENT LIST` shows to the operator of the server.
    let login = RedisConnectionInfo::default().set_lib_name("leasehold", env!("CARGO_PKG_VERSION"));
    let login = match user {
        Some(user) => login.set_username(user),
        None => login,
    };
    match password {
        Some(password) => login.set_password(password),
        None => login,
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, db) = (&self.scheme, self.login.db());
        match self.socket() {
            Some(path) => write!(f, "{scheme}://{}?db={db}", percent::encode(path)),
            None => write!(f, "{scheme}://{}/{db}", self.endpoint),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl AddressMap {
    pub(super) fn new(map: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(map)))
    }

    /// Makes a map of pairs: the endpoint that servers name, and the one to connect to.
    pub(super) fn of(pairs: Vec<[HostPort; 2]>) -> Self {
        if pairs.is_empty() {
            return Self::default();
        }
        Self::new(move |host, port| {
            let mut pairs = pairs.iter();
            let found = pairs.find(|[named, _]| &*named.host == host && named.port == port);
            found.map_or_else(
                || (host.to_owned(), port),
                |[_, reached]| (reached.host.to_string(), reached.port),
            )
        })
    }

    pub(super) const fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the endpoint to connect to for a server that another one names. An empty host means the server that
    /// answered; `?` an unknown one.
    pub(super) fn reached(&self, host: &str, port: u16, answered: &HostPort) -> Option<HostPort> {
        let (host, port) = match (host, &self.0) {
            ("?", _) => return None,
            ("", _) => (answered.host.to_string(), port),
            (host, None) => (host.to_owned(), port),
            (host, Some(map)) => map(host, port),
        };
        Some(HostPort::new(&host, port))
    }

    /// Reads the address in a redirection: `host:port`, without brackets even for IPv6.
    pub(super) fn redirected(&self, address: &str, answered: &HostPort) -> Option<HostPort> {
        let (host, port) = address.rsplit_once(':')?;
        self.reached(host, port.parse().ok()?, answered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(port: u16) -> HostPort {
        HostPort::new("node", port)
    }

    #[test]
    fn a_redirection_is_read() {
        let read = |address| AddressMap::default().redirected(address, &endpoint(1));
        assert_eq!(
            read("10.0.0.1:7000"),
            Some(HostPort::new("10.0.0.1", 7_000))
        );
        assert_eq!(read("fe80::1:7000"), Some(HostPort::new("fe80::1", 7_000)));
        assert_eq!(read(":7000"), Some(endpoint(7_000)));
        assert_eq!(read("?:7000"), None);
        assert_eq!(read("nonsense"), None);
        assert_eq!(HostPort::new("fe80::1", 1).to_string(), "[fe80::1]:1");
    }

    #[test]
    fn a_server_that_is_named_is_reached_where_the_map_says() {
        let outside = AddressMap::new(|host, port| (format!("outside-{host}"), port + 1));
        let read = |address| outside.redirected(address, &endpoint(1));
        assert_eq!(read("a:7"), Some(HostPort::new("outside-a", 8)));
        assert_eq!(read(":7"), Some(endpoint(7)), "the one that was reached");
        assert_eq!(read("?:7"), None);
    }
}
