//! Several users of one machine, who share the file that the page of the tool tells them to.
//!
//! Their numbers are free ones: the kernel asks for no names.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::{HOLDER, Process, Sandbox, wait_until};
use crate::harness::tree::root;
use crate::sqlite::surroundings;

const GROUP: &str = "61000";
const FIRST: &str = "61001";
const SECOND: &str = "61002";
const ROOT: &str = "0";
/// One who is not of the group.
const STRANGER: &str = "61003";

/// Returns a folder that every user can enter, with the tool, `backup.sh`, and the folder that the page's first line
/// makes; and the rest of the page's lines. `None` where the tests may not become other users.
fn shared() -> Option<(Sandbox, String)> {
    if !rustix::process::geteuid().is_root() {
        // As root every test is to run; otherwise the caller has said what is skipped.
        assert!(!surroundings::are_allowed() || std::env::var_os("LEASEHOLD_TEST_SKIP").is_some());
        return None;
    }
    let sandbox = Sandbox::new();
    let every_user = fs::Permissions::from_mode(0o1777);
    fs::set_permissions(sandbox.0.path(), every_user).expect("set");
    fs::copy(env!("CARGO_BIN_EXE_leasehold"), sandbox.path("leasehold")).expect("copied");
    fs::write(sandbox.path("backup.sh"), format!("#!/bin/sh\n{HOLDER}\n")).expect("written");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(sandbox.path("backup.sh"), executable).expect("set");
    let page = fs::read_to_string(root().join("src/bin/leasehold/README.md")).expect("there");
    let (_, block) = page
        .split_once("Several users of one machine")
        .expect("there");
    let block = block.split("```").nth(1).expect("a block");
    let lines = block.strip_prefix("sh\n").expect("of a shell");
    let (first, rest) = lines.split_once('\n').expect("two lines");
    let first = first.replace("-g backup", &format!("-g {GROUP}"));
    assert!(first.contains(GROUP), "{first}");
    let made = sandbox.program("sh", &["-c", &first]);
    assert_eq!(sandbox.start(made).end().code, Some(0));
    Some((sandbox, rest.into()))
}

/// Starts these lines of a shell as this user, under the strictest of masks.
fn start_as(sandbox: &Sandbox, user: &str, group: &str, lines: &str) -> Process {
    let words = [
        "--reuid", user, "--regid", user, "--groups", group, "sh", "-c",
    ];
    let lines = format!("umask 077; {lines}");
    let words = [&words as &[&str], &[&lines]].concat();
    let mut command = sandbox.program("setpriv", &words);
    let path = sandbox.0.path().display();
    command
        .env("PATH", format!("{path}:/usr/bin:/bin"))
        .env_remove("LEASEHOLD_STORE")
        .env_remove("XDG_RUNTIME_DIR")
        .env("TMPDIR", sandbox.0.path());
    sandbox.start(command)
}

/// Asserts that all that is in this folder, at least so many files, is of the group and for it.
fn assert_of_the_group(folder: &Path, least: usize) {
    let entries: Vec<_> = fs::read_dir(folder).expect("a folder").flatten().collect();
    assert!(entries.len() >= least, "{entries:?}");
    for entry in entries {
        let found = entry.metadata().expect("facts");
        assert_eq!(found.gid().to_string(), GROUP, "{entry:?}");
        assert_eq!(found.mode() & 0o777, 0o660, "{entry:?}");
    }
}

