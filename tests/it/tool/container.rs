//! The tool as the first process of a container: here, of a pid namespace of its own.

use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use super::{Process, Sandbox};
use crate::sqlite::surroundings;

/// The tool as process 1.
fn contained(sandbox: &Sandbox, script: &str) -> Command {
    let tool = env!("CARGO_BIN_EXE_leasehold");
    let unshare = ["--pid", "--fork", "--mount-proc", "--kill-child"];
    let run = [tool, "run", "x", "--", "sh", "-c", script];
    sandbox.program("unshare", &[&unshare[..], &run].concat())
}

/// The tool, by its number outside: the one child of the program that made the namespace.
fn first_process(unshare: &Process) -> Pid {
    super::children(Pid::from_child(&unshare.child))[0]
}

#[test]
fn as_process_1_the_end_of_the_command_is_passed_on() {
    if !surroundings::are_allowed() {
        return;
    }
    let sandbox = Sandbox::new();
    for (script, code) in [("exit 7", 7), ("kill -KILL $$", 137)] {
        let ended = sandbox.start(contained(&sandbox, script)).end();
        assert_eq!(ended.code, Some(code), "{ended:?}");
    }
    let script = "cat /proc/1/comm > first; echo $PPID > parent";
    let ended = sandbox.start(contained(&sandbox, script)).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(sandbox.mark("first"), "leasehold");
    assert_ne!(
        sandbox.mark("parent"),
        "1",
        "the guardian stands in between"
    );
}

#[test]
fn as_process_1_term_reaches_the_job() {
    if !surroundings::are_allowed() {
        return;
    }
    let sandbox = Sandbox::new();
    let script = "trap 'exit 5' TERM; echo up > up; while :; do sleep 0.05; done";
    let mut run = sandbox.start(contained(&sandbox, script));
    sandbox.mark("up");
    kill_process(first_process(&run), Signal::TERM).expect("it lives");
    assert_eq!(run.end().code, Some(5));
}

#[test]
fn as_process_1_which_no_signal_ends_the_end_of_the_job_is_a_code() {
    if !surroundings::are_allowed() {
        return;
    }
    let sandbox = Sandbox::new();
    let mut run = sandbox.start(contained(&sandbox, "echo up > up; exec sleep 20"));
    sandbox.mark("up");
    kill_process(first_process(&run), Signal::TERM).expect("it lives");
    assert_eq!(run.end().code, Some(143));
}

#[test]
fn as_process_1_it_reaps_the_orphans_of_its_job_and_of_others() {
    if !surroundings::are_allowed() {
        return;
    }
    let sandbox = Sandbox::new();
    let ended = "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l";
    let script = format!(
        "(sleep 0.1 &); echo up > up; while ! test -e entered; do sleep 0.02; done
        while test $({ended}) -gt 0; do sleep 0.02; done; exit 6"
    );
    let mut run = sandbox.start(contained(&sandbox, &script));
    sandbox.mark("up");
    // As `docker exec` does: what this leaves behind becomes the child of process 1.
    let pid = first_process(&run).as_raw_pid().to_string();
    let orphan = "(sleep 0.1; echo ended > orphan) &";
    let arguments = ["--target", &pid, "--pid", "sh", "-c", orphan];
    let status = sandbox.program("nsenter", &arguments).status();
    assert!(status.expect("nsenter is there").success());
    sandbox.mark("orphan");
    std::fs::write(sandbox.path("entered"), "").expect("written");
    assert_eq!(run.end().code, Some(6), "{}", run.said());
}

#[test]
fn where_no_device_is_there_a_job_runs_and_its_end_is_passed_on() {
    if !surroundings::are_allowed() {
        return;
    }
    let sandbox = Sandbox::new();
    let job = "echo up > started; exit 7";
    let script = format!("mount -t tmpfs none /dev; exec $TOOL run x -- sh -c '{job}'");
    let unshare = sandbox.program("unshare", &["--mount", "sh", "-ec", &script]);
    let ended = sandbox.start(unshare).end();
    assert_eq!(ended.code, Some(7), "{ended:?}");
    assert!(sandbox.has("started"));
}
