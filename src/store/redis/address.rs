//! The address of the server: a URL, checked once, and shown without its secrets from then on.

use std::fmt;
use std::time::Duration;

use deadpool_redis::redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use deadpool_redis::redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, parse_redis_url,
};

use super::failure::Failure;
use crate::error::Error;
use crate::store::Tls;
use crate::store::tls::Certificates;
use crate::store::url::{STRAY_AT, has_stray_at};

/// After how long without traffic the connection is probed, so that no router on the way forgets it.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
/// How often it is probed again.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// How long the kernel waits for an acknowledgement before it closes the connection.
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);

/// The parameters of the store as a whole, which are taken out of the URL before an address is read.
const STORE_PARAMETERS: [&str; 2] = ["max_ttl", "acknowledged_by"];

/// A server's address and the credentials for it.
#[derive(Clone)]
pub(super) struct Address {
    scheme: String,
    info: ConnectionInfo,
    tls: Tls,
    shown: String,
}

impl Address {
    /// Parses a URL, and reads the certificate files, so that a file that cannot be used is found here. What the URL
    /// does not say about TLS is taken from the builder's settings, and then from the environment.
    ///
    /// # Errors
    /// `Invalid`; the message contains no part of the URL that could be a secret.
    pub(super) fn parse(url: &str, tls: &Tls) -> Result<Self, Error> {
        let (scheme, own, info) = read(url)?;
        let is_tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        if !is_tls && !tls.is_empty() {
            return Err(refused(
                "the builder has TLS settings, but the URL does not use TLS",
            ));
        }
        let tls = match is_tls {
            true => own.or(tls.clone()).or(Tls::of_environment()?),
            false => own,
        };
        tls.read()?;
        let shown = show(&scheme, &info);
        // The name that `CLIENT LIST` shows to the operator of the server.
        let named = info.redis_settings().clone();
        let named = named.set_lib_name("leasehold", env!("CARGO_PKG_VERSION"));
        let info = info.set_redis_settings(named);
        Ok(Self {
            scheme,
            info: info.set_tcp_settings(tcp_settings()),
            tls,
            shown,
        })
    }

    /// Returns the settings for opening connections, without the certificates of files.
    pub(super) fn info(&self) -> ConnectionInfo {
        self.info.clone()
    }

