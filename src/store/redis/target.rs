//! The servers of a URL: one server, the master of a group that Sentinels watch, or a cluster.

use std::collections::HashSet;
use std::time::Duration;

use super::address::{Address, PORT, is_of_socket};
use super::protocol::keys::Keys;
use crate::error::Error;
use crate::kinds;
use crate::percent;
use crate::store::Tls;
use crate::store::kit::server_url::{HostPort, Reason, ServerUrl, read_host};

/// The port of a Sentinel, if the URL has none.
const SENTINEL_PORT: u16 = 26_379;
/// The parameters of the store as a whole.
const STORE_PARAMETERS: [&str; 4] = ["prefix", "max_ttl", "acknowledged_by", "alone"];
/// The parameter that maps the addresses that Sentinels and nodes name to those that reach the servers.
const REACH: &str = "reach";
/// The parameters with the credentials of the Sentinels.
const SENTINEL_PARAMETERS: [&str; 2] = ["sentinel_username", "sentinel_password"];
/// The parameters that stand for the parts of a URL that a socket has no room for.
const SOCKET_PARAMETERS: [&str; 3] = ["db", "user", "pass"];

/// The servers of a store, and the settings that its URL has.
#[derive(Debug)]
pub(super) struct Target {
    /// The address of the first host, with the credentials of the servers.
    pub(super) address: Address,
    pub(super) servers: UrlServers,
    pub(super) settings: UrlSettings,
}

/// The servers at the hosts of a URL.
#[derive(Debug, Clone)]
pub(super) enum UrlServers {
    One,
    Sentinels(Box<SentinelGroup>),
    /// The nodes to ask first.
    Cluster(Vec<HostPort>),
}

/// A group of servers, and the Sentinels that watch it.
#[derive(Debug, Clone)]
pub(super) struct SentinelGroup {
    /// The Sentinels' name of the group.
    pub(super) name: String,
    pub(super) endpoints: Vec<HostPort>,
    /// An address with the credentials of the Sentinels.
    pub(super) address: Address,
}

/// The settings of the store that a URL can have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct UrlSettings {
    pub(super) prefix: Option<String>,
    /// Pairs of an endpoint that servers name and the one to connect to.
    pub(super) reach: Vec<[HostPort; 2]>,
    pub(super) acknowledged_by: Option<u8>,
    pub(super) max_ttl: Option<Duration>,
    pub(super) is_alone: Option<bool>,
}

impl UrlSettings {
    fn of(url: &ServerUrl) -> Result<Self, Reason> {
        let replicas = url.parameter("acknowledged_by").map(|value| {
            let why = "its acknowledged_by is not a number of replicas";
            value.parse().map_err(|_| why)
        });
        let max_ttl = url.parameter("max_ttl").map(|value| {
            let why = "its max_ttl is not a duration, such as 60s";
            humantime::parse_duration(value).map_err(|_| why)
        });
        let is_alone = url.parameter("alone").map(|value| match value {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => Err("its alone is neither yes nor no"),
        });
        let pairs = url
            .parameter(REACH)
            .map(|list| list.split(',').map(read_pair).collect());
        Ok(Self {
            prefix: url.parameter("prefix").map(Into::into),
            reach: pairs.transpose()?.unwrap_or_default(),
            acknowledged_by: replicas.transpose()?,
            max_ttl: max_ttl.transpose()?,
            is_alone: is_alone.transpose()?,
        })
    }
}

/// Reads `HOST:PORT=HOST:PORT`.
fn read_pair(text: &str) -> Result<[HostPort; 2], Reason> {
    let why = "its reach is not HOST:PORT=HOST:PORT, or a list of these: the address that servers name, and the one to connect \
               to";
    let (named, reached) = text.split_once('=').ok_or(why)?;
    let endpoint = |text| match read_host(text)? {
        (host, Some(port)) if !host.is_empty() => Ok(HostPort::new(&host, port)),
        _ => Err(Reason::from(why)),
    };
    Ok([endpoint(named)?, endpoint(reached)?])
}

