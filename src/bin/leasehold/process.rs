//! What the kernel says of a process that is not ours to wait for.

use std::fs;

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

/// All processes; `None` if they cannot be listed.
pub fn all() -> Option<impl Iterator<Item = Process>> {
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Some(pids.filter_map(Process::read))
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
    fn we_are_among_all() {
        let own = Process::read(std::process::id().cast_signed()).expect("we live");
        let mut all = all().expect("listed");
        assert!(all.any(|process| process.parent == own.parent && process.group == own.group));
    }
}
