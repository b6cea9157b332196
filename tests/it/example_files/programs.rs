//! The programs that need no server. `tests/run` builds them with the tests; alone, build them first with
//! `cargo build --workspace --all-features --examples`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The path of an example.
pub(super) fn built(example: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let built = tests.parent().unwrap().parent().unwrap();
    built.join("examples").join(example)
}

/// Runs an example in a folder of its own, to its end. Returns what it printed.
fn run_example(example: &str, folder: &Path) -> String {
    let program = built(example);
    let ended = Command::new(&program).env("TMPDIR", folder).output();
    let ended = ended.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success(), "{example}: {ended:?}");
    said
}

#[test]
fn each_program_that_needs_no_server_runs_to_its_end() {
    for (example, expected) in [
        ("batch_job", "sum 210"),
        ("leader", "the work has ended"),
        ("permits", "frame 7 on gpu#"),
        ("fifty_names", "released: Released"),
        ("blocking_rusqlite", "wrote 210 under token"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let said = run_example(example, folder.path());
        assert!(said.contains(expected), "{example}: {said}");
    }
}

#[test]
fn the_leader_that_drains_leaves_no_order_that_it_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let said = run_example("draining_leader", folder.path());
    let last = said
        .lines()
        .last()
        .and_then(|line| line.strip_prefix("drained: "));
    let (filled, accepted) = last.and_then(|last| last.split_once(" of ")).unwrap();
    assert_eq!(format!("{filled} orders"), accepted);
    assert!(said.lines().count() > 2, "{said}");
}

#[test]
fn the_hourly_program_runs_once_though_it_is_started_thrice() {
    let folder = tempfile::tempdir().unwrap();
    let said: Vec<_> = (0..3)
        .map(|_| run_example("once_an_hour", folder.path()))
        .collect();
    assert!(said[0].starts_with("running"), "{said:?}");
    assert!(
        said[1..].iter().all(|said| said.starts_with("not now")),
        "{said:?}"
    );
}
