//! Faults in the ensemble's set-up, and which of its servers answer.

use std::io;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Zookeeper;
use super::failure::Failure;
use crate::clock::{Boottime, Clock, wall_clock_us};
use crate::store::Severity::Warning;
use crate::store::budget::Budget;
use crate::store::check::{Check, found, judge};
use crate::store::{Hazard, Member, MemberState};

/// Where the servers of an ensemble are written down.
const ENSEMBLE: &str = "/zookeeper/config";
/// Largest difference between the leader's clock and ours.
const APART: Duration = Duration::from_secs(1);
/// Limit for a write: a lease of 3 s is renewed every second.
const SLOW: Duration = Duration::from_millis(500);

/// The findings.
#[derive(Debug)]
struct SetUp {
    servers: usize,
    has_login: bool,
    wrote_in: Duration,
    apart: Duration,
}

impl Zookeeper {
    pub(super) async fn judge_set_up(&self, limit: Duration) -> Result<Vec<Hazard>, Failure> {
        let call = self.call(Budget::new(limit)).await?;
        call.freshen().await?;
        let sent_at = Boottime.now();
        let stat = call.freshen().await?;
        let wrote_in = Boottime.now().since(sent_at);
        // Not to be seen by everybody: then the URL has to tell.
        let (ensemble, _) = call.data(ENSEMBLE).await.unwrap_or_default();
        let ensemble = String::from_utf8_lossy(&ensemble);
        let listed = ensemble.lines().filter(|line| line.starts_with("server."));
        let our_clock = Duration::from_micros(wall_clock_us());
        let set_up = SetUp {
            servers: listed.count().max(self.shared.address.servers.len()),
            has_login: self.shared.address.login.is_some(),
            wrote_in,
            apart: our_clock.abs_diff(stat.stamp.since_1970()),
        };
        Ok(judge(CHECKS, &set_up))
    }

    pub(super) async fn look_at_servers(&self, limit: Duration) -> Vec<Member> {
        let servers = &self.shared.address.servers;
        let looks = servers.iter().map(|server| async move {
            let answer = timeout(limit, ask(server)).await.ok();
            let answer = answer.and_then(Result::ok).unwrap_or_default();
            let (state, version) = read_answer(&answer);
            Member::new(server.clone(), state).with_version(version)
        });
        join_all(looks).await
    }
}

/// Returns a server's report about itself.
async fn ask(server: &str) -> io::Result<String> {
    let mut connection = TcpStream::connect(server).await?;
    connection.write_all(b"srvr").await?;
    let mut answer = String::new();
    let mut connection = connection.take(64 * 1024);
    connection.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Returns whether the server serves, and its version. One that forbids the question at least answers; the answer of
/// one that does not is empty.
fn read_answer(answer: &str) -> (MemberState, Option<String>) {
    if answer.is_empty() || answer.contains("not currently serving") {
        return (MemberState::Down, None);
    }
    let mut lines = answer.lines();
    let version = lines.find_map(|line| line.strip_prefix("Zookeeper version: "));
    let number = version.and_then(|version| version.split(['-', ',']).next());
    (
        MemberState::Up,
        number.map(|number| format!("ZooKeeper {number}")),
    )
}

/// Faults that weaken the promises.
const CHECKS: &[Check<SetUp>] = &[
    Check::new(
        Warning,
        "zookeeper-one-server",
        |set_up| {
            let servers = set_up.servers;
            let what = format!("the ensemble has too few servers to lose one: servers={servers}");
            found(servers < 3, what)
        },
        "No lease is granted or renewed while a server is down",
        "Run an ensemble of three or five servers, and name all of them in the URL",
    ),
    Check::new(
        Warning,
        "zookeeper-plaintext-password",
        |set_up| found(set_up.has_login, "the password is sent without encryption"),
        "A machine on the way can read it, and then take or free every name",
        "Keep servers and clients on a network of their own",
    ),
    Check::new(
        Warning,
        "zookeeper-open-access",
        |set_up| {
            let what = "the URL has no user, so the nodes are open to the world";
            found(!set_up.has_login, what)
        },
        "Every program that reaches the servers can read, take and evict leases",
        "Put USER:PASSWORD@ into the URL, so that only this user can use the nodes",
    ),
    Check::new(
        Warning,
        "zookeeper-slow-writes",
        |set_up| {
            let ms = set_up.wrote_in.as_millis();
            found(
                set_up.wrote_in > SLOW,
                format!("a write takes long: write_ms={ms}"),
            )
        },
        "Leases with a ttl of less than six times that can be lost",
        "Give the servers a disk of their own for dataLogDir, or raise the ttl",
    ),
    Check::new(
        Warning,
        "zookeeper-clock",
        |set_up| {
            let ms = set_up.apart.as_millis();
            found(
                set_up.apart > APART,
                format!("the leader's clock is {ms} ms from ours"),
            )
        },
        "Tokens can fall when the servers lose their data",
        "Run a time daemon on the servers and on this machine",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_whether_it_serves_and_what_it_is() {
        let up = "Zookeeper version: 3.8.0-5a02, built on 2022\nMode: leader\n";
        let (state, version) = read_answer(up);
        assert_eq!(state, MemberState::Up);
        assert_eq!(version.as_deref(), Some("ZooKeeper 3.8.0"));
        let forbidden = "srvr is not executed because it is not in the whitelist.\n";
        assert_eq!(read_answer(forbidden), (MemberState::Up, None));
        let electing = "This ZooKeeper instance is not currently serving requests\n";
        for answer in ["", electing] {
            assert_eq!(read_answer(answer), (MemberState::Down, None));
        }
    }

    fn sound() -> SetUp {
        SetUp {
            servers: 3,
            has_login: true,
            wrote_in: Duration::from_millis(5),
            apart: Duration::ZERO,
        }
    }

    fn ids(found: &SetUp) -> Vec<&'static str> {
        judge(CHECKS, found)
            .iter()
            .map(|hazard| hazard.id)
            .collect()
    }

    #[test]
    fn each_weakness_is_found() {
        assert_eq!(ids(&sound()), ["zookeeper-plaintext-password"]);
        let weak = SetUp {
            servers: 1,
            has_login: false,
            wrote_in: Duration::from_secs(1),
            apart: Duration::from_secs(9),
        };
        assert_eq!(
            ids(&weak),
            [
                "zookeeper-one-server",
                "zookeeper-open-access",
                "zookeeper-slow-writes",
                "zookeeper-clock"
            ]
        );
    }
}
