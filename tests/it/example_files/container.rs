//! The entry point of an image.

use std::fs;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use super::{Machine, path, said};
use crate::harness::wait::until;

const FILE: &str = "container/entrypoint.sh";

#[test]
fn the_entry_point_holds_the_name_around_its_command() {
    let machine = Machine::new();
    let parsed = machine.program("sh").arg("-n").arg(path(FILE)).output();
    assert!(parsed.unwrap().status.success());

    let script = "echo $LEASEHOLD_NAME $LEASEHOLD_TTL_MS > told; exit 7";
    let mut entry = machine.program(path(FILE));
    entry
        .env("SERVICE_NAME", "billing")
        .args(["sh", "-c", script]);
    let ended = entry.output().unwrap();
    assert_eq!(ended.status.code(), Some(7), "{}", said(&ended));
    let told = fs::read_to_string(machine.0.path().join("told")).unwrap();
    assert_eq!(told, "billing 15000\n");
}

#[test]
fn the_entry_point_says_what_is_missing_and_starts_nothing() {
    let machine = Machine::new();
    let nameless = machine.program(path(FILE)).args(["touch", "ran"]).output();
    let nameless = nameless.unwrap();
    assert!(!nameless.status.success());
    assert!(said(&nameless).contains("SERVICE_NAME"), "{nameless:?}");
    assert!(!machine.0.path().join("ran").exists());

    let mut jobless = machine.program(path(FILE));
    let jobless = jobless.env("SERVICE_NAME", "billing").output().unwrap();
    assert_eq!(jobless.status.code(), Some(64), "{jobless:?}");
    assert!(said(&jobless).contains("usage"), "{jobless:?}");
}

#[tokio::test]
async fn as_the_first_process_of_a_container_it_reaps_and_hands_signals_on() {
    let machine = Machine::new();
    // Makes an orphan, waits until somebody has reaped it, and then for a signal; ends by itself if none comes.
    let script = "(sleep 0.05 & echo $! > orphan)
        while test -e /proc/$(cat orphan); do sleep 0.02; done
        trap 'echo told > told; exit 9' TERM
        echo up > up; for i in $(seq 400); do sleep 0.05; done";
    let mut container = machine.program("unshare");
    container
        .args([
            "--user",
            "--map-root-user",
            "--pid",
            "--fork",
            "--mount-proc",
        ])
        .arg(path(FILE))
        .args(["sh", "-c", script])
        .env("SERVICE_NAME", "billing")
        .stderr(Stdio::null());
    let mut container = container.spawn().unwrap();
    let up = machine.0.path().join("up");
    until("the orphan to be reaped", async || {
        up.exists().then_some(())
    })
    .await;

    let first = format!("/proc/{0}/task/{0}/children", container.id());
    let first = fs::read_to_string(first).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(first).unwrap(), Signal::TERM).unwrap();
    let ended = until("the container's end", async || {
        container.try_wait().unwrap()
    })
    .await;
    assert_eq!(ended.code(), Some(9));
    assert!(machine.0.path().join("told").exists());
}
