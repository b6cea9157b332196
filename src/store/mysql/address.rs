//! The address of the leases: the servers, the login, the database, and how the connections are encrypted.

use std::fmt;
use std::time::Duration;

use mysql_async::{ClientIdentity, Opts, OptsBuilder, SslOpts};
use rustls::crypto::ring;

use super::statements::SESSION;
use crate::error::{Error, ErrorKind};
use crate::percent;
use crate::store::Sent;
use crate::store::Tls;
use crate::store::kit::server_url::{HostPort, Reason, ServerUrl};
use crate::store::record::Failure;

/// The port of a server unless the URL names one.
const PORT: u16 = 3306;
/// The variable with the password, where the URL has none, as in the clients of MySQL.
const PASSWORD: &str = "MYSQL_PWD";
/// The most by which clocks are taken to differ, unless told otherwise: one server serves at a time, and its clock is set by
/// a time daemon.
const SKEW: Duration = Duration::from_secs(1);
/// The interval at which a waiting client polls by default: a poll is a read of one row by its key.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The least of both.
const LEAST: Duration = Duration::from_millis(10);
/// Time without traffic after which the kernel probes a connection.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// The longest packet and the idle time of a connection, of which the driver would ask each server: no request is longer
/// than a record, and an idle connection is probed before it is used.
const MAX_PACKET: usize = 16 << 20;
const IDLE_SECONDS: usize = 0;

const PARAMETERS: [&str; 8] = [
    "sslmode",
    "ca",
    "cert",
    "key",
    "server_name",
    "socket",
    "skew",
    "poll",
];

/// The servers' addresses, the login, and the settings of a URL.
#[derive(Clone)]
pub(super) struct Address {
    /// In the order of the URL; one is used, the first that accepts writes.
    pub(super) servers: Vec<Server>,
    user: String,
    password: Option<String>,
    database: String,
    /// `None`: without TLS.
    tls: Option<Tls>,
    pub(super) skew: Duration,
    pub(super) look_every: Duration,
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Server {
    At(HostPort),
    /// By the path of its socket.
    Here(String),
}

impl Address {
    /// Reads a URL, and the files of its certificates. It may block.
    ///
    /// # Errors
    /// `Invalid`; the message has no part of the URL that could be a secret.
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let mut read = ServerUrl::read(url).map_err(|why| refused(&why))?;
        let (mut address, is_encrypted) = Self::of(&mut read).map_err(|why| refused(&why))?;
        let tls = Tls::of_url(|name| read.parameter(name).map(Into::into))?;
        if is_encrypted {
            let tls = tls.or(Tls::of_environment()?);
            tls.config()?;
            address.tls = Some(tls);
        } else if !tls.is_empty() {
            let why = "it has TLS settings, but it does not use TLS (sslmode=require does)";
            return Err(refused(&why.into()));
        }
        Ok(address)
    }

    /// Returns the address without its certificates, and whether it uses TLS.
    fn of(read: &mut ServerUrl) -> Result<(Self, bool), Reason> {
        read.rename("ssl-mode", "sslmode")?;
        read.expect_only(&PARAMETERS)?;
        let is_without_host = read.hosts.iter().any(|(host, _)| host.is_empty());
        let servers = match read.text("socket") {
            Some(path) if is_without_host && read.hosts.len() == 1 => vec![Server::Here(path)],
            Some(_) => return Err("it names a host and a socket".into()),
            None if is_without_host => return Err("it names no host".into()),
            None => read.endpoints(PORT).into_iter().map(Server::At).collect(),
        };
        let is_encrypted = uses_tls(read.parameter("sslmode"), &servers)?;
        if read.path.is_empty() || read.path.contains('/') {
            return Err("it names no database".into());
        }
        let password = read.password.clone();
        let of_environment = || std::env::var(PASSWORD).ok();
        let address = Self {
            servers,
            user: read.user.clone().ok_or("it names no user")?,
            password: password.or_else(|| of_environment().filter(|text| !text.is_empty())),
            database: read.path.clone(),
            tls: None,
            skew: read.time("skew", LEAST, SKEW)?,
            look_every: read.time("poll", LEAST, LOOK_EVERY)?,
        };
        Ok((address, is_encrypted))
    }

    /// Returns whether a password goes over a network without TLS.
    pub(super) fn is_open(&self) -> bool {
        self.tls.is_none() && !self.servers.iter().all(Server::is_of_this_machine)
    }

    /// Returns the settings of a connection, with the certificates as they are now.
    pub(super) async fn options(&self, server: &Server) -> Result<Opts, Failure> {
        let options = OptsBuilder::default()
            .user(Some(&self.user))
            .pass(self.password.as_ref())
            .db_name(Some(&self.database))
            .prefer_socket(false)
            .tcp_keepalive(Some(KEEPALIVE))
            .max_allowed_packet(Some(MAX_PACKET))
            .wait_timeout(Some(IDLE_SECONDS))
            .init(SESSION.to_vec());
        Ok(match server {
            Server::Here(path) => options.socket(Some(path)).into(),
            Server::At(endpoint) => options
                .ip_or_hostname(&*endpoint.host)
                .tcp_port(endpoint.port)
                .ssl_opts(self.encryption(&endpoint.host).await?)
                .into(),
        })
    }

