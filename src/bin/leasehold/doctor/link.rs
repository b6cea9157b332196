//! Judges the connection to a store by its URL: pure.

use std::net::IpAddr;

use super::finding::{Finding, Verdict};

/// Judges the connection of a URL. Returns `None` for a store without a server, and for a socket, which uses no
/// network.
pub fn judge(url: &str) -> Option<Finding> {
    let (scheme, rest) = url.split_once("://")?;
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = place.split('/').next()?;
    let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let is_local = hosts.split(',').all(is_local);
    let is_encrypted = match scheme.split(['+', '-']).next()? {
        _ if hosts.is_empty() => return None,
        "rediss" | "valkeys" => true,
        "redis" | "valkey" | "zookeeper" => false,
        "postgres" | "postgresql" if query.contains("sslmode=") => {
            !query.contains("sslmode=disable")
        }
        "postgres" | "postgresql" => !is_local,
        _ => return None,
    };
    let has_password =
        user.split_once(':').is_some_and(|(_, it)| !it.is_empty()) || query.contains("password=");
    let what = match (is_encrypted, is_local, has_password) {
        (true, _, _) => format!("TLS to {hosts}"),
        (_, true, _) => format!("plain TCP within this machine, to {hosts}"),
        (_, _, false) => format!("plain TCP to {hosts}, without a password in the URL"),
        (_, _, true) => format!("the password goes to {hosts} over plain TCP"),
    };
    let is_good = is_encrypted || is_local || !has_password;
    let finding = Finding::new("link", Verdict::warn_unless(is_good), what)
        .endangers("a machine on the path can read it, and then take or free every name")
        .fix("Use TLS: rediss://, or sslmode=verify-full with Postgres");
    Some(finding)
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
        judge(url).map(|link| link.verdict)
    }

    #[test]
    fn a_password_over_plain_tcp_to_another_machine_is_a_warning() {
        for url in [
            "redis://:secret@db",
            "redis://user:se@cret@db:6379/0",
            "valkey://:secret@10.0.0.1",
            "redis+sentinel://:secret@localhost,db/main",
            "redis+sentinel://db/main?sentinel_password=secret",
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
            assert_eq!(judge(url), None, "{url}");
        }
    }

    #[test]
    fn the_finding_has_no_secret() {
        let link = judge("redis://user:s3cr3t@db?x=s3cr3t").expect("a server");
        assert!(!format!("{link:?}").contains("s3cr3t"));
    }
}
