//! The job ends before its lease does, whatever becomes of the tool.

use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};
use rustix::process::{Signal, kill_process, test_kill_process};

use super::{LOOK_FOR_RIVALS, STUBBORN_FAMILY, Sandbox, is_alive, is_dead, wait_until};
use crate::harness::child::stop;
use crate::harness::preload;

/// Starts a stubborn family under a short lease, does something to its tool, and has a rival look for it.
fn a_rival_finds_no_process_after(harm: impl FnOnce(&super::Process)) -> (Sandbox, super::Process) {
    let sandbox = Sandbox::new();
    let first = sandbox.run(&["--ttl", "2s"], STUBBORN_FAMILY);
    sandbox.mark("pids");
    let token =
        serde_json::from_str::<serde_json::Value>(&status_text(&sandbox)).expect("JSON")["leases"]
            [0]["token"]
            .as_u64()
            .expect("a token");

    let began = Monotonic.now();
    harm(&first);
    let mut second = sandbox.run(&["--ttl", "2s"], LOOK_FOR_RIVALS);
    let ended = second.end();
    let waited = Monotonic.now().since(began);

    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        waited < Duration::from_secs(3),
        "ttl and a second: {waited:?}"
    );
    let rivals = sandbox.mark("rivals");
    assert_eq!(rivals.matches("gone").count(), 2, "{rivals}");
    assert_eq!(rivals.matches("alive").count(), 0, "{rivals}");
    assert!(sandbox.numbers("second")[0] > token);
    (sandbox, first)
}

fn status_text(sandbox: &Sandbox) -> String {
    sandbox
        .start(sandbox.tool(&["status", "--json"]))
        .end()
        .stdout
}

#[test]
fn a_killed_tool_leaves_neither_job_nor_grandchild_to_the_next() {
    a_rival_finds_no_process_after(|tool| tool.signal(Signal::KILL));
}

#[test]
fn a_stopped_tool_loses_its_job_in_time_and_exits_79_when_it_wakes() {
    let (_place, mut first) = a_rival_finds_no_process_after(|tool| tool.signal(Signal::STOP));
    first.signal(Signal::CONT);
    let ended = first.end();
    assert_eq!(ended.code, Some(79), "{ended:?}");
}

#[test]
fn the_job_of_a_nested_run_ends_before_the_outer_name_is_free() {
    let sandbox = Sandbox::new();
    let tool = env!("CARGO_BIN_EXE_leasehold");
    std::fs::write(sandbox.path("family"), STUBBORN_FAMILY).expect("written");
    let script = format!("{tool} run y -- sh family");
    let _outer = sandbox.run(&["--ttl", "2s"], &script);
    sandbox.mark("pids");
    let ended = sandbox.start(sandbox.tool(&["evict", "x"])).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let ended = sandbox.run(&[], LOOK_FOR_RIVALS).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        !sandbox.mark("rivals").contains("alive"),
        "{}",
        sandbox.mark("rivals")
    );
}

#[test]
fn a_tool_stopped_for_a_moment_goes_on() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.run(&["--ttl", "4s"], "echo up > first; sleep 1.5; exit 4");
    sandbox.mark("first");
    run.signal(Signal::STOP);
    run.signal(Signal::CONT);
    assert_eq!(run.end().code, Some(4));
}

#[test]
fn a_tool_whose_file_was_replaced_meanwhile_starts_itself_and_not_the_other() {
    let sandbox = Sandbox::new();
    let own = env!("CARGO_BIN_EXE_leasehold");
    // By another process, as a descriptor of ours that is open for writing would keep it from being run.
    let copied = sandbox.program("cp", &[own, "tool"]).status().expect("run");
    assert!(copied.success());
    let mut first = sandbox.run(
        &[],
        "echo up > first; until test -e go; do sleep 0.02; done",
    );
    sandbox.mark("first");
    let arguments = ["run", "x", "--", "sh", "-c", "echo up > second"];
    let tool = sandbox.path("tool");
    let mut second = sandbox.start(sandbox.program(tool.to_str().expect("UTF-8"), &arguments));
    second.wait_to_say("waiting for");
    std::fs::remove_file(&tool).expect("removed");
    std::fs::write(&tool, "#!/bin/sh\ntouch other").expect("written");
    sandbox.let_go();
    assert_eq!(first.end().code, Some(0));
    let ended = second.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(sandbox.has("second") && !sandbox.has("other"));
}

