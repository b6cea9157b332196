//! Reads the URL of a store on servers, and decodes its parts.
//!
//! The parts of a URL that messages may show (hosts, path, parameters) consist of few letters; all others have to be
//! written as `%XX`, and are shown so. This refuses connection strings of other programs, with a password behind a `,`
//! or a `;`. A reason for a refusal repeats no part of the URL, because any part may be half of a password.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
#[cfg(feature = "_records")]
use std::time::Duration;

use crate::kinds::nearest;
use crate::percent;

/// Parameters whose values are lists.
const LISTS: [&str; 3] = ["host", "port", "reach"];
/// Parameters of other programs' URLs, which people bring along: of libpq and its poolers, and of clients of Redis.
const FOREIGN: [&str; 14] = [
    "application_name",
    "channel_binding",
    "connect_timeout",
    "connection_limit",
    "db",
    "options",
    "pgbouncer",
    "pool_timeout",
    "protocol",
    "sslnegotiation",
    "ssl_cert_reqs",
    "supa",
    "target_session_attrs",
    "timeout",
];

/// The parts of a URL, decoded.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    pub(crate) scheme: String,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// The hosts, without the brackets of IPv6, and the ports that are written.
    pub(crate) hosts: Vec<(String, Option<u16>)>,
    /// The text between the slash after the hosts and the parameters.
    pub(crate) path: String,
    parameters: Vec<(String, String)>,
}

/// The endpoint of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct HostPort {
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
}

/// Why a URL is refused.
pub(crate) type Reason = Cow<'static, str>;

