//! What the kernel says of a process that is not ours to wait for.

use std::fs;

use rustix::process::{Pid, getpid};

/// A process at the moment of reading.
#[derive(Debug)]
pub struct Process {
    pub parent: i32,
    pub group: i32,
    /// Not ended yet, reaped or not.
    pub is_alive: bool,
}

impl Process {
    /// `None` if there is none of this number.
    pub fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Its name stands in brackets and may have any character in it. State, parent and group follow.
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

/// Whether this group has a process that lives, or one that is ours to reap in a moment. One that ended and that nobody
/// reaps, because its parent left the group, does not count. What cannot be looked at is taken for alive.
pub fn has_member(group: Pid) -> bool {
    let (group, reaper) = (group.as_raw_pid(), getpid().as_raw_pid());
    let Ok(entries) = fs::read_dir("/proc") else {
        return true;
    };
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::read)
        .filter(|process| process.group == group)
        .any(|process| process.is_alive || process.parent == reaper)
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
        assert!(has_member(rustix::process::getpgrp()));
    }

    #[test]
    fn a_group_without_a_process_has_none() {
        assert!(!has_member(Pid::from_raw(i32::MAX).expect("positive")));
    }
}
