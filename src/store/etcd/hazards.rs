//! The hazards of leases in etcd, as a table over the servers' reports about themselves.

use super::Etcd;
use super::connection::Ended;
use super::messages::{MemberListRequest, StatusResponse};
use crate::store::Hazard;
use crate::store::Severity::{Critical, Unknown, Warning};
use crate::store::kit::check::{Check, Weakness, found, judge};
use crate::store::record::Failure;

/// The findings about the servers.
#[derive(Debug, Default)]
pub(super) struct SetUp {
    /// Each server that answered, with what it says.
    conditions: Vec<(String, StatusResponse)>,
    /// Number of the members that vote.
    voters: usize,
    /// Why the servers do not report it.
    refused: Option<String>,
    is_plain_login: bool,
}

pub(super) const CHECKS: &[Check<SetUp>] = &[
    Check::new(
        Critical,
        "etcd-revokes-early",
        |it| {
            found_in(it, |said| {
                revokes_early(&said.version).then(|| said.version.clone())
            })
        },
        "A leader that was stuck ends leases before their time, so a name can be granted twice",
        "Update etcd to 3.4.29, 3.5.11 or later",
    ),
    Check::new(
        Critical,
        "etcd-alarm",
        |it| {
            let alarm = |error: &&String| error.contains("alarm:");
            found_in(it, |said| said.errors.iter().find(alarm).cloned())
        },
        "Nothing is granted until the alarm is disarmed",
        "For NOSPACE compact and defragment the members, then run etcdctl alarm disarm; for CORRUPT replace the member",
    ),
    Check::new(
        Warning,
        "etcd-few-members",
        |it| {
            let what = format!("the number of members that vote is {}", it.voters);
            found((1..3).contains(&it.voters), what)
        },
        "Nothing is granted or renewed while one of them is down, and leases are lost with its disk",
        "Run three members or five",
    ),
    Check::new(
        Warning,
        "etcd-plaintext-password",
        |it| found(it.is_plain_login, "the password is sent without TLS"),
        "Who reads the network can take any name",
        "Use etcds://",
    ),
    Check::new(
        Unknown,
        "etcd-check-refused",
        |it| {
            let why = it.refused.as_ref()?;
            Some(Weakness(
                format!("the servers do not describe themselves: {why}").into(),
                None,
            ))
        },
        "Its versions, alarms and members were not read",
        "Ask with a user of the role root",
    ),
];

/// Returns the first finding of a server.
fn found_in(set_up: &SetUp, finds: impl Fn(&StatusResponse) -> Option<String>) -> Option<Weakness> {
    let mut all = set_up.conditions.iter();
    let (server, found) = all.find_map(|(server, said)| Some((server, finds(said)?)))?;
    Some(Weakness(format!("{server}: {}", found.trim()).into(), None))
}

/// Returns whether a leader of this version that was stuck revokes every lease when it comes back.
fn revokes_early(version: &str) -> bool {
    let numbers: Vec<u32> = version
        .split(['.', '-', '+'])
        .map_while(|part| part.parse().ok())
        .collect();
    match numbers[..] {
        [3, 4, patch, ..] => patch < 29,
        [3, 5, patch, ..] => patch < 11,
        [3, minor, ..] => minor < 4,
        [major, ..] => major < 3,
        [] => false,
    }
}

impl Etcd {
    pub(super) async fn all_hazards(&self) -> Result<Vec<Hazard>, Failure> {
        let mut set_up = SetUp {
            is_plain_login: self.address.login.is_some() && self.address.tls.is_none(),
            ..SetUp::default()
        };
        match self.connection.ask(&MemberListRequest {}).await {
            Ok(members) => {
                let voters = members.all.iter().filter(|peer| !peer.is_learner);
                set_up.voters = voters.count();
            }
            Err(Ended::Refused(refusal)) if refusal.is_of_a_right() => {
                set_up.refused = Some(refusal.message);
            }
            Err(ended) => return Err(ended.into()),
        }
        for (server, condition) in self.conditions().await {
            match condition {
                Ok(said) => set_up.conditions.push((server, said)),
                Err(Ended::Refused(refusal)) if refusal.is_of_a_right() => {
                    set_up.refused = Some(refusal.message);
                }
                // The list of members reports one that is down.
                Err(_) => {}
            }
        }
        Ok(judge(CHECKS, &set_up))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(version: &str, error: Option<&str>, voters: usize) -> Vec<&'static str> {
        let condition = StatusResponse {
            version: version.into(),
            errors: error.into_iter().map(Into::into).collect(),
        };
        let set_up = SetUp {
            conditions: vec![("a:2379".into(), condition)],
            voters,
            ..SetUp::default()
        };
        let found = judge(CHECKS, &set_up);
        found.iter().map(|hazard| hazard.id).collect()
    }

    #[test]
    fn a_version_that_revokes_too_early_is_told_and_one_without_the_fault_is_not() {
        for old in [
            "2.3.8",
            "3.3.27",
            "3.4.23",
            "3.4.28",
            "3.5.0",
            "3.5.10",
            "3.5.9-rc.1",
        ] {
            assert_eq!(ids(old, None, 3), ["etcd-revokes-early"], "{old}");
        }
        for good in [
            "3.4.29",
            "3.5.11",
            "3.5.30",
            "3.6.0-alpha.0",
            "3.7.2",
            "4.0.0",
            "",
        ] {
            assert_eq!(ids(good, None, 3), [""; 0], "{good}");
        }
    }

    #[test]
    fn an_alarm_and_too_few_members_are_told() {
        let alarm = "memberID:10276657743932975437 alarm:NOSPACE ";
        assert_eq!(ids("3.7.2", Some(alarm), 5), ["etcd-alarm"]);
        assert_eq!(ids("3.7.2", Some("etcdserver: no leader"), 5), [""; 0]);
        for few in [1, 2] {
            assert_eq!(ids("3.7.2", None, few), ["etcd-few-members"]);
        }
    }
}
