//! The addresses of the servers: a URL, checked once, and shown without its secrets from then on.
//!
//! The driver parses URLs too, but refuses `schema` and `sslmode=verify-full`, and repeats in its errors what it
//! refuses.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use super::connection::connect::Endpoint;
use super::connection::tls::Handshake;
use super::failure::Failure;
use super::protocol::schema::Schema;
use crate::error::Error;
use crate::percent;
use crate::store::Tls;
use crate::store::kit::server_url::{HostPort, Reason, ServerUrl, read_host};

/// Time without traffic before the connection is probed, so that no router on the way forgets it.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
/// Interval between further probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// How long the kernel waits for an acknowledgement before it closes the connection.
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);
/// Maximum number of connections that carry requests. Each waits for one disk flush at a time, and the server flushes
/// for all that wait together: ten have nearly three times the grants of four. Pools for Java have as many.
const CONNECTIONS: usize = 10;
/// The port of a server unless the URL names one.
const PORT: u16 = 5432;
/// The variable with the password, where the URL has none. libpq's other variables are not read, because none of them
/// is a secret, and neither is `.pgpass`: the tool has `--store-file` for a URL that other users must not see.
const PASSWORD: &str = "PGPASSWORD";
/// The parameters that may follow the question mark.
const PARAMETERS: &[&str] = &[
    "user",
    "password",
    "host",
    "port",
    "schema",
    "sslmode",
    "ca",
    "cert",
    "key",
    "server_name",
    "notices",
    "connections",
];
/// The names that libpq has for some of them.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("ca", "sslrootcert"),
    ("cert", "sslcert"),
    ("key", "sslkey"),
];

/// The servers' addresses, the credentials for them, and the settings that a URL can have.
#[derive(Clone)]
pub(crate) struct Address {
    /// The hosts in the order of the URL; one that begins with `/` is the folder of a socket.
    pub(super) hosts: Vec<HostPort>,
    /// The settings of a connection, without a host.
    pub(super) config: Config,
    /// `None`: without TLS.
    tls: Option<Tls>,
    /// The server that answered last.
    last: Arc<Mutex<Option<Endpoint>>>,
    pub(super) schema: Schema,
    /// Whether waiting clients may use notices.
    pub(super) has_notices: bool,
    /// The greatest number of connections for requests.
    pub(super) connections: usize,
}

impl Address {
    /// Parses a URL, and reads the certificate files, so that a file that cannot be used is found here. What the URL
    /// does not say about TLS is taken from the builder's settings, and then from the environment.
    ///
    /// # Errors
    /// `Invalid`; the message contains no part of the URL that could be a secret.
    pub(super) fn parse(url: &str, tls: &Tls) -> Result<Self, Error> {
        let read = ServerUrl::read(url)
            .and_then(of_postgres)
            .map_err(refused)?;
        let parameter = |key| read.parameter(key);
        let schema = Schema::new(parameter("schema").unwrap_or(Schema::DEFAULT))?;
        let has_notices = match parameter("notices") {
            None | Some("on") => true,
            Some("off") => false,
            Some(_) => return Err(refused("its notices parameter is neither on nor off")),
        };
        let connections = match parameter("connections").map(usize::from_str) {
            None => CONNECTIONS,
            Some(Ok(connections)) if connections > 0 => connections,
            Some(_) => return Err(refused("its connections parameter is not a number above 0")),
        };
        let hosts = hosts(&read).map_err(refused)?;
        let mode = ssl_mode(parameter("sslmode"), &hosts).map_err(refused)?;
        let tls = tls_of(&read, mode, tls)?;
        let mut config = config(&read);
        config.ssl_mode(mode);
        Ok(Self {
            hosts,
            config,
            tls,
            last: Arc::default(),
            schema,
            has_notices,
            connections,
        })
    }

    /// Returns each of the servers alone, whether it accepts writes or not.
    pub(super) fn each_server(&self) -> Vec<Self> {
        let alone = |host: &HostPort| Self {
            hosts: vec![host.clone()],
            last: Arc::default(),
            ..self.clone()
        };
        self.hosts.iter().map(alone).collect()
    }

    /// Returns the name that the certificate of the server at this host must have.
    pub(super) fn server_name<'a>(&'a self, host: &'a str) -> &'a str {
        self.tls.as_ref().map_or(host, |tls| tls.name_of(host))
    }