#[test]
fn the_users_of_a_group_exclude_each_other_by_the_lines_of_the_page() {
    let Some((sandbox, lines)) = shared() else {
        return;
    };
    let leases = sandbox.path("leases");
    let without_waiting = lines.replace("leasehold run", "leasehold run -n");
    assert_ne!(without_waiting, lines);
    let ended = |user| start_as(&sandbox, user, GROUP, &without_waiting).end();
    for (holder, rival) in [
        (FIRST, SECOND),
        (SECOND, FIRST),
        (ROOT, FIRST),
        (FIRST, ROOT),
    ] {
        let mut run = start_as(&sandbox, holder, GROUP, &lines);
        sandbox.mark("first");
        // The file, its two logs, and the FIFO.
        assert_of_the_group(&leases, 4);
        let held = ended(rival);
        assert_eq!(held.code, Some(75), "{held:?}");
        sandbox.let_go();
        let run = run.end();
        assert_eq!(run.code, Some(0), "{run:?}");
        // The mark is of another user, and the job is not to wait.
        fs::remove_file(sandbox.path("first")).expect("a mark");
        let after = ended(rival);
        assert_eq!(after.code, Some(0), "{after:?}");
        for mark in ["first", "go"] {
            fs::remove_file(sandbox.path(mark)).expect("a mark");
        }
    }
    assert_of_the_group(&leases, 1);
    let stranger = start_as(&sandbox, STRANGER, STRANGER, &without_waiting).end();
    assert_eq!(stranger.code, Some(77), "{stranger:?}");
}

#[test]
fn users_of_a_group_wake_each_other() {
    let Some((sandbox, lines)) = shared() else {
        return;
    };
    let bells = sandbox.path("leases/leases.sqlite-bells");
    for (holder, waiting) in [(FIRST, SECOND), (ROOT, FIRST), (SECOND, ROOT)] {
        let mut holding = start_as(&sandbox, holder, GROUP, &lines);
        sandbox.mark("first");
        let mut next = start_as(&sandbox, waiting, GROUP, &lines);
        // Made, and then given to the group.
        wait_until("a bell of the group", || {
            let mode = |path: &Path| fs::metadata(path).map(|found| found.mode() & 0o7777);
            let bell = fs::read_dir(&bells).ok().and_then(|mut bells| bells.next());
            let bell = bell.and_then(Result::ok).map(|bell| mode(&bell.path()));
            matches!((mode(&bells), bell), (Ok(0o2770), Some(Ok(0o660))))
        });
        assert_of_the_group(&bells, 1);
        assert_eq!(
            fs::metadata(&bells).expect("facts").gid().to_string(),
            GROUP
        );
        let may_ring = format!("test -w {}/* -a -r {0}/*", bells.display());
        for user in [FIRST, SECOND] {
            let tested = start_as(&sandbox, user, GROUP, &may_ring).end();
            assert_eq!(tested.code, Some(0), "{tested:?}");
        }
        let stranger = start_as(&sandbox, STRANGER, STRANGER, &may_ring).end();
        assert_eq!(stranger.code, Some(1), "{stranger:?}");
        sandbox.let_go();
        for run in [&mut holding, &mut next] {
            let ended = run.end();
            assert_eq!(ended.code, Some(0), "{ended:?}");
        }
        for mark in ["first", "go"] {
            fs::remove_file(sandbox.path(mark)).expect("a mark");
        }
        fs::remove_dir_all(&bells).expect("removed");
    }
}

#[test]
fn users_of_a_group_that_open_and_close_the_file_at_once_are_never_refused() {
    let Some((sandbox, _)) = shared() else {
        return;
    };
    let loops = "for i in $(seq 20); do leasehold run --store sqlite:leases/leases.sqlite $0 -- true \
        || { echo $?; exit 1; }; done";
    for _ in 0..3 {
        let mut runs = [FIRST, SECOND].map(|user| {
            let name = format!("of-{user}");
            start_as(&sandbox, user, GROUP, &loops.replace("$0", &name))
        });
        for run in &mut runs {
            let ended = run.end();
            assert_eq!(ended.code, Some(0), "{ended:?}");
        }
    }
}

/// An open of the file by another user is under way: its log may not be there for the group so far.
#[test]
fn a_user_does_not_open_the_file_while_another_user_of_the_group_does() {
    let Some((sandbox, _)) = shared() else {
        return;
    };
    let line = "leasehold run --connect-timeout 1s --store sqlite:leases/leases.sqlite x -- true";
    let ends_with = |user, code| {
        let ended = start_as(&sandbox, user, GROUP, line).end();
        assert_eq!(ended.code, Some(code), "{ended:?}");
    };
    ends_with(FIRST, 0);
    let opening = fs::File::open(sandbox.path("leases")).expect("a folder");
    opening.lock().expect("no one opens the file");
    ends_with(SECOND, 69);
    drop(opening);
    ends_with(SECOND, 0);
}
