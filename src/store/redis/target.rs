//! The servers that a URL means: one server, the master of a group that Sentinels watch, or a cluster.

use std::time::Duration;

use deadpool_redis::redis::{IntoConnectionInfo, parse_redis_url};

use super::address::Address;
use super::fleet::HostPort;
use crate::error::Error;
use crate::store::Tls;
use crate::store::url::{STRAY_AT, has_stray_at, several_servers};

/// The port of a Sentinel, if the URL has none.
const SENTINEL_PORT: u16 = 26_379;
/// The port of a node, if the URL has none.
const NODE_PORT: u16 = 6_379;
/// The parameters with the credentials of the Sentinels.
const SENTINEL_PARAMETERS: [&str; 2] = ["sentinel_username", "sentinel_password"];

/// The servers of a store.
#[derive(Debug)]
pub(super) enum Target {
    One(Box<Address>),
    Sentinels {
        /// The address of the first Sentinel, with the credentials of the Sentinels.
        sentinel: Box<Address>,
        /// The same address, with the credentials of the servers.
        server: Box<Address>,
        places: Vec<HostPort>,
        /// The Sentinels' name of the group.
        name: String,
    },
    Cluster {
        /// The address of the first node.
        server: Box<Address>,
        places: Vec<HostPort>,
    },
}

/// The parts of a URL with several hosts.
struct Parts<'a> {
    /// The scheme of a single server with the same kind of connection.
    scheme: String,
    /// `USER:PASSWORD@`, or nothing.
    user: &'a str,
    hosts: Vec<&'a str>,
    path: &'a str,
    query: &'a str,
}

/// The settings of the store that a URL can have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::store) struct UrlSettings {
    pub(in crate::store) acknowledged_by: Option<u8>,
    pub(in crate::store) max_ttl: Option<Duration>,
}

/// Takes the settings of the store out of a URL.
///
/// # Errors
/// `Invalid`, with the value that is refused.
pub(super) fn split_settings(url: &str) -> Result<(String, UrlSettings), Error> {
    let mut settings = UrlSettings::default();
    let Some((place, query)) = url.split_once('?') else {
        return Ok((url.into(), settings));
    };
    let mut rest = Vec::new();
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("acknowledged_by", value)) => {
                let replicas = value.parse().map_err(|_| {
                    refused(&format!(
                        "acknowledged_by={value:?} is not a number of replicas"
                    ))
                })?;
                settings.acknowledged_by = Some(replicas);
            }
            Some(("max_ttl", value)) => {
                let max_ttl = humantime::parse_duration(value).map_err(|_| {
                    refused(&format!("max_ttl={value:?} is not a duration, such as 60s"))
                })?;
                settings.max_ttl = Some(max_ttl);
            }
            _ => rest.push(pair),
        }
    }
    let url = match rest.is_empty() {
        true => place.into(),
        false => format!("{place}?{}", rest.join("&")),
    };
    Ok((url, settings))
}

impl Target {
    /// Parses a URL.
    ///
    /// # Errors
    /// `Invalid`; the message contains no part of the URL that could be a secret.
    pub(super) fn parse(url: &str, tls: &Tls) -> Result<Self, Error> {
        let scheme = url.split("://").next().unwrap_or_default();
        match several_servers(scheme) {
            Some((of_one, "sentinel")) => sentinels(&parts(of_one, url)?, tls),
            Some((of_one, "cluster")) => cluster(&parts(of_one, url)?, tls),
            Some(_) => Err(refused("it is the URL of a store of another kind")),
            None => Address::parse(url, tls).map(|address| Self::One(Box::new(address))),
        }
    }

    /// Returns the URL without its secrets.
    pub(super) fn shown(&self) -> String {
        let join = |places: &[HostPort]| {
            let places: Vec<_> = places.iter().map(ToString::to_string).collect();
            places.join(",")
        };
        match self {
            Self::One(address) => address.to_string(),
            Self::Sentinels {
                server,
                places,
                name,
                ..
            } => format!(
                "{}+sentinel://{}/{name}/{}",
                server.scheme(),
                join(places),
                server.db()
            ),
            Self::Cluster { server, places } => {
                format!("{}+cluster://{}", server.scheme(), join(places))
            }
        }
    }
}

