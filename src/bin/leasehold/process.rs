//! The path of this program, and facts about processes that are not its children.

use std::fmt;
use std::fs;
use std::io;

use nix::unistd::{Uid, User};
use rustix::io::Errno;
use rustix::process::{Pid, getpid, test_kill_process};
use tokio::signal::unix::{SignalKind, signal};

/// The running program, even if its file was replaced by another version.
pub const OWN_PROGRAM: &str = "/proc/self/exe";

/// A process at the moment of reading.
#[derive(Debug)]
pub struct Process {
    pub parent: i32,
    /// 0 if it is one outside of this container, as is the session.
    pub group: i32,
    pub session: i32,
    /// Whether the process still runs: it is not a zombie.
    pub is_alive: bool,
    /// Whether it was stopped by a signal.
    pub is_stopped: bool,
}

impl Process {
    /// Reads a process. Returns `None` if there is no process with this number, or it is hidden.
    pub fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Reads this process.
    pub fn own() -> Option<Self> {
        Self::read(getpid().as_raw_pid())
    }

    /// Parses `/proc/PID/stat`. The name is in brackets and may contain any character; state, parent, group and session
    /// follow.
    fn parse(stat: &str) -> Option<Self> {
        let mut words = stat.rsplit_once(')')?.1.split_whitespace();
        let state = words.next()?;
        Some(Self {
            parent: words.next()?.parse().ok()?,
            group: words.next()?.parse().ok()?,
            session: words.next()?.parse().ok()?,
            is_alive: !matches!(state, "Z" | "X"),
            is_stopped: state == "T",
        })
    }
}

/// Returns whether a process runs. Asks the table of processes, not for the right to signal it: a process of another
/// user is alive too.
pub fn is_alive(pid: Pid) -> bool {
    match Process::read(pid.as_raw_pid()) {
        Some(process) => process.is_alive,
        // Hidden from this user (`hidepid`), unless it is gone.
        None => test_kill_process(pid) != Err(Errno::SRCH),
    }
}

/// Returns these processes as messages and files have them.
pub fn numbers(pids: &[Pid]) -> Vec<i32> {
    pids.iter().map(|pid| pid.as_raw_pid()).collect()
}

/// A process that this one may not signal.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Denied {
    /// The process.
    pub pid: i32,
    /// The name of its user, or the number of one without a name.
    pub user: String,
}

impl Denied {
    /// Returns those of these processes that this one may not signal.
    pub fn among(pids: &[Pid]) -> Vec<Self> {
        let denied = pids.iter().filter(|pid| is_denied(**pid));
        let denied = denied.map(|pid| Self {
            pid: pid.as_raw_pid(),
            user: user_of(*pid).unwrap_or_else(|| "another user".into()),
        });
        denied.collect()
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.pid, self.user)
    }
}

fn is_denied(pid: Pid) -> bool {
    test_kill_process(pid) == Err(Errno::PERM)
}

/// Returns the user of a process, by name if there is one.
fn user_of(pid: Pid) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let number = line.split_whitespace().next()?.parse().ok()?;
    let user = User::from_uid(Uid::from_raw(number)).ok().flatten();
    Some(user.map_or_else(|| number.to_string(), |user| user.name))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_the_rest_of_the_line() {
        let process = Process::parse("7 (a) Z 1 2) S 5 6 7 8").expect("read");
        assert_eq!((process.parent, process.group, process.session), (5, 6, 7));
        assert!(process.is_alive && !process.is_stopped);
        assert!(!Process::parse("7 (a) Z 5 6 7 8").expect("read").is_alive);
        assert!(Process::parse("7 (a) T 5 6 7 8").expect("read").is_stopped);
    }

    #[test]
    fn this_process_is_alive_and_may_be_signalled_by_itself() {
        assert!(is_alive(getpid()));
        assert_eq!(Denied::among(&[getpid()]), []);
        assert!(!is_alive(Pid::from_raw(i32::MAX).expect("positive")));
    }

    #[test]
    fn our_parent_is_an_ancestor_and_we_are_not() {
        assert!(is_ancestor(std::os::unix::process::parent_id()));
        assert!(!is_ancestor(std::process::id()));
    }
}