impl Target {
    /// Makes the target of a URL, and reads the certificate files, so that a file that cannot be used is found here.
    /// Facts about TLS that the URL does not give are taken from the builder's settings, and then from the environment.
    ///
    /// # Errors
    /// `Invalid`; the message contains no part of the URL that could be a secret.
    pub(super) fn new(url: &ServerUrl, tls: &Tls) -> Result<Self, Error> {
        let (scheme, kind) = several_servers(&url.scheme).unwrap_or((&url.scheme, ""));
        let tls = match matches!(scheme, "rediss" | "valkeys") {
            true => {
                let own = Tls::of_url(|name| url.parameter(name).map(Into::into))?;
                let tls = own.or(tls.clone()).or(Tls::of_environment()?);
                tls.config()?;
                Some(tls)
            }
            false if tls.is_empty() => None,
            false => {
                let why = "the builder has TLS settings, but the URL does not use TLS";
                return Err(refused(why.into()));
            }
        };
        Self::of(scheme, kind, url, tls).map_err(refused)
    }

    fn of(scheme: &str, kind: &str, url: &ServerUrl, tls: Option<Tls>) -> Result<Self, Reason> {
        let address = |db| Address::new(scheme, url, db, tls);
        let (servers, address) = match kind {
            "sentinel" => {
                let (name, db) = url.path.split_once('/').unwrap_or((&url.path, ""));
                if name.is_empty() {
                    return Err("the name of the master, the path of the URL, is missing".into());
                }
                let address = address(db)?;
                let [user, password] = SENTINEL_PARAMETERS.map(|name| url.parameter(name));
                // A Sentinel that is named twice counts once when their votes are counted.
                let (mut endpoints, mut named) = (url.endpoints(SENTINEL_PORT), HashSet::new());
                endpoints.retain(|endpoint| named.insert(endpoint.clone()));
                let group = SentinelGroup {
                    name: name.into(),
                    endpoints,
                    address: address.with_login(user, password),
                };
                (UrlServers::Sentinels(Box::new(group)), address)
            }
            "cluster" if !matches!(&*url.path, "" | "0") => {
                return Err("a cluster has only the database 0".into());
            }
            "cluster" => (UrlServers::Cluster(url.endpoints(PORT)), address("")?),
            "" if url.hosts.len() > 1 => return Err("it names several servers".into()),
            "" => {
                let db = match is_of_socket(scheme) {
                    true => url.parameter("db").unwrap_or_default(),
                    false => &url.path,
                };
                (UrlServers::One, address(db)?)
            }
            _ => return Err("it is the URL of a store of another kind".into()),
        };
        Ok(Self {
            address,
            servers,
            settings: UrlSettings::of(url)?,
        })
    }

    /// Returns the URL without its secrets, with what all keys begin with, if that is not the default.
    pub(super) fn shown(&self, prefix: &str) -> String {
        let servers = self.shown_servers();
        match prefix {
            Keys::DEFAULT_PREFIX => servers,
            prefix => {
                let mark = if servers.contains('?') { '&' } else { '?' };
                format!("{servers}{mark}prefix={}", percent::encode(prefix))
            }
        }
    }

    fn shown_servers(&self) -> String {
        let join = |endpoints: &[HostPort]| {
            let endpoints: Vec<_> = endpoints.iter().map(ToString::to_string).collect();
            endpoints.join(",")
        };
        let (scheme, db) = (&self.address.scheme, self.address.login.db());
        match &self.servers {
            UrlServers::One => self.address.to_string(),
            UrlServers::Sentinels(group) => {
                let (endpoints, name) = (join(&group.endpoints), percent::encode(&group.name));
                format!("{scheme}+sentinel://{endpoints}/{name}/{db}")
            }
            UrlServers::Cluster(endpoints) => format!("{scheme}+cluster://{}", join(endpoints)),
        }
    }
}

/// Reads a URL, whose scheme may name several servers, and checks what can stand in it.
///
/// # Errors
/// `Invalid`, as for [`Target::new`].
pub(super) fn read(url: &str) -> Result<ServerUrl, Error> {
    // The path of a socket is often written without the empty host before it.
    let url = match url.split_once("+unix:/") {
        Some((scheme, path)) if !path.starts_with('/') => &format!("{scheme}+unix:///{path}"),
        _ => url,
    };
    ServerUrl::read(url).and_then(checked).map_err(refused)
}