/// Returns a URL for each of the servers that this URL names as a store of another kind, and its settings.
///
/// # Errors
/// `Invalid`; the message contains no part of the URL that could be a secret.
#[cfg(feature = "_remote")]
pub(in crate::store) fn each_server(
    url: &str,
    kind: &str,
) -> Result<(Vec<String>, UrlSettings), Error> {
    let (url, settings) = split_settings(url)?;
    let scheme = url.split("://").next().unwrap_or_default();
    let Some((of_one, _)) = several_servers(scheme).filter(|(_, several)| *several == kind) else {
        return Err(refused(&format!("it is not the URL of a {kind}")));
    };
    let parts = parts(of_one, &url)?;
    let parameters = parts.parameters_without(&[]);
    let hosts = parts.hosts.iter();
    let servers = hosts.map(|host| parts.url_of(host, parts.path, &parameters));
    Ok((servers.collect(), settings))
}

fn parts<'a>(kind: &str, url: &'a str) -> Result<Parts<'a>, Error> {
    if has_stray_at(url) {
        return Err(refused(STRAY_AT));
    }
    let (_, rest) = url
        .split_once("://")
        .ok_or_else(|| refused("it is not a URL"))?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, hosts) = match authority.rfind('@') {
        Some(at) => authority.split_at(at + 1),
        None => ("", authority),
    };
    let parts = Parts {
        scheme: kind.into(),
        user,
        hosts: hosts.split(',').collect(),
        path,
        query,
    };
    if parts.hosts.iter().any(|host| host.is_empty()) {
        return Err(refused("a host is missing"));
    }
    Ok(parts)
}

impl Parts<'_> {
    /// Returns the URL of one of the hosts with these parameters.
    fn url_of(&self, host: &str, db: &str, parameters: &[(String, String)]) -> String {
        let mut url = format!("{}://{}{host}/{db}", self.scheme, self.user);
        for (index, (name, value)) in parameters.iter().enumerate() {
            let mark = if index == 0 { '?' } else { '&' };
            url.push(mark);
            url.push_str(name);
            url.push('=');
            url.push_str(value);
        }
        url
    }

    /// Returns the parameters as they are written, without these.
    fn parameters_without(&self, names: &[&str]) -> Vec<(String, String)> {
        let pairs = self.query.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let pairs = pairs.filter(|(name, _)| !names.contains(name));
        pairs
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    /// Returns the value of a parameter, decoded.
    fn parameter(&self, name: &str) -> Option<String> {
        let url = parse_redis_url(&format!("redis://host?{}", self.query))?;
        let mut pairs = url.query_pairs();
        pairs.find_map(|(key, value)| (key == name).then(|| value.into_owned()))
    }

    fn places(&self, port: u16) -> Result<Vec<HostPort>, Error> {
        self.hosts.iter().map(|host| place(host, port)).collect()
    }
}

fn sentinels(parts: &Parts<'_>, tls: &Tls) -> Result<Target, Error> {
    let (name, db) = parts.path.split_once('/').unwrap_or((parts.path, ""));
    if name.is_empty() {
        return Err(refused(
            "the name of the master is missing; it is the path of the URL",
        ));
    }
    // The rule of Sentinels.
    let is_odd = |letter: char| !letter.is_ascii_alphanumeric() && !".-_".contains(letter);
    if name.contains(is_odd) {
        return Err(refused(
            "the name of the master has other characters than letters, digits, '.', '-' and '_'",
        ));
    }
    if parts.parameter("sentinelServiceName").is_some()
        || parts.parameter("sentinelMasterId").is_some()
    {
        return Err(refused(
            "the name of the master is the path of the URL here",
        ));
    }
    let places = parts.places(SENTINEL_PORT)?;
    let parameters = parts.parameters_without(&SENTINEL_PARAMETERS);
    let server =
        Address::parse(&parts.url_of(parts.hosts[0], db, &parameters), tls).map_err(named)?;
    let [user, password] = SENTINEL_PARAMETERS.map(|name| parts.parameter(name));
    let sentinel = server.with_credentials(user, password);
    Ok(Target::Sentinels {
        sentinel: Box::new(sentinel),
        server: Box::new(server),
        places,
        name: name.into(),
    })
}

fn cluster(parts: &Parts<'_>, tls: &Tls) -> Result<Target, Error> {
    if !matches!(parts.path, "" | "0") {
        return Err(refused("a cluster has only the database 0"));
    }
    if parts.parameter("node").is_some() {
        return Err(refused("further nodes are written HOST,HOST here"));
    }
    let parameters = parts.parameters_without(&[]);
    let server =
        Address::parse(&parts.url_of(parts.hosts[0], "0", &parameters), tls).map_err(named)?;
    Ok(Target::Cluster {
        server: Box::new(server),
        places: parts.places(NODE_PORT)?,
    })
}