    async fn encryption(&self, host: &str) -> Result<Option<SslOpts>, Failure> {
        let Some(tls) = self.tls.clone() else {
            return Ok(None);
        };
        // Once in a process; the driver asks for it, and would not know which one to take where there are two.
        let _ = ring::default_provider().install_default();
        let reading = tokio::task::spawn_blocking(move || {
            tls.config()?;
            Ok::<_, Error>((tls.authorities()?, tls))
        });
        // The files could be read when the store was made, so one is probably being replaced.
        let unusable = |why: String| Failure::new(ErrorKind::Unavailable, Sent::Never, why);
        let read = reading.await.map_err(|error| unusable(error.to_string()))?;
        let (authorities, tls) = read.map_err(|error| unusable(format!("{error:#}")))?;
        let identity = tls.client_files().map(|[certificate, key]| {
            ClientIdentity::new(certificate.to_owned().into(), key.to_owned().into())
        });
        let options = SslOpts::default()
            .with_client_identity(identity)
            .with_disable_built_in_roots(authorities.is_some())
            .with_danger_tls_hostname_override(Some(tls.name_of(host).to_owned()));
        let authorities = authorities.into_iter().flatten();
        let authorities = authorities.map(|certificate| certificate.to_vec().into());
        Ok(Some(options.with_root_certs(authorities.collect())))
    }
}

impl Server {
    fn is_of_this_machine(&self) -> bool {
        match self {
            Self::At(endpoint) => endpoint.is_of_this_machine(),
            Self::Here(_) => true,
        }
    }
}

/// TLS is on or off. If it is on, the server's certificate is always checked.
fn uses_tls(asked: Option<&str>, servers: &[Server]) -> Result<bool, Reason> {
    match asked {
        Some("require") if servers.iter().any(|at| matches!(at, Server::Here(_))) => {
            Err("it uses TLS on a socket of this machine".into())
        }
        Some("require") => Ok(true),
        Some("disable") => Ok(false),
        Some(_) => Err(
            "its sslmode is neither disable nor require, which checks the certificate's chain and name".into(),
        ),
        None => Ok(!servers.iter().all(Server::is_of_this_machine)),
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(endpoint) => fmt::Display::fmt(endpoint, f),
            Self::Here(path) => f.write_str(path),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = percent::encode(&self.database);
        if let [Server::Here(path)] = &self.servers[..] {
            let path = percent::encode(path);
            return write!(f, "mysql:///{database}?socket={path}");
        }
        let servers: Vec<_> = self.servers.iter().map(ToString::to_string).collect();
        write!(f, "mysql://{}/{database}", servers.join(","))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn refused(why: &Reason) -> Error {
    Error::invalid(format!(
        "store URL refused: {why}; expected mysql://USER:PASSWORD@HOST,HOST/DATABASE, or ?socket=PATH for one of this \
         machine, with parameters among {}",
        PARAMETERS.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str) -> Address {
        Address::parse(url).expect(url)
    }

    #[test]
    fn servers_a_login_and_a_database_are_read_and_shown_without_secrets() {
        for (url, shown) in [
            (
                "mysql://me:p%40ss@a,[::1]:7/jobs",
                "mysql://a:3306,[::1]:7/jobs",
            ),
            (
                "mariadb://me:p%40ss@a/jobs?sslmode=disable",
                "mysql://a:3306/jobs",
            ),
            (
                "mysql://me:p%40ss@/jobs?socket=/run/s.sock",
                "mysql:///jobs?socket=/run/s.sock",
            ),
        ] {
            let address = address(url);
            assert_eq!(
                (&*address.user, address.password.as_deref()),
                ("me", Some("p@ss"))
            );
            assert_eq!(format!("{address} {address:?}"), format!("{shown} {shown}"));
        }
        let address = address("mysql://me@a/b?skew=5s&poll=20ms");
        assert_eq!(address.skew, Duration::from_secs(5));
        assert_eq!(address.look_every, Duration::from_millis(20));
    }

    #[test]
    fn tls_is_used_unless_the_server_is_on_this_machine() {
        for (url, is_used, is_open) in [
            ("mysql://me@db/a", true, false),
            ("mysql://me@localhost,127.0.0.2,[::1]/a", false, false),
            ("mysql://me@localhost,db/a", true, false),
            ("mysql://me@localhost/a?sslmode=require", true, false),
            ("mysql://me@localhost/a?ssl-mode=require", true, false),
            ("mysql://me@db/a?sslmode=disable", false, true),
            ("mysql://me@/a?socket=/s", false, false),
        ] {
            let address = address(url);
            assert_eq!(
                (address.tls.is_some(), address.is_open()),
                (is_used, is_open),
                "{url}"
            );
        }
    }

    #[test]
    fn another_form_is_refused_without_a_word_of_it() {
        for (url, said) in [
            ("mysql://me:s3cret@/a", "no host"),
            ("mysql://me:s3cret@a,/b", "no host"),
            ("mysql://a/b", "no user"),
            ("mysql://me:s3cret@a", "no database"),
            ("mysql://me:s3cret@a/b/c", "no database"),
            ("mysql://me@a/b?password=s3cret", "unknown parameter"),
            ("mysql://me@a/b?socket=/s3cret", "a host and a socket"),
            (
                "mysql://me@/b?socket=/s3cret&sslmode=require",
                "on a socket",
            ),
            (
                "mysql://me@a/b?sslmode=s3cret",
                "neither disable nor require",
            ),
            ("mysql://me@localhost/b?ca=s3cret", "sslmode=require does"),
            ("mysql://me@a/b?cert=s3cret", "needs both cert and key"),
            ("mysql://me@a/b?skew=s3cret", "its skew is not between 10ms"),
            ("mysql://me@a/b?poll=5ms", "its poll"),
        ] {
            let error = Address::parse(url).expect_err(url).to_string();
            assert!(error.contains(said), "{url}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn the_page_lists_each_parameter() {
        crate::store::kit::server_url::assert_listed("mysql", &PARAMETERS);
    }
}
