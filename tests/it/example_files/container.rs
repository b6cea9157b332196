//! The entry point of an image, and the script that builds the packages.

use std::fs;

use super::{Machine, example_path, stderr};
use crate::harness::tree::root;

const FILE: &str = "container/entrypoint.sh";

#[test]
fn the_entry_point_holds_the_name_around_its_command() {
    let machine = Machine::new();
    let parsed = machine
        .program("sh")
        .arg("-n")
        .arg(example_path(FILE))
        .output();
    assert!(parsed.unwrap().status.success());

    let script = "echo $LEASEHOLD_NAME $LEASEHOLD_TTL_MS > told; exit 7";
    let mut entry = machine.program(example_path(FILE));
    entry
        .env("SERVICE_NAME", "billing")
        .args(["sh", "-c", script]);
    let ended = entry.output().unwrap();
    assert_eq!(ended.status.code(), Some(7), "{}", stderr(&ended));
    let told = fs::read_to_string(machine.0.path().join("told")).unwrap();
    assert_eq!(told, "billing 15000\n");
}

#[test]
fn the_entry_point_says_what_is_missing_and_starts_nothing() {
    let machine = Machine::new();
    let nameless = machine
        .program(example_path(FILE))
        .args(["touch", "ran"])
        .output();
    let nameless = nameless.unwrap();
    assert!(!nameless.status.success());
    assert!(stderr(&nameless).contains("SERVICE_NAME"), "{nameless:?}");
    assert!(!machine.0.path().join("ran").exists());

    let mut jobless = machine.program(example_path(FILE));
    let jobless = jobless.env("SERVICE_NAME", "billing").output().unwrap();
    assert_eq!(jobless.status.code(), Some(64), "{jobless:?}");
    assert!(stderr(&jobless).contains("usage"), "{jobless:?}");
}

/// A build of a quarter of an hour would end with it otherwise.
#[test]
fn what_the_packages_need_is_named_before_anything_is_built() {
    let bin = tempfile::tempdir().unwrap();
    for program in ["bash", "dirname", "cargo"] {
        let found = ["/usr/bin", "/bin"].map(|folder| format!("{folder}/{program}"));
        let found = found.into_iter().find(|path| fs::exists(path).unwrap());
        let found = found.unwrap_or_else(|| "/bin/true".into());
        std::os::unix::fs::symlink(found, bin.path().join(program)).unwrap();
    }
    let mut script = std::process::Command::new(root().join(".github/packages"));
    let ended = script.env("PATH", bin.path()).output().unwrap();
    let (said, page) = (
        stderr(&ended),
        include_str!("../../../src/bin/leasehold/README.md"),
    );
    assert_eq!(ended.status.code(), Some(1), "{said}");
    for need in ["rustup", "musl-gcc", "cargo-deb"] {
        assert!(
            said.contains(need) && page.contains(&format!("`{need}`")),
            "{need}: {said}"
        );
    }
}
