//! Faults in the ensemble's set-up.

use std::time::Duration;

use super::Zookeeper;
use super::failure::Failure;
use crate::clock::{Boottime, Clock, wall_clock_us};
use crate::store::Hazard;
use crate::store::Severity::Warning;
use crate::store::kit::budget::Budget;
use crate::store::kit::check::{Check, found, judge};

/// The node with the ensemble's configuration.
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
    pub(super) async fn hazards_of_set_up(&self, budget: Budget) -> Result<Vec<Hazard>, Failure> {
        let call = self.call(budget).await?;
        call.freshen().await?;
        let sent_at = Boottime.now();
        let stat = call.freshen().await?;
        let wrote_in = Boottime.now().since(sent_at);
        // Not visible to every user: then the URL has to supply them.
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