impl ServerUrl {
    /// Reads a URL of any scheme.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) fn read(url: &str) -> Result<Self, Reason> {
        let (scheme, rest) = url.split_once("://").ok_or("it is not a URL")?;
        // A password with an unwritten '/', '?' or '#' was probably cut in two, and its second half would be shown.
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        if rest[end..].contains('@') {
            return Err(STRAY_AT.into());
        }
        if rest.contains('#') {
            return Err("it has a part after '#'".into());
        }
        let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = before.split_once('/').unwrap_or((before, ""));
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let some = |text| Ok::<_, Reason>(Some(decode(text)?).filter(|text| !text.is_empty()));
        let mut read = Self {
            scheme: scheme.into(),
            user: some(user)?,
            password: some(password)?,
            hosts: hosts.split(',').map(read_host).collect::<Result<_, _>>()?,
            path: plain(path, "its path", "")?,
            parameters: Vec::new(),
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if read.parameter(name).is_some() {
                return Err("it has a parameter twice".into());
            }
            let more = match LISTS.contains(&name) {
                true => ",=[]",
                false => "",
            };
            let value = plain(value, "a parameter's value", more)?;
            read.parameters.push((name.into(), value));
        }
        Ok(read)
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let mut parameters = self.parameters.iter();
        parameters.find_map(|(known, value)| (known == name).then_some(value.as_str()))
    }

    /// Returns the text of a parameter, if it has one.
    #[cfg(feature = "_records")]
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        let text = self.parameter(name).filter(|text| !text.is_empty());
        text.map(Into::into)
    }

    /// Returns a time of at least a second, or this one if none is given.
    ///
    /// # Errors
    /// Why it is refused.
    #[cfg(feature = "_records")]
    pub(crate) fn seconds(&self, name: &str, default: Duration) -> Result<Duration, Reason> {
        self.time(name, Duration::from_secs(1), default)
    }

    /// Returns a time in whole seconds or milliseconds, of at least `least`, or this one if none is given.
    ///
    /// # Errors
    /// The reason for which it is refused.
    #[cfg(feature = "_records")]
    pub(crate) fn time(
        &self,
        name: &str,
        least: Duration,
        default: Duration,
    ) -> Result<Duration, Reason> {
        let Some(text) = self.text(name) else {
            return Ok(default);
        };
        let number = |unit: &str| text.strip_suffix(unit)?.parse().ok();
        let millis = number("ms").map(Duration::from_millis);
        let time = millis.or_else(|| number("s").map(Duration::from_secs));
        time.filter(|time| (least..=Duration::from_secs(3_600)).contains(time))
            .ok_or_else(|| format!("its {name} is not between {least:?} and 3600s").into())
    }

    /// Gives a parameter another name.
    ///
    /// # Errors
    /// The reason, if there is one of that name too.
    pub(crate) fn rename(&mut self, name: &str, to: &str) -> Result<(), Reason> {
        let is_taken = self.parameter(to).is_some();
        match self.parameters.iter_mut().find(|(known, _)| known == name) {
            Some(_) if is_taken => Err("it has a parameter twice, under two names".into()),
            Some((known, _)) => {
                *known = to.into();
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Returns the endpoints of the servers, with this port for those that have none of their own.
    pub(crate) fn endpoints(&self, default_port: u16) -> Vec<HostPort> {
        let hosts = self.hosts.iter();
        hosts
            .map(|(host, port)| HostPort::new(host, port.unwrap_or(default_port)))
            .collect()
    }

    /// Returns the URLs of each of the servers alone, of this scheme.
    pub(crate) fn each_server(&self, scheme: &str) -> Vec<Self> {
        let server = |host: &(String, _)| Self {
            scheme: scheme.into(),
            hosts: vec![host.clone()],
            ..self.clone()
        };
        self.hosts.iter().map(server).collect()
    }

    /// Refuses a parameter other than these.
    ///
    /// # Errors
    /// The reason, with the parameters that there are.
    pub(crate) fn expect_only(&self, known: &[&'static str]) -> Result<(), Reason> {
        let is_unknown = |name: &&String| !known.contains(&name.as_str());
        let mut names = self.parameters.iter().map(|(name, _)| name);
        let Some(name) = names.find(is_unknown) else {
            return Ok(());
        };
        let near = nearest(name, known.iter().copied());
        // Only a word that we have is repeated.
        let foreign = FOREIGN.iter().find(|foreign| *foreign == name);
        let advice = match (near, foreign) {
            (_, Some(foreign)) => format!(" of another program, {foreign}: leave it out"),
            (Some(near), None) => format!(", perhaps {near} was meant"),
            (None, None) => String::new(),
        };
        let known = known.join(", ");
        Err(format!("it has an unknown parameter{advice}; known are {known}").into())
    }
}

impl HostPort {
    pub(crate) fn new(host: &str, port: u16) -> Self {
        let host = host.into();
        Self { host, port }
    }

    /// Returns whether the host is this machine: by its usual name, or by an address that leads back to it.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn is_of_this_machine(&self) -> bool {
        let address = self.host.parse::<std::net::IpAddr>();
        &*self.host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Why a URL with an `@` after its hosts is refused.
const STRAY_AT: &str =
    "it has an '@' after its hosts, so a '/', '?' or '#' in its password may not be written as %XX";

/// Reads `HOST[:PORT]`, with brackets around IPv6.
pub(crate) fn read_host(text: &str) -> Result<(String, Option<u16>), Reason> {
    let odd = "a host cannot be read; expected HOST[:PORT], IPv6 in brackets";
    let (host, rest) = match text.strip_prefix('[') {
        Some(inner) => inner.split_once(']').ok_or(odd)?,
        None => text.find(':').map_or((text, ""), |at| text.split_at(at)),
    };
    let port = match rest.strip_prefix(':').map(str::parse) {
        None if rest.is_empty() => None,
        Some(Ok(port)) if port > 0 => Some(port),
        _ => return Err(odd.into()),
    };
    let host = decode(host)?;
    let is_known = |letter: char| letter.is_alphanumeric() || "-._:%/".contains(letter);
    match host.chars().all(is_known) {
        true => Ok((host, port)),
        false => Err(odd.into()),
    }
}

/// Reads a part of a URL that messages may show: a text of these letters and `%XX`. `what` is its noun for messages.
fn plain(text: &str, what: &str, more: &str) -> Result<String, Reason> {
    let others: String = text
        .chars()
        .filter(|letter| !more.contains(*letter))
        .collect();
    match percent::is_encoded(&others) {
        true => decode(text),
        false => Err(format!(
            "{what} has a letter that is written as %XX; as they are, only letters, digits and - . _ ~ / : are written"
        )
        .into()),
    }
}

fn decode(text: &str) -> Result<String, Reason> {
    let why = "it has a '%' without two hexadecimal digits, or bytes that are not UTF-8";
    Ok(percent::decode(text).ok_or(why)?)
}

/// Asserts that the page of a store lists each of these parameters of its URLs.
#[cfg(test)]
pub(crate) fn assert_listed(store: &str, parameters: &[&str]) {
    let page = format!("{}/src/store/{store}/mod.rs", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(page).expect("the page");
    let rows = page.lines().filter(|line| line.starts_with("//! - `"));
    let rows: Vec<_> = rows.filter_map(|row| row.split_once(": ")).collect();
    for name in parameters {
        let name = format!("`{name}`");
        assert!(
            rows.iter().any(|(names, _)| names.contains(&name)),
            "{name}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_decoded() {
        let read =
            ServerUrl::read("db+x://me:p%40ss%2F:@a,[::1]:7,b:8/x/y?k=v%26&on").expect("valid");
        let words = |text: &str| Some(text.to_owned());
        assert_eq!(
            (&read.user, &read.password),
            (&words("me"), &words("p@ss/:"))
        );
        let hosts = [("a", None), ("::1", Some(7)), ("b", Some(8))];
        assert_eq!(
            read.hosts,
            hosts.map(|(host, port)| (host.to_owned(), port))
        );
        assert_eq!((&*read.scheme, &*read.path), ("db+x", "x/y"));
        assert_eq!(
            (read.parameter("k"), read.parameter("on")),
            (Some("v&"), Some(""))
        );
    }

    #[test]
    fn a_part_that_cannot_be_read_is_refused_without_a_word_of_it() {
        for url in [
            "s3cret",
            "db://me:s3cret@a:70000",
            "db://me:s3cret@a:0",
            "db://me:s3cret%zz@a",
            "db://me:1/s3cret@a",
            "db://a#s3cret",
            "db://[::1s3cret",
            "db://a?s3cret=1&s3cret=2",
            "db://s3cret a",
        ] {
            let Err(reason) = ServerUrl::read(url) else {
                panic!("{url}");
            };
            assert!(!reason.contains("s3cret"), "{reason}");
        }
    }

    #[test]
    fn what_is_shown_has_no_separators_of_other_programs() {
        for url in [
            "db://a/b,password=s3cret",
            "db://a/b;password=s3cret",
            "db://a/b password=s3cret",
            "db://a/b=s3cret",
            "db://a/b?k=x,s3cret",
            "db://a/b?k=x;password=s3cret",
            "db://a/b?k=x s3cret",
            "db://a/b?k=é",
        ] {
            let Err(reason) = ServerUrl::read(url) else {
                panic!("{url}");
            };
            assert!(
                reason.contains("%XX") && !reason.contains("s3cret"),
                "{reason}"
            );
        }
        let read = ServerUrl::read("db://a/b%2Cc%20d?host=x,y&k=%3B").expect("good");
        assert_eq!((&*read.path, read.parameter("k")), ("b,c d", Some(";")));
    }

    #[test]
    fn an_unknown_parameter_gets_the_nearest_known_one() {
        let told = |url: &str| {
            let read = ServerUrl::read(url).expect("whole");
            read.expect_only(&["max_ttl", "ca"]).expect_err("refused")
        };
        for name in ["max-ttl", "maxttl", "MAX_TTL", "max_tll"] {
            let text = told(&format!("db://a?{name}=60s"));
            assert!(text.contains("perhaps max_ttl was meant"), "{text}");
        }
        let text = told("db://a?channel_binding=require");
        assert!(
            text.contains("another program, channel_binding: leave it out"),
            "{text}"
        );
        assert!(told("db://a?s3cret=1").ends_with("parameter; known are max_ttl, ca"));
    }
}
