//! The servers of a store, as every command shows them.

use leasehold::Error;
use leasehold::store::{Member, MemberState};
use serde_json::{Value, json};

use crate::span::milliseconds;

/// Returns a server as it is printed in JSON. Fields are added, never renamed.
pub fn json(member: &Member) -> Value {
    let remaining_ms = match member.state {
        MemberState::Away { remaining } => Some(milliseconds(remaining)),
        _ => None,
    };
    json!({
        "address": member.address,
        "state": word(member.state),
        // For how long it grants nothing, because it came back without its data or was promoted.
        "remaining_ms": remaining_ms,
        "version": member.version,
    })
}

/// Returns `up`, `away`, `standby` or `down`.
pub const fn word(state: MemberState) -> &'static str {
    match state {
        MemberState::Away { .. } => "away",
        MemberState::Standby => "standby",
        MemberState::Down => "down",
        _ => "up",
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

/// Returns whether a command tells of the servers that was not asked for them. A single one that takes part is no news.
pub fn are_notable(members: &[Member]) -> bool {
    members.len() > 1 || members.iter().any(|one| one.state != MemberState::Up)
}

/// Returns the lines of the servers for a command that was not asked for them, or why they are not known: no reason to
/// hide the leases.
pub fn notable(members: &Result<Vec<Member>, Error>) -> Result<String, String> {
    match members {
        Ok(members) if are_notable(members) => Ok(lines(members)),
        Ok(_) => Ok(String::new()),
        Err(error) => Err(format!("the servers were not looked at: {error:#}")),
    }
}

/// Returns a line for each server.
pub fn lines(members: &[Member]) -> String {
    let line = |member: &Member| format!("server: {} {}\n", word(member.state), facts(member));
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
        assert_eq!(json(&away()), expected);
    }
}