    /// Returns the server that answered last.
    pub(super) fn last_server(&self) -> Option<Endpoint> {
        self.last.lock().clone()
    }

    pub(super) fn remember(&self, server: &Endpoint) {
        *self.last.lock() = Some(server.clone());
    }

    /// Returns how one connection is encrypted, with the certificates as they are now.
    pub(super) async fn handshake(&self) -> Result<Handshake, Failure> {
        let Some(tls) = &self.tls else {
            return Ok(Handshake(None));
        };
        let config = tls.config_now().await;
        Ok(Handshake(Some(config.map_err(Failure::before_connecting)?)))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self.hosts.iter().map(|host| match is_socket(&host.host) {
            true => percent::encode(&host.host).to_string(),
            false => host.to_string(),
        });
        let hosts = hosts.collect::<Vec<_>>().join(",");
        let database = percent::encode(self.config.get_dbname().unwrap_or_default());
        let schema = self.schema.to_string();
        let schema = percent::encode(&schema);
        if !is_socket(&self.hosts[0].host) {
            return write!(f, "postgres://{hosts}/{database}?schema={schema}");
        }
        write!(f, "postgres:///{database}?host={hosts}")?;
        // Two servers of one machine have their sockets in one folder.
        if self.hosts.iter().any(|host| host.port != PORT) {
            let ports = self.hosts.iter().map(|host| host.port.to_string());
            write!(f, "&port={}", ports.collect::<Vec<_>>().join(","))?;
        }
        write!(f, "&schema={schema}")
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn of_postgres(mut read: ServerUrl) -> Result<ServerUrl, Reason> {
    if !["postgres", "postgresql"].contains(&&*read.scheme) {
        return Err("it is not a Postgres URL".into());
    }
    for (name, other) in OTHER_NAMES {
        read.rename(other, name)?;
    }
    read.expect_only(PARAMETERS)?;
    Ok(read)
}

/// Returns the settings of a connection, without hosts and TLS.
fn config(read: &ServerUrl) -> Config {
    let mut config = Config::new();
    let given = |name, part: &Option<String>| read.parameter(name).map(Into::into).or(part.clone());
    if let Some(user) = given("user", &read.user) {
        config.user(user);
    }
    let password = given("password", &read.password);
    if let Some(password) = password.or_else(|| std::env::var(PASSWORD).ok().and_then(non_empty)) {
        config.password(password);
    }
    if !read.path.is_empty() {
        config.dbname(&read.path);
    }
    config
        .application_name("leasehold")
        .keepalives_idle(KEEPALIVE_IDLE)
        .keepalives_interval(KEEPALIVE_INTERVAL)
        .tcp_user_timeout(UNACKNOWLEDGED);
    config
}

/// Returns the hosts before or after the question mark, each with its port.
fn hosts(read: &ServerUrl) -> Result<Vec<HostPort>, Reason> {
    let in_authority: Vec<_> = read
        .hosts
        .iter()
        .filter(|(host, _)| !host.is_empty())
        .cloned()
        .collect();
    let hosts = match read.parameter("host") {
        None if in_authority.len() == read.hosts.len() => in_authority,
        Some(named) if in_authority.is_empty() => named
            .split(',')
            .map(|host| match is_socket(host) {
                true => Ok((host.into(), None)),
                false => read_host(host),
            })
            .collect::<Result<_, Reason>>()?,
        _ => return Err("it names no host, or names one twice".into()),
    };
    let ports = read
        .parameter("port")
        .map(|ports| ports.split(',').map(read_port).collect());
    let ports: Vec<u16> = ports.transpose()?.unwrap_or_else(|| vec![PORT]);
    if ports.len() > 1 && ports.len() != hosts.len() {
        return Err("it has several ports, but not one for each host".into());
    }
    let all = hosts.into_iter().zip(ports.into_iter().cycle());
    Ok(all
        .map(|((host, own), port)| HostPort::new(&host, own.unwrap_or(port)))
        .collect())
}

fn read_port(text: &str) -> Result<u16, Reason> {
    let port = text.parse().ok().filter(|port| *port > 0);
    port.ok_or("its port is not a number from 1 to 65535".into())
}

fn tls_of(read: &ServerUrl, mode: SslMode, of_builder: &Tls) -> Result<Option<Tls>, Error> {
    let own = Tls::of_url(|key| read.parameter(key).map(Into::into))?;
    let own = own.or(of_builder.clone());
    if mode != SslMode::Disable {
        let tls = own.or(Tls::of_environment()?);
        tls.config()?;
        return Ok(Some(tls));
    }
    match own.is_empty() {
        true => Ok(None),
        false => Err(refused(
            "it or the builder has TLS settings, but it does not use TLS (sslmode=require does)",
        )),
    }
}

/// Returns whether a host is the folder of a socket.
pub(super) fn is_socket(host: &str) -> bool {
    host.starts_with('/')
}

/// TLS is on or off. If it is on, the server's certificate is always checked; no mode falls back to an unchecked one.
fn ssl_mode(asked: Option<&str>, hosts: &[HostPort]) -> Result<SslMode, Reason> {
    let has_socket = hosts.iter().any(|host| is_socket(&host.host));
    let is_here = |host: &HostPort| is_socket(&host.host) || host.is_of_this_machine();
    match asked {
        Some("disable") => Ok(SslMode::Disable),
        Some("require" | "verify-full") if has_socket => {
            Err("it uses TLS on a socket of this machine".into())
        }
        Some("require" | "verify-full") => Ok(SslMode::Require),
        Some(_) => Err(
            "its sslmode is none of disable, require and verify-full; the last two both check the certificate's chain \
             and name, and no mode goes on without TLS where the server has none"
                .into(),
        ),
        None if hosts.iter().all(is_here) => Ok(SslMode::Disable),
        None if has_socket => Err("it mixes sockets and hosts without an sslmode".into()),
        None => Ok(SslMode::Require),
    }
}

fn non_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn refused(why: impl Into<Reason>) -> Error {
    let why = why.into();
    Error::invalid(format!(
        "store URL refused: {why}; expected postgres://[USER[:PASSWORD]@]HOST[:PORT][,HOST...]/DATABASE\
         [?schema=NAME&sslmode=MODE&ca=FILE&cert=FILE&key=FILE&server_name=NAME&notices=off&connections=N], or ?host=/FOLDER for a socket, \
         with special characters as %XX"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::kit::server_url::assert_listed;

    fn parse(url: &str) -> Result<Address, Error> {
        Address::parse(url, &Tls::new())
    }

    fn address(url: &str) -> Address {
        parse(url).expect(url)
    }

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        for (url, expected) in [
            ("postgres://db", "postgres://db:5432/?schema=leasehold"),
            (
                "postgresql://me:s3cret@db:7000/jobs?schema=x",
                "postgres://db:7000/jobs?schema=x",
            ),
            (
                "postgres://me:s3cret@a:1,[::1]:2,b/jobs?sslmode=require",
                "postgres://a:1,[::1]:2,b:5432/jobs?schema=leasehold",
            ),
            (
                "postgres:///jobs?host=/run/pg&user=me&password=s3cret",
                "postgres:///jobs?host=/run/pg&schema=leasehold",
            ),
            (
                "postgres:///jobs?host=/run/a,/run/b&port=5433,5434",
                "postgres:///jobs?host=/run/a,/run/b&port=5433,5434&schema=leasehold",
            ),
            (
                "postgres://a,b/jobs?port=7",
                "postgres://a:7,b:7/jobs?schema=leasehold",
            ),
        ] {
            let address = address(url);
            assert_eq!(address.to_string(), expected);
            assert!(!format!("{address:?}").contains("s3cret"));
        }
    }

    #[test]
    fn another_schema_is_shown() {
        let schema = Schema::new("other").expect("a schema");
        let mut address = address("postgres://db/x?schema=one");
        address.schema = schema;
        assert_eq!(address.to_string(), "postgres://db:5432/x?schema=other");
    }

    #[test]
    fn credentials_are_decoded() {
        let config = address("postgres://m%65:p%40ss%2F@db/%6Aobs").config;
        assert_eq!(config.get_user(), Some("me"));
        assert_eq!(config.get_password(), Some(b"p@ss/".as_slice()));
        assert_eq!(config.get_dbname(), Some("jobs"));
        let config = address("postgres:///d?host=/run&password=p%26").config;
        assert_eq!(config.get_password(), Some(b"p&".as_slice()));
    }

    #[test]
    fn tls_is_asked_for_unless_the_server_is_on_this_machine() {
        for (url, expected) in [
            ("postgres://db", SslMode::Require),
            ("postgres://db?sslmode=verify-full", SslMode::Require),
            ("postgres://localhost?sslmode=require", SslMode::Require),
            ("postgres://db?sslmode=disable", SslMode::Disable),
            ("postgres://localhost,127.0.0.2,[::1]", SslMode::Disable),
            ("postgres:///?host=/run", SslMode::Disable),
        ] {
            assert_eq!(address(url).config.get_ssl_mode(), expected, "{url}");
        }
    }

    #[test]
    fn each_of_several_servers_can_be_reached_alone() {
        let all = address("postgres://me:s3cret@a,b:7/jobs?sslmode=disable&schema=x");
        let each = all.each_server();
        let shown: Vec<_> = each.iter().map(Address::to_string).collect();
        assert_eq!(
            shown,
            [
                "postgres://a:5432/jobs?schema=x",
                "postgres://b:7/jobs?schema=x"
            ]
        );
        for server in &each {
            assert_eq!(server.hosts.len(), 1);
            assert_eq!(server.config.get_password(), Some(b"s3cret".as_slice()));
            assert_eq!(server.config.get_ssl_mode(), SslMode::Disable);
        }
    }

    #[test]
    fn a_bad_url_is_refused_and_its_secret_not_repeated() {
        for url in [
            "",
            "s3cret",
            "http://:s3cret@db",
            "postgres://me:s3cret@",
            "postgres://me:s3cret@db:70000",
            "postgres://me:s3cret@db:0",
            "postgres://me:s3cret@db?port=x",
            "postgres://me:s3cret@a,b,c?port=1,2",
            "postgres://me:s3cret@[::1",
            "postgres://me:s3cret@db,/x",
            "postgres://me:s3cret@db?host=/run",
            "postgres://me:s3cret%2@db",
            "postgres://me:s3cret@db?s3cret",
            "postgres://me@db?password=s3cret&password=s3cret",
            "postgres://me:s3cret@db#x",
            "postgres://me:s3cret@db?sslmode=prefer",
            "postgres://me:s3cret@db?sslmode=verify-ca",
            "postgres://me:s3cret@db?sslmode=disable&ca=/s3cret",
            "postgres://me:s3cret@db?sslmode=disable&sslcert=/dev/null&sslkey=/dev/null",
            "postgres://me:s3cret@db?cert=/dev/null",
            "postgres://me:s3cret@db?sslkey=/dev/null",
            "postgres://me:s3cret@db?sslrootcert=/dev/null&ca=/dev/null",
            "postgres://me:s3cret@localhost?server_name=s3cret",
            "postgres://me:s3cret@db?schema=",
            "postgres://me:s3cret@db?connections=0",
            "postgres://me:s3cret@db?notices=maybe",
            "postgres:///d?host=/run&sslmode=require&password=s3cret",
        ] {
            let error = parse(url).expect_err(url);
            assert_eq!(error.kind(), crate::ErrorKind::Invalid);
            let text = format!("{error} {error:?}");
            assert!(!text.contains("s3cret"), "{text}");
        }
    }

    #[test]
    fn a_file_without_certificates_is_refused() {
        for path in ["/dev/null", "/nowhere"] {
            for query in [
                format!("ca={path}"),
                format!("sslrootcert={path}"),
                format!("cert={path}&key={path}"),
                format!("sslcert={path}&sslkey={path}"),
            ] {
                let error = parse(&format!("postgres://db?{query}")).expect_err(&query);
                assert!(error.to_string().contains(path), "{error}");
            }
        }
    }

    #[test]
    fn a_host_may_be_a_name_an_address_or_a_folder() {
        for (url, host, port) in [
            ("postgres://db", "db", PORT),
            ("postgres://[::1]:7", "::1", 7),
            ("postgres:///?host=/run", "/run", PORT),
        ] {
            assert_eq!(address(url).hosts, [HostPort::new(host, port)]);
        }
    }

    #[test]
    fn the_page_of_the_store_lists_each_parameter() {
        assert_listed("postgres", PARAMETERS);
    }
}