    /// Returns the address of another server, with the same credentials and certificates.
    pub(super) fn at(&self, host: &str, port: u16) -> Self {
        let mut address = self.clone();
        let host = host.to_owned();
        let addr = match self.info.addr() {
            ConnectionAddr::TcpTls {
                insecure,
                tls_params,
                ..
            } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        address.info = address.info.set_addr(addr);
        address.shown = show(&self.scheme, &address.info);
        address
    }

    /// Returns the same address with other credentials.
    pub(super) fn with_credentials(&self, user: Option<String>, password: Option<String>) -> Self {
        let mut address = self.clone();
        let mut settings =
            RedisConnectionInfo::default().set_lib_name("leasehold", env!("CARGO_PKG_VERSION"));
        if let Some(user) = user {
            settings = settings.set_username(user);
        }
        if let Some(password) = password {
            settings = settings.set_password(password);
        }
        address.info = address.info.set_redis_settings(settings);
        address
    }

    pub(super) fn scheme(&self) -> &str {
        &self.scheme
    }

    pub(super) fn db(&self) -> i64 {
        self.info.redis_settings().db()
    }

    /// Returns whether this is the address of the server at this host and port.
    pub(super) fn is_at(&self, of_host: &str, of_port: u16) -> bool {
        self.host_port() == Some((of_host, of_port))
    }

    /// Returns the host and the port. A socket has none.
    pub(super) fn host_port(&self) -> Option<(&str, u16)> {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some((host, *port))
            }
            _ => None,
        }
    }

    /// Returns the name that the server's certificate must have.
    pub(super) fn server_name(&self) -> &str {
        let host = self.host_port().map_or("", |(host, _)| host);
        self.tls.name_of(host)
    }

    /// Reads the certificates as they are now. Without TLS there are none.
    pub(super) async fn certificates(&self) -> Result<Option<Certificates>, Failure> {
        if !matches!(self.info.addr(), ConnectionAddr::TcpTls { .. }) {
            return Ok(None);
        }
        install_crypto();
        let read = match self.tls.has_no_files() {
            true => self.tls.read(),
            false => {
                let tls = self.tls.clone();
                let reading = tokio::task::spawn_blocking(move || tls.read());
                reading.await.map_err(|_| Failure::Abandoned)?
            }
        };
        let read = read.map_err(|error| Failure::Certificates(format!("{error:#}")));
        read.map(Some)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// Returns the scheme, the TLS settings, and the rest.
fn read(url: &str) -> Result<(String, Tls, ConnectionInfo), Error> {
    if has_stray_at(url) {
        return Err(refused(STRAY_AT));
    }
    let parsed = parse_redis_url(url).ok_or_else(|| refused("it is not a Redis URL"))?;
    let scheme = parsed.scheme().to_owned();
    let known: &[&str] = match &*scheme {
        "redis" | "valkey" => &[],
        "rediss" | "valkeys" => &Tls::PARAMETERS,
        "redis+unix" | "valkey+unix" => &["db", "user", "pass"],
        _ => return Err(refused("its scheme is unknown")),
    };
    let unknown = parsed.query_pairs().map(|(key, _)| key);
    if let Some(key) = unknown.into_iter().find(|key| !known.contains(&&**key)) {
        return Err(refused(&unknown_parameter(&key, known)));
    }
    if parsed.fragment().is_some() {
        return Err(refused("it has a part after '#'"));
    }
    let parameter = |name: &str| {
        let mut parameters = parsed.query_pairs();
        parameters.find_map(|(key, value)| (key == name).then(|| value.into_owned()))
    };
    let tls = Tls::of_url(parameter)?;
    let info = parsed
        .into_connection_info()
        .map_err(|error| refused(&error.to_string()))?;
    if info.redis_settings().db() < 0 {
        return Err(refused("its database number is below 0"));
    }
    Ok((scheme, tls, info))
}

/// Says which parameters there are. A wrong one is repeated only where it is nearly a known one: it may be half of a
/// password that contains a '?'.
fn unknown_parameter(key: &str, known: &[&str]) -> String {
    let known = [&STORE_PARAMETERS, known].concat();
    let meant = key.to_ascii_lowercase().replace('-', "_");
    let named = match known.contains(&&*meant) {
        true => format!(" {key:?}, which is written {meant}"),
        false => String::new(),
    };
    format!(
        "it has an unknown parameter{named}; known are {}",
        known.join(", ")
    )
}

fn refused(why: &str) -> Error {
    Error::invalid(format!(
        "store URL refused: {why}; expected redis://[USER:PASSWORD@]HOST[:PORT][/DB], \
         rediss://...[?ca=FILE&cert=FILE&key=FILE&server_name=NAME] or redis+unix:///PATH[?db=DB&user=USER&pass=PASSWORD], \
         with special characters as %XX"
    ))
}

/// rustls panics without a process-wide choice of cryptography. A choice that the program made stays; so this is done
/// as late as the first connection.
fn install_crypto() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // This fails only if another thread has made the choice meanwhile.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL);
    TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive)
        .set_user_timeout(UNACKNOWLEDGED)
}

