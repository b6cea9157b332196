//! Judges the connection to a store by its URL: pure.

use std::net::IpAddr;

use super::finding::{Finding, Verdict};

/// The connection to a server.
#[derive(Debug, PartialEq, Eq)]
pub struct Link {
    host: String,
    is_encrypted: bool,
    is_local: bool,
    has_password: bool,
}

impl Link {
    /// Parses the connection from a URL. `None` for a store without a server, and for a socket, which uses no network.
    pub fn of(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let of_one = ["sentinel", "cluster", "quorum"]
            .iter()
            .find_map(|several| {
                let scheme = scheme.strip_suffix(several)?;
                scheme.strip_suffix(['+', '-'])
            });
        let scheme = of_one.unwrap_or(scheme);
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let authority = place.split('/').next().unwrap_or_default();
        let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let parameter = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.rev().find(|(key, _)| *key == name)
        };
        let is_local = hosts.split(',').all(is_local);
        let is_encrypted = match scheme {
            "rediss" | "valkeys" => true,
            "redis" | "valkey" | "zookeeper" => false,
            "postgres" | "postgresql" if hosts.is_empty() => return None,
            "postgres" | "postgresql" => match parameter("sslmode") {
                Some((_, mode)) => mode != "disable",
                None => !is_local,
            },
            _ => return None,
        };
        let has_password = user.split_once(':').is_some_and(|(_, it)| !it.is_empty())
            || parameter("password").is_some()
            || parameter("sentinel_password").is_some();
        Some(Self {
            host: hosts.into(),
            is_encrypted,
            is_local,
            has_password,
        })
    }

    pub fn judge(&self) -> Finding {
        let host = &self.host;
        match (self.is_encrypted, self.is_local, self.has_password) {
            (true, _, _) => Finding::ok("link", format!("TLS to {host}")),
            (_, true, _) => {
                Finding::ok("link", format!("plain TCP within this machine, to {host}"))
            }
            (_, _, false) => Finding::ok(
                "link",
                format!("plain TCP to {host}, without a password in the URL"),
            ),
            (_, _, true) => Finding::bad(
                "link",
                Verdict::Warning,
                format!("the password goes to {host} over plain TCP"),
                "a machine on the path can read it, and then take or free every name",
                "Use TLS: rediss://, or sslmode=verify-full with Postgres",
            ),
        }
    }
}

/// Returns whether packets to this host stay on this machine.
fn is_local(host: &str) -> bool {
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let address = host.parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(url: &str) -> Option<Verdict> {
        Link::of(url).map(|link| link.judge().verdict)
    }

    #[test]
    fn a_password_over_plain_tcp_to_another_machine_is_a_warning() {
        for url in [
            "redis://:secret@db",
            "redis://user:se@cret@db:6379/0",
            "valkey://:secret@10.0.0.1",
            "redis+sentinel://:secret@localhost,db/main",
            "redis-sentinel://db/main?sentinel_password=secret",
            "valkey+cluster://:secret@a,b",
            "redis+quorum://:secret@a,b,c",
            "postgres://me:secret@db/jobs?sslmode=disable",
            "postgres://db/jobs?password=secret&sslmode=disable",
            "postgres://me:secret@localhost,db/jobs?sslmode=disable",
        ] {
            assert_eq!(verdict(url), Some(Verdict::Warning), "{url}");
        }
    }

    #[test]
    fn tls_the_own_machine_and_no_password_are_fine() {
        for url in [
            "rediss://:secret@db",
            "rediss+sentinel://:secret@a,b/main",
            "redis://:secret@localhost:6379",
            "redis://:secret@127.0.0.2",
            "redis://:secret@[::1]:6379/0",
            "redis://db",
            "postgres://me:secret@db/jobs",
        ] {
            assert_eq!(verdict(url), Some(Verdict::Ok), "{url}");
        }
    }

    #[test]
    fn a_file_and_a_socket_have_no_link() {
        for url in [
            "sqlite:/a@b",
            "sqlite:///a",
            "redis+unix:///s?pass=x",
            "postgres:///d?host=/run",
        ] {
            assert_eq!(Link::of(url), None, "{url}");
        }
    }

    #[test]
    fn the_finding_has_no_secret() {
        let link = Link::of("redis://user:s3cr3t@db?x=s3cr3t").expect("a server");
        assert!(!format!("{:?} {link:?}", link.judge()).contains("s3cr3t"));
    }
}