/// Parses `HOST[:PORT]`.
fn place(host: &str, default_port: u16) -> Result<HostPort, Error> {
    let bad = || refused("a host cannot be read; expected HOST[:PORT], IPv6 in brackets");
    let info = format!("redis://{host}")
        .into_connection_info()
        .map_err(|_| bad())?;
    let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
    match info.addr() {
        deadpool_redis::redis::ConnectionAddr::Tcp(name, port) => Ok(HostPort::new(
            name,
            if has_port { *port } else { default_port },
        )),
        _ => Err(bad()),
    }
}

/// The message about one server's URL names the forms of that one.
fn named(error: Error) -> Error {
    let why = error.to_string();
    let why = why.split("; expected redis://").next().unwrap_or_default();
    let why = why
        .strip_prefix("store URL refused: ")
        .unwrap_or(why)
        .to_owned();
    refused(&why)
}

fn refused(why: &str) -> Error {
    Error::invalid(format!(
        "store URL refused: {why}; expected redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/NAME[/DB]\
         [?sentinel_username=USER&sentinel_password=PASSWORD] or \
         redis+cluster://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...], rediss+... with TLS as for rediss://, \
         with special characters as %XX"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        Target::parse(url, &Tls::default()).expect(url).shown()
    }

    #[test]
    fn several_hosts_are_read_and_shown_without_secrets() {
        for (url, expected) in [
            ("redis://me:s3cret@db", "redis://db:6379/0"),
            (
                "redis+sentinel://a,b:5000,[::1]:7/main",
                "redis+sentinel://a:26379,b:5000,[::1]:7/main/0",
            ),
            (
                "redis-sentinel://me:s3cret@a/main/3?sentinel_username=you&sentinel_password=s3cret",
                "redis+sentinel://a:26379/main/3",
            ),
            (
                "valkeys+cluster://:s3cret@a,b:7000",
                "valkeys+cluster://a:6379,b:7000",
            ),
            ("rediss-cluster://a:7000/0", "rediss+cluster://a:7000"),
        ] {
            assert_eq!(shown(url), expected);
            let target = Target::parse(url, &Tls::default()).expect(url);
            assert!(!format!("{target:?}").contains("s3cret"));
        }
    }

    #[test]
    fn servers_and_sentinels_have_their_own_credentials() {
        let url =
            "redis+sentinel://me:p%40ss@a/main?sentinel_username=you&sentinel_password=w%26rd";
        let Target::Sentinels {
            sentinel, server, ..
        } = Target::parse(url, &Tls::default()).expect("valid")
        else {
            panic!("it names Sentinels");
        };
        let credentials = |address: &Address| {
            let info = address.info();
            let settings = info.redis_settings();
            let word = |word: Option<&str>| word.unwrap_or_default().to_owned();
            (word(settings.username()), word(settings.password()))
        };
        assert_eq!(credentials(&server), ("me".into(), "p@ss".into()));
        assert_eq!(credentials(&sentinel), ("you".into(), "w&rd".into()));
    }

    #[test]
    fn a_bad_url_is_refused_with_what_is_wrong_and_without_its_secret() {
        for (url, what) in [
            ("redis+sentinel://:s3cret@a,b", "name of the master"),
            (
                "redis+sentinel://:s3cret@a?sentinelServiceName=main",
                "name of the master",
            ),
            (
                "redis+sentinel://:s3cret@a/main?sentinelServiceName=x",
                "path of the URL",
            ),
            ("redis+sentinel://:s3cret@a,,b/main", "host is missing"),
            ("redis+sentinel://:s3cret@a:70000/main", "refused"),
            ("redis+sentinel://:s3cret@a/main/x", "refused"),
            ("redis+sentinel://a/main?pass=s3cret", "parameter"),
            ("redis+cluster://:s3cret@a/1", "database 0"),
            ("redis+cluster://:s3cret@a?node=b", "HOST,HOST"),
            ("redis+cluster://:s3cret@a,b:x", "host cannot be read"),
            ("rediss+cluster://:s3cret@a?ca=/dev/null", "certificate"),
            ("redis+cluster://", "host is missing"),
        ] {
            let error = Target::parse(url, &Tls::default()).expect_err(url);
            let text = format!("{error} {error:?}");
            assert_eq!(error.kind(), crate::ErrorKind::Invalid);
            assert!(text.contains(what), "{url}: {text}");
            assert!(!text.contains("s3cret"), "{text}");
        }
    }
}
