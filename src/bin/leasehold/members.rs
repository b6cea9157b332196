//! The servers of a store, as every command shows them.

use std::fmt;

use leasehold::Error;
use leasehold::store::{Member, MemberState};
use serde::Serialize;

use crate::span::milliseconds;

/// A server as programs read it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Server {
    /// The address of the server, or the path of a file, without secrets.
    address: String,
    state: ServerState,
    /// How long it still grants nothing; `null` unless it is `away`.
    remaining_ms: Option<u64>,
    /// The name and version of its program; `null` if it does not show it.
    version: Option<String>,
}

/// Whether a server takes part, in one word.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ServerState {
    /// it takes part
    Up,
    /// it grants nothing for a while, because it came back without its data or was promoted
    Away,
    /// it would grant only after a failover
    Standby,
    /// it cannot be reached
    Down,
}

impl Server {
    pub fn of(member: &Member) -> Self {
        Self {
            address: member.address.clone(),
            state: member.state.into(),
            remaining_ms: match member.state {
                MemberState::Away { remaining } => Some(milliseconds(remaining)),
                _ => None,
            },
            version: member.version.clone(),
        }
    }
}

impl From<MemberState> for ServerState {
    fn from(state: MemberState) -> Self {
        match state {
            MemberState::Away { .. } => Self::Away,
            MemberState::Standby => Self::Standby,
            MemberState::Down => Self::Down,
            _ => Self::Up,
        }
    }
}

impl fmt::Display for ServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Returns the address of a server, its version, and why it grants nothing and for how long.
pub fn facts(member: &Member) -> String {
    let version = member.version.iter().map(|version| format!(" ({version})"));
    let role = match member.state {
        MemberState::Standby => ", a standby that grants nothing".into(),
        MemberState::Away { remaining } => format!(", for another {remaining:.0?}"),
        _ => String::new(),
    };
    format!("{}{}{role}", member.address, version.collect::<String>())
}

/// Returns whether a command mentions the servers unasked. A single server that takes part is no news.
pub fn are_notable(members: &[Member]) -> bool {
    members.len() > 1 || members.iter().any(|one| one.state != MemberState::Up)
}

/// Returns the lines about the servers that a command prints unasked, or why they are not known, which is no reason to
/// hide the leases.
pub fn notable(members: &Result<Vec<Member>, Error>) -> Result<String, String> {
    match members {
        Ok(members) if are_notable(members) => Ok(lines(members)),
        Ok(_) => Ok(String::new()),
        Err(error) => Err(format!("the servers could not be read: {error:#}")),
    }
}

/// Returns a line for each server.
pub fn lines(members: &[Member]) -> String {
    let line = |member: &Member| {
        format!(
            "server: {} {}\n",
            ServerState::from(member.state),
            facts(member)
        )
    };
    members.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn away() -> Member {
        let remaining = Duration::from_millis(41_200);
        Member::new("b", MemberState::Away { remaining })
    }

    #[test]
    fn each_server_has_a_line_and_a_single_one_is_told_unless_it_is_well() {
        let up = Member::new("a", MemberState::Up).with_version(Some("redis 7.0.15".into()));
        assert!(!are_notable(std::slice::from_ref(&up)));
        assert!(are_notable(&[away()]));
        let all = [up, away(), Member::new("c", MemberState::Down)];
        assert!(are_notable(&all));
        assert_eq!(
            lines(&all),
            "server: up a (redis 7.0.15)\nserver: away b, for another 41s\nserver: down c\n"
        );
    }

    #[test]
    fn a_row_has_how_long_it_keeps_out() {
        let expected = serde_json::json!({
            "address": "b", "state": "away", "remaining_ms": 41_200, "version": null,
        });
        assert_eq!(
            serde_json::to_value(Server::of(&away())).expect("JSON"),
            expected
        );
    }
}