fn checked(url: ServerUrl) -> Result<ServerUrl, Reason> {
    let (scheme, kind) = several_servers(&url.scheme).unwrap_or((&url.scheme, ""));
    let known: &[&'static str] = match scheme {
        "redis" | "valkey" => &[],
        "rediss" | "valkeys" => &Tls::PARAMETERS,
        "redis+unix" | "valkey+unix" => &SOCKET_PARAMETERS,
        _ => return Err("its scheme is unknown".into()),
    };
    let of_several: &[&'static str] = match kind {
        "sentinel" => &[&SENTINEL_PARAMETERS[..], &[REACH]].concat(),
        "cluster" => &[REACH],
        _ => &[],
    };
    url.expect_only(&[&STORE_PARAMETERS, of_several, known].concat())?;
    let is_socket = is_of_socket(scheme);
    let mut hosts = url.hosts.iter();
    match hosts.all(|(host, _)| host.is_empty() == is_socket) {
        true => Ok(url),
        false => Err("a host is missing, or a socket has one".into()),
    }
}

/// Returns the URLs of the servers that this URL names as a store of another kind, each with the parameters of all.
///
/// # Errors
/// Why it is refused; it contains no part of the URL that could be a secret.
#[cfg(feature = "_remote")]
pub(crate) fn each_server(url: &str, kind: &str) -> Result<Vec<ServerUrl>, Reason> {
    let url = ServerUrl::read(url).and_then(checked)?;
    let settings = UrlSettings::of(&url)?;
    match several_servers(&url.scheme) {
        Some(_) if settings.acknowledged_by.is_some() => {
            Err(format!("acknowledged_by is of no use in a {kind}").into())
        }
        Some(_) if settings.is_alone.is_some() => {
            Err(format!("alone is of no use in a {kind}").into())
        }
        Some((of_one, several)) if several == kind => Ok(url.each_server(of_one)),
        _ => Err(format!("it is not the URL of a {kind}").into()),
    }
}

fn refused(why: Reason) -> Error {
    Error::invalid(format!(
        "store URL refused: {why}; expected redis://[USER:PASSWORD@]HOST[:PORT][/DB], rediss:// with TLS \
         [?ca=FILE&cert=FILE&key=FILE&server_name=NAME], redis+unix:///PATH[?db=DB&user=USER&pass=PASSWORD], \
         redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/NAME[/DB]\
         [?sentinel_username=USER&sentinel_password=PASSWORD] or \
         redis+cluster://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...], with special characters as %XX"
    ))
}

