//! Finds and ends the descendants of a process, whatever their group or session.
//!
//! Below a subreaper that was started without children is exactly what it started, so three processes end a job by
//! this one walk: the guardian and the warden below themselves, the tool below the warden. A pass reads who is below,
//! parents first, and signals each process right after it was read, which leaves its number no time to be used again.
//! What was forked meanwhile is met by the next pass: passes are repeated until nothing is left.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::process::{self, Process};

/// How long a job is killed before the tool gives up: what still lives waits in the kernel for a disk, or may not be
/// signalled.
pub const GIVE_UP: Duration = Duration::from_secs(5);

/// Whether the kernel lists the children of a process. Some kernels are built without.
static HAS_LISTS: LazyLock<bool> =
    LazyLock::new(|| Path::new("/proc/thread-self/children").exists());

/// Returns the pause after this many passes. None at first, because only a faster pass catches a process that forks;
/// later a pause that leaves the processor to those that are to end.
pub const fn pause(passes: u32) -> Duration {
    match passes {
        0..20 => Duration::ZERO,
        20..100 => Duration::from_millis(1),
        _ => Duration::from_millis(10),
    }
}

/// Calls `visit` with each process below this one, parents first. It returns whether to go on below that process.
pub fn walk(root: Pid, mut visit: impl FnMut(Pid) -> bool) {
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        parents.extend(children(parent).into_iter().filter(|child| visit(*child)));
    }
}

/// Sends KILL to everything below this process, but to none of the `spared` and to nothing below these.
pub fn kill(root: Pid, spared: &[Pid]) {
    walk(root, |pid| {
        let is_ended = !spared.contains(&pid);
        if is_ended {
            let _ = kill_process(pid, Signal::KILL);
        }
        is_ended
    });
}

/// Returns the living processes below this one.
pub fn living(root: Pid) -> Vec<Pid> {
    let mut living = Vec::new();
    walk(root, |pid| {
        if process::is_alive(pid) {
            living.push(pid);
        }
        true
    });
    living
}

/// Returns the children of a process, dead ones that were not reaped included.
pub fn children(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_pid();
    if !*HAS_LISTS {
        let is_child = |pid: &i32| Process::read(*pid).is_some_and(|child| child.parent == parent);
        let children = numbers("/proc").into_iter().filter(is_child);
        return children.filter_map(Pid::from_raw).collect();
    }
    // Each thread has the list of those that it started.
    let threads = format!("/proc/{parent}/task");
    let lists = numbers(&threads)
        .into_iter()
        .filter_map(|thread| fs::read_to_string(format!("{threads}/{thread}/children")).ok());
    let pids = lists.flat_map(|list| {
        let pids = list.split_whitespace().map(str::parse);
        pids.filter_map(|pid| Pid::from_raw(pid.ok()?))
            .collect::<Vec<_>>()
    });
    pids.collect()
}

/// Returns the numbers that are names in a folder.
fn numbers(folder: &str) -> Vec<i32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    /// Starts a shell with a child and a grandchild; it says when they are there.
    fn family() -> std::process::Child {
        let script = "sh -c 'sleep 20 & echo up; wait' & wait";
        let mut shell = Command::new("sh")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut up = [0; 3];
        let stdout = shell.stdout.as_mut().expect("piped");
        stdout.read_exact(&mut up).expect("said");
        shell
    }

    #[test]
    fn children_of_children_are_below_and_a_kill_ends_all_of_them() {
        let mut shell = family();
        let root = Pid::from_child(&shell);
        assert_eq!(children(root).len(), 1);
        let below = living(root);
        assert_eq!(below.len(), 2, "{below:?}");
        // The shell waits for its child, and ends with it.
        kill(root, &[]);
        shell.wait().expect("our child");
        while below.iter().any(|pid| process::is_alive(*pid)) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_is_spared_lives_on_with_all_below_it() {
        let mut shell = family();
        let root = Pid::from_child(&shell);
        kill(root, &children(root));
        assert_eq!(living(root).len(), 2);
        kill(root, &[]);
        shell.wait().expect("our child");
    }

    #[test]
    fn the_pauses_grow() {
        assert_eq!(pause(19), Duration::ZERO);
        assert!(pause(20) < pause(100));
    }
}
