//! The job ends before its lease does, whatever becomes of the tool.

use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};
use rustix::process::{Signal, kill_process, test_kill_process};

use super::{Bench, LOOK_FOR_RIVALS, STUBBORN_FAMILY, is_alive, is_dead, wait_until};
use crate::harness::child::stop;
use crate::harness::preload;

/// Starts a stubborn family under a short lease, does something to its tool, and has a rival look for it.
fn a_rival_finds_no_process_after(harm: impl FnOnce(&super::Process)) -> (Bench, super::Process) {
    let bench = Bench::new();
    let first = bench.run(&["--ttl", "2s"], STUBBORN_FAMILY);
    bench.mark("pids");
    let token =
        serde_json::from_str::<serde_json::Value>(&status_text(&bench)).expect("JSON")["leases"][0]
            ["token"]
            .as_u64()
            .expect("a token");

    let began = Monotonic.now();
    harm(&first);
    let mut second = bench.run(&["--ttl", "2s"], LOOK_FOR_RIVALS);
    let ended = second.end();
    let waited = Monotonic.now().since(began);

    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        waited < Duration::from_secs(3),
        "ttl and a second: {waited:?}"
    );
    let rivals = bench.mark("rivals");
    assert_eq!(rivals.matches("gone").count(), 2, "{rivals}");
    assert_eq!(rivals.matches("alive").count(), 0, "{rivals}");
    assert!(bench.numbers("second")[0] > token);
    (bench, first)
}

fn status_text(bench: &Bench) -> String {
    bench.start(bench.tool(&["status", "--json"])).end().stdout
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
    let bench = Bench::new();
    let tool = env!("CARGO_BIN_EXE_leasehold");
    std::fs::write(bench.path("family"), STUBBORN_FAMILY).expect("written");
    let script = format!("{tool} run y -- sh family");
    let _outer = bench.run(&["--ttl", "2s"], &script);
    bench.mark("pids");
    let ended = bench.start(bench.tool(&["evict", "x"])).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let ended = bench.run(&[], LOOK_FOR_RIVALS).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        !bench.mark("rivals").contains("alive"),
        "{}",
        bench.mark("rivals")
    );
}

#[test]
fn a_tool_stopped_for_a_moment_goes_on() {
    let bench = Bench::new();
    let mut run = bench.run(&["--ttl", "4s"], "echo up > first; sleep 1.5; exit 4");
    bench.mark("first");
    run.signal(Signal::STOP);
    run.signal(Signal::CONT);
    assert_eq!(run.end().code, Some(4));
}

#[test]
fn a_tool_whose_file_was_replaced_meanwhile_starts_itself_and_not_the_other() {
    let bench = Bench::new();
    let own = env!("CARGO_BIN_EXE_leasehold");
    // By another process, as a descriptor of ours that is open for writing would keep it from being run.
    let copied = bench.program("cp", &[own, "tool"]).status().expect("run");
    assert!(copied.success());
    let mut first = bench.run(
        &[],
        "echo up > first; until test -e go; do sleep 0.02; done",
    );
    bench.mark("first");
    let arguments = ["run", "x", "--", "sh", "-c", "echo up > second"];
    let tool = bench.path("tool");
    let mut second = bench.start(bench.program(tool.to_str().expect("UTF-8"), &arguments));
    second.wait_to_say("waiting for");
    std::fs::remove_file(&tool).expect("removed");
    std::fs::write(&tool, "#!/bin/sh\ntouch other").expect("written");
    bench.let_go();
    assert_eq!(first.end().code, Some(0));
    let ended = second.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(bench.has("second") && !bench.has("other"));
}

#[test]
fn a_killed_guardian_counts_as_a_loss() {
    let bench = Bench::new();
    let mut run = bench.run(&["--ttl", "2s"], STUBBORN_FAMILY);
    let pids = bench.numbers("pids");
    kill_process(run.guardian(), Signal::KILL).expect("it lives");
    let ended = run.end();
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(pids.into_iter().all(|pid| !is_alive(pid)));
}

#[test]
fn a_stopped_guardian_saves_neither_the_job_nor_the_tool() {
    let bench = Bench::new();
    let mut run = bench.run(&["--ttl", "2s"], STUBBORN_FAMILY);
    let pids = bench.numbers("pids");
    let guardian = run.guardian();
    stop(guardian);
    let ended = super::loss::block_store(&bench, || {
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
    let bench = Bench::new();
    let library = preload::compiled("slow_guardian", SLOW_GUARDIAN);
    let run = ["run", "--ttl", "1s", "--again", "x", "--"];
    let mut command = bench.tool(&[&run[..], &["sh", "-c", "echo up > started"]].concat());
    preload::load(&mut command, &library);
    let ended = bench.start(command).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("is run again"), "{ended:?}");
    assert!(bench.has("slow") && bench.has("started"));
}

/// A job whose processes are in two groups.
const TWO_GROUPS: &str = "timeout 60 sh -c 'echo $$ $PPID > pids; sleep 50' & wait";

#[test]
fn the_job_ends_when_tool_and_guardian_are_killed_together() {
    let bench = Bench::new();
    let run = bench.run(&[], TWO_GROUPS);
    let pids = bench.numbers("pids");
    let guardian = run.guardian();
    run.signal(Signal::STOP);
    kill_process(guardian, Signal::KILL).expect("it lives");
    run.signal(Signal::KILL);
    wait_until("the job's end", || pids.iter().all(|pid| is_dead(*pid)));
}

#[test]
fn the_job_ends_in_time_when_tool_and_guardian_are_stopped_together() {
    let bench = Bench::new();
    let run = bench.run(&["--ttl", "1s"], TWO_GROUPS);
    let pids = bench.numbers("pids");
    stop(run.guardian());
    run.signal(Signal::STOP);
    let ended = bench.run(&[], "echo up > second").end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(pids.iter().all(|pid| is_dead(*pid)));
}

#[test]
fn a_killed_tool_leaves_no_status_file() {
    let bench = Bench::new();
    let script = "echo $LEASEHOLD_STATUS_FILE > path; sleep 20";
    let run = bench.run(&["--ttl", "2s"], script);
    let path = bench.mark("path");
    assert!(bench.has(&path));
    run.signal(Signal::KILL);
    wait_until("the file's end", || !bench.has(&path));
}

#[test]
fn what_does_not_end_is_named_by_its_pid() {
    let bench = Bench::new();
    let script = "trap 'echo asked > asked' TERM; echo $$ > pids; while :; do sleep 0.05; done";
    let options = ["--max-runtime", "200ms", "--kill-after", "300ms"];
    let mut run = bench.run(&options, script);
    let pid = bench.numbers("pids")[0];
    bench.mark("asked");
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