fn show(scheme: &str, info: &ConnectionInfo) -> String {
    let db = info.redis_settings().db();
    match info.addr() {
        ConnectionAddr::Unix(path) => format!("{scheme}://{}?db={db}", path.display()),
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            if host.contains(':') {
                format!("{scheme}://[{host}]:{port}/{db}")
            } else {
                format!("{scheme}://{host}:{port}/{db}")
            }
        }
        _ => format!("{scheme}:"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, Error> {
        Address::parse(url, &Tls::new())
    }

    fn shown(url: &str) -> String {
        parse(url).expect("a valid URL").to_string()
    }

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        for (url, expected) in [
            ("redis://localhost", "redis://localhost:6379/0"),
            ("redis://me:s3cret@db:7000/3", "redis://db:7000/3"),
            ("redis://:s3cret@[::1]:7000", "redis://[::1]:7000/0"),
            ("rediss://me:s3cret@db", "rediss://db:6379/0"),
            (
                "redis+unix:///run/r.sock?db=2&user=me&pass=s3cret",
                "redis+unix:///run/r.sock?db=2",
            ),
            ("redis+unix:/run/r.sock", "redis+unix:///run/r.sock?db=0"),
        ] {
            assert_eq!(shown(url), expected);
            let address = parse(url).expect("a valid URL");
            assert!(!format!("{address:?}").contains("s3cret"));
        }
    }

    #[test]
    fn credentials_are_decoded() {
        let address = parse("redis://me:p%40ss%2F@db/3").expect("a valid URL");
        let info = address.info();
        assert_eq!(info.redis_settings().username(), Some("me"));
        assert_eq!(info.redis_settings().password(), Some("p@ss/"));
        assert_eq!(info.redis_settings().db(), 3);
        let address = parse("redis+unix:///r.sock?user=me&pass=p%26").expect("valid");
        assert_eq!(address.info().redis_settings().password(), Some("p&"));
    }

    #[test]
    fn connections_are_set_up_for_small_requests() {
        let info = parse("redis://db").expect("a valid URL").info();
        assert!(info.tcp_settings().nodelay());
        assert!(info.tcp_settings().keepalive().is_some());
    }

    #[test]
    fn a_bad_url_is_refused_and_its_secret_not_repeated() {
        for url in [
            "",
            "s3cret",
            "http://:s3cret@db",
            "unix:///s3cret",
            "redis://:s3cret@",
            "redis://:s3cret@db/s3cret",
            "redis://:s3cret@db/-1",
            "redis://:s3cret@db:70000",
            "redis://db?pass=s3cret",
            "redis://db?s3cret",
            "rediss://:s3cret@db#insecure",
            "redis+unix:///r.sock?passwd=s3cret",
            "rediss://:s3cret@db?cert=/dev/null",
            "rediss://:s3cret@db?key=/dev/null",
            "redis://:s3cret@db?ca=/dev/null",
        ] {
            let error = parse(url).expect_err(url);
            assert_eq!(error.kind(), crate::ErrorKind::Invalid);
            let text = format!("{error} {error:?}");
            assert!(!text.contains("s3cret"), "{text}");
        }
    }

    #[test]
    fn an_unknown_parameter_is_told_which_there_are_and_repeated_only_if_nearly_known() {
        let told = |url| parse(url).expect_err("refused").to_string();
        let text = told("redis://db?max-ttl=60s");
        assert!(
            text.contains("\"max-ttl\", which is written max_ttl"),
            "{text}"
        );
        assert!(!text.contains("=60s"), "{text}");
        let text = told("rediss://db?Server-Name=s3cret");
        assert!(
            text.contains("known are max_ttl, acknowledged_by, ca, cert, key, server_name"),
            "{text}"
        );
        assert!(
            text.contains("Server-Name") && !text.contains("s3cret"),
            "{text}"
        );
        assert!(!told("redis://db?s3cret=1").contains("s3cret"));
    }

    #[test]
    fn a_file_without_certificates_is_refused() {
        for path in ["/dev/null", "/nowhere"] {
            for query in [format!("ca={path}"), format!("cert={path}&key={path}")] {
                let error = parse(&format!("rediss://db?{query}")).expect_err("refused");
                assert!(error.to_string().contains(path), "{error}");
            }
        }
    }
}