/// Returns the scheme of one server and the kind of several, `sentinel`, `cluster` or `quorum`, where a scheme of Redis
/// names several.
fn several_servers(scheme: &str) -> Option<(&str, &str)> {
    let (of_one, several) = scheme.split_once('+')?;
    let is_known = kinds::schemes().any(|known| known == scheme);
    (is_known && several != "unix").then_some((of_one, several))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::kit::server_url::assert_listed;
    use crate::store::redis::address::AddressMap;

    fn parse(url: &str) -> Result<Target, Error> {
        Target::new(&read(url)?, &Tls::default())
    }

    fn shown(url: &str) -> String {
        let target = parse(url).expect(url);
        let prefix = target.settings.prefix.as_deref();
        target.shown(prefix.unwrap_or(Keys::DEFAULT_PREFIX))
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
                "redis+sentinel://me:s3cret@a/main/3?sentinel_username=you&sentinel_password=s3cret",
                "redis+sentinel://a:26379/main/3",
            ),
            (
                "valkeys+cluster://:s3cret@a,b:7000",
                "valkeys+cluster://a:6379,b:7000",
            ),
            ("rediss+cluster://a:7000/0", "rediss+cluster://a:7000"),
            (
                "redis://a?prefix=app%2Cx",
                "redis://a:6379/0?prefix=app%2Cx",
            ),
            (
                "redis+unix:/s?prefix=app",
                "redis+unix:///s?db=0&prefix=app",
            ),
        ] {
            assert_eq!(shown(url), expected);
            let target = parse(url).expect(url);
            assert!(!format!("{target:?}").contains("s3cret"));
        }
    }

    #[test]
    fn servers_and_sentinels_have_their_own_credentials() {
        let url =
            "redis+sentinel://me:p%40ss@a/main?sentinel_username=you&sentinel_password=w%26rd";
        let target = parse(url).expect("valid");
        let UrlServers::Sentinels(group) = target.servers else {
            panic!("it names Sentinels");
        };
        let words = |address: &Address| {
            let word = |word: Option<&str>| word.unwrap_or_default().to_owned();
            (
                word(address.login.username()),
                word(address.login.password()),
            )
        };
        assert_eq!(words(&target.address), ("me".into(), "p@ss".into()));
        assert_eq!(words(&group.address), ("you".into(), "w&rd".into()));
    }

    #[test]
    fn servers_are_reached_where_the_url_says() {
        let url = "redis+cluster://a?reach=10.0.0.7:7000=127.0.0.1:30000,[fd00::1]:1=b:2";
        let map = AddressMap::of(parse(url).expect("valid").settings.reach);
        let here = HostPort::new("a", 1);
        let reached = |host, port| map.reached(host, port, &here).expect("known").to_string();
        assert_eq!(reached("10.0.0.7", 7_000), "127.0.0.1:30000");
        assert_eq!(reached("fd00::1", 1), "b:2");
        // Addresses that are not in the list are used as they are named.
        assert_eq!(reached("10.0.0.7", 7_001), "10.0.0.7:7001");
        for bad in ["x", "a=b", "a:1=b", "=b:1", "a:1=b:2,"] {
            let error = parse(&format!("redis+cluster://a?reach={bad}")).expect_err(bad);
            assert!(error.to_string().contains("its reach is not"), "{error}");
        }
    }

    #[test]
    fn a_bad_url_is_refused_with_what_is_wrong_and_without_its_secret() {
        for (url, what) in [
            ("redis+sentinel://:s3cret@a,b", "name of the master"),
            (
                "redis+sentinel://:s3cret@a?sentinelServiceName=main",
                "unknown parameter",
            ),
            ("redis+sentinel://:s3cret@a,,b/main", "host is missing"),
            ("redis+sentinel://:s3cret@a:70000/main", "refused"),
            ("redis+sentinel://:s3cret@a/main/x", "refused"),
            ("redis+sentinel://a/main?pass=s3cret", "parameter"),
            ("redis+cluster://:s3cret@a/1", "database 0"),
            ("redis+cluster://:s3cret@a?node=b", "unknown parameter"),
            ("redis://:s3cret@a,b", "several servers"),
            ("redis+cluster://:s3cret@a,b:x", "host cannot be read"),
            ("rediss+cluster://:s3cret@a?ca=/dev/null", "certificate"),
            ("redis+cluster://", "host is missing"),
        ] {
            let error = parse(url).expect_err(url);
            let text = format!("{error} {error:?}");
            assert_eq!(error.kind(), crate::ErrorKind::Invalid);
            assert!(text.contains(what), "{url}: {text}");
            assert!(!text.contains("s3cret"), "{text}");
        }
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
            let target = parse(url).expect("a valid URL");
            assert!(!format!("{target:?}").contains("s3cret"));
        }
    }

    #[test]
    fn credentials_are_decoded() {
        let login = |url| parse(url).expect("a valid URL").address.login;
        let of_host = login("redis://me:p%40ss%2F@db/3");
        assert_eq!(of_host.username(), Some("me"));
        assert_eq!(of_host.password(), Some("p@ss/"));
        assert_eq!(of_host.db(), 3);
        let of_socket = login("redis+unix:///r.sock?user=me&pass=p%26&db=4");
        assert_eq!((of_socket.password(), of_socket.db()), (Some("p&"), 4));
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
    fn an_unknown_parameter_is_told_which_there_are_and_never_repeated() {
        let told = |url| parse(url).expect_err("refused").to_string();
        let text = told("redis://db?maxttl=60s");
        assert!(text.contains("perhaps max_ttl was meant"), "{text}");
        let text = told("rediss://db?Server-Name=s3cret");
        for part in [
            "perhaps server_name was meant",
            "known are prefix, max_ttl, acknowledged_by, alone, ca, cert, key, server_name",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("s3cret"), "{text}");
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

    #[test]
    fn the_page_of_the_store_lists_each_parameter() {
        let all = [
            &STORE_PARAMETERS[..],
            &SENTINEL_PARAMETERS,
            &Tls::PARAMETERS,
            &[REACH],
            &SOCKET_PARAMETERS,
        ];
        assert_listed("redis", &all.concat());
    }
}