#[test]
fn a_killed_guardian_counts_as_a_loss() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.run(&["--ttl", "2s"], STUBBORN_FAMILY);
    let pids = sandbox.numbers("pids");
    kill_process(run.guardian(), Signal::KILL).expect("it lives");
    let ended = run.end();
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(pids.into_iter().all(|pid| !is_alive(pid)));
}

#[test]
fn a_stopped_guardian_saves_neither_the_job_nor_the_tool() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.run(&["--ttl", "2s"], STUBBORN_FAMILY);
    let pids = sandbox.numbers("pids");
    let guardian = run.guardian();
    stop(guardian);
    let ended = super::loss::block_store(&sandbox, || {
        // Nobody can reap what has ended but the one that is stopped.
        wait_until("the job's end", || pids.iter().all(|pid| is_dead(*pid)));
        run.end()
    });
    assert_eq!(ended.code, Some(79), "{ended:?}");
    wait_until("the guardian's end", || {
        test_kill_process(guardian).is_err()
    });
}

/// Loaded into each process of a run: the first guardian takes longer to start than its lease lasts.
const SLOW_GUARDIAN: &[u8] = br#"
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void start_slowly(int argc, char **argv) {
    if (argc < 2 || strcmp(argv[1], "__guardian")) return;
    int first = open("slow", O_CREAT | O_EXCL, 0600);
    if (first < 0) return;
    close(first);
    usleep(1500000);
}
"#;

#[test]
fn a_guardian_that_starts_too_late_is_a_loss_which_again_repeats() {
    let sandbox = Sandbox::new();
    let library = preload::compiled("slow_guardian", SLOW_GUARDIAN);
    let run = ["run", "--ttl", "1s", "--again", "x", "--"];
    let mut command = sandbox.tool(&[&run[..], &["sh", "-c", "echo up > started"]].concat());
    preload::load(&mut command, &library);
    let ended = sandbox.start(command).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("is run again"), "{ended:?}");
    assert!(sandbox.has("slow") && sandbox.has("started"));
}

/// A job whose processes are in two groups.
const TWO_GROUPS: &str = "timeout 60 sh -c 'echo $$ $PPID > pids; sleep 50' & wait";

#[test]
fn the_job_ends_when_tool_and_guardian_are_killed_together() {
    let sandbox = Sandbox::new();
    let run = sandbox.run(&[], TWO_GROUPS);
    let pids = sandbox.numbers("pids");
    let guardian = run.guardian();
    run.signal(Signal::STOP);
    kill_process(guardian, Signal::KILL).expect("it lives");
    run.signal(Signal::KILL);
    wait_until("the job's end", || pids.iter().all(|pid| is_dead(*pid)));
}

#[test]
fn the_job_ends_in_time_when_tool_and_guardian_are_stopped_together() {
    let sandbox = Sandbox::new();
    let run = sandbox.run(&["--ttl", "1s"], TWO_GROUPS);
    let pids = sandbox.numbers("pids");
    stop(run.guardian());
    run.signal(Signal::STOP);
    let ended = sandbox.run(&[], "echo up > second").end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(pids.iter().all(|pid| is_dead(*pid)));
}

#[test]
fn a_killed_tool_leaves_no_status_file() {
    let sandbox = Sandbox::new();
    let script = "echo $LEASEHOLD_STATUS_FILE > path; sleep 20";
    let run = sandbox.run(&["--ttl", "2s"], script);
    let path = sandbox.mark("path");
    assert!(sandbox.has(&path));
    run.signal(Signal::KILL);
    wait_until("the file's end", || !sandbox.has(&path));
}

#[test]
fn what_does_not_end_is_named_by_its_pid() {
    let sandbox = Sandbox::new();
    let script = "trap 'echo asked > asked' TERM; echo $$ > pids; while :; do sleep 0.05; done";
    let options = ["--max-runtime", "200ms", "--kill-after", "300ms"];
    let mut run = sandbox.run(&options, script);
    let pid = sandbox.numbers("pids")[0];
    sandbox.mark("asked");
    // Nobody says KILL then, which is as good as a process that does not hear it.
    stop(run.guardian());
    run.wait_to_say("does not end");
    assert!(
        run.said().contains(&format!("pids=[{pid}")),
        "{}",
        run.said()
    );
    kill_process(run.guardian(), Signal::CONT).expect("it lives");
    assert_eq!(run.end().code, Some(124));
}
