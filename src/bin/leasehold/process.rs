//! The path of this program, and facts about processes that are not its children.

use std::fs;
use std::io;

use rustix::process::{Pid, getpid};
use tokio::signal::unix::{SignalKind, signal};

/// The running program, even if its file was replaced by another version.
pub const OWN_PROGRAM: &str = "/proc/self/exe";

/// A process at the moment of reading.
#[derive(Debug)]
pub struct Process {
    pub parent: i32,
    pub group: i32,
    /// Says whether the process still runs: it is not a zombie.
    pub is_alive: bool,
}

impl Process {
    /// Reads a process. Returns `None` if there is no process with this number.
    pub fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Parses `/proc/PID/stat`. The name is in brackets and may contain any character; state, parent and group follow.
    fn parse(stat: &str) -> Option<Self> {
        let mut words = stat.rsplit_once(')')?.1.split_whitespace();
        let state = words.next()?;
        Some(Self {
            parent: words.next()?.parse().ok()?,
            group: words.next()?.parse().ok()?,
            is_alive: !matches!(state, "Z" | "X"),
        })
    }
}

/// Listens for these signals. The future waits for one of them, and returns its number.
pub fn signalled(kinds: [SignalKind; 2]) -> io::Result<impl Future<Output = i32>> {
    let [mut one, mut other] = [signal(kinds[0])?, signal(kinds[1])?];
    Ok(async move {
        let kind = tokio::select! {
            _ = one.recv() => kinds[0],
            _ = other.recv() => kinds[1],
        };
        kind.as_raw_value()
    })
}

/// Returns whether a holder's host is this one.
pub fn is_this_host(host: &str) -> bool {
    rustix::system::uname().nodename().to_string_lossy() == host
}

/// Returns whether this process runs, directly or not, below the process with this number.
pub fn is_ancestor(pid: u32) -> bool {
    let mut above = getpid().as_raw_pid();
    while let Some(process) = Process::read(above) {
        above = process.parent;
        if u32::try_from(above) == Ok(pid) {
            return true;
        }
    }
    false
}

/// Returns whether this group has a living process, or a dead one that is ours to reap. A dead process whose parent
/// left the group and does not reap it does not count. If `/proc` cannot be read, the group is assumed to be alive.
pub fn has_member(group: Pid) -> bool {
    let reaper = getpid().as_raw_pid();
    let Some(members) = members(group) else {
        return true;
    };
    let mut members = members.iter();
    members.any(|(_, process)| process.is_alive || process.parent == reaper)
}

/// Returns the living processes of this group, as far as `/proc` shows them.
pub fn living(group: Pid) -> Vec<i32> {
    let members = members(group).unwrap_or_default().into_iter();
    let living = members.filter(|(_, process)| process.is_alive);
    living.map(|(pid, _)| pid).collect()
}

/// Returns all processes of this group with their numbers, or `None` if `/proc` cannot be read.
fn members(group: Pid) -> Option<Vec<(i32, Process)>> {
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let processes = pids.filter_map(|pid| Some((pid, Process::read(pid)?)));
    let is_member = |process: &Process| process.group == group.as_raw_pid();
    Some(
        processes
            .filter(|(_, process)| is_member(process))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_the_rest_of_the_line() {
        let process = Process::parse("7 (a) Z 1 2) S 5 6 7 8").expect("read");
        assert_eq!((process.parent, process.group), (5, 6));
        assert!(process.is_alive);
        assert!(!Process::parse("7 (a) Z 5 6 7 8").expect("read").is_alive);
    }

    #[test]
    fn our_own_group_has_a_member() {
        let group = rustix::process::getpgrp();
        assert!(has_member(group));
        assert!(living(group).contains(&getpid().as_raw_pid()));
    }

    #[test]
    fn our_parent_is_an_ancestor_and_we_are_not() {
        assert!(is_ancestor(std::os::unix::process::parent_id()));
        assert!(!is_ancestor(std::process::id()));
    }

    #[test]
    fn a_group_without_a_process_has_none() {
        assert!(!has_member(Pid::from_raw(i32::MAX).expect("positive")));
    }
}
