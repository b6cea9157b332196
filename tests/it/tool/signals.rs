//! Signals reach the job, and end a wait.

use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;

use super::Sandbox;

#[test]
fn a_signal_while_waiting_ends_the_wait() {
    let sandbox = Sandbox::new();
    let _first = sandbox.run(&[], "echo up > first; sleep 20");
    sandbox.mark("first");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let mut second = sandbox.run(&[], "echo up > second");
        second.wait_to_say("waiting for");
        second.signal(signal);
        let ended = second.end();
        assert_eq!(ended.signal, Some(signal.as_raw()), "{ended:?}");
    }
    assert!(!sandbox.has("second"));
}

#[test]
fn a_signal_while_running_goes_to_the_job_whose_end_is_passed_on() {
    let sandbox = Sandbox::new();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let file = format!("up-{}", signal.as_raw());
        let mut run = sandbox.run(&[], &format!("echo up > {file}; exec sleep 20"));
        sandbox.mark(&file);
        run.signal(signal);
        let ended = run.end();
        assert_eq!(ended.signal, Some(signal.as_raw()), "{ended:?}");
    }
}

#[test]
fn a_command_that_another_signal_ended_is_passed_on_as_a_code() {
    let sandbox = Sandbox::new();
    let script = "trap 'kill -KILL $$' TERM; echo up > up; while :; do sleep 0.05; done";
    let mut run = sandbox.run(&[], script);
    sandbox.mark("up");
    run.signal(Signal::TERM);
    assert_eq!(run.end().code, Some(137));
}

#[test]
fn a_run_that_quit_ended_leaves_no_core() {
    let sandbox = Sandbox::new();
    let script = "ulimit -c unlimited; exec $TOOL run x -- sh -c 'echo up > up; exec sleep 20'";
    let mut run = sandbox.start(sandbox.program("sh", &["-c", script]));
    sandbox.mark("up");
    run.signal(Signal::QUIT);
    let mut status = None;
    super::wait_until("its end", || {
        status = run.child.try_wait().expect("our child");
        status.is_some()
    });
    let status = status.expect("ended");
    assert_eq!(status.signal(), Some(Signal::QUIT.as_raw()));
    assert!(!status.core_dumped(), "{status}");
}

#[test]
fn a_reload_does_not_keep_a_command_from_being_run_again() {
    let sandbox = Sandbox::new();
    let script = "trap 'echo reloaded > reloaded' HUP; echo up >> ups; mv ups up-$LEASEHOLD_TOKEN
        ls up-* | wc -l > count; test $(cat count) = 2 && exit 0
        until test -e reloaded; do sleep 0.02; done; exit 3";
    let mut run = sandbox.run(&["--again"], script);
    assert_eq!(sandbox.mark("count"), "1");
    run.signal(Signal::HUP);
    let ended = run.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(sandbox.mark("count"), "2");
}

#[test]
fn the_command_finds_the_signals_blocked_that_were_blocked_for_the_tool() {
    let sandbox = Sandbox::new();
    let line = ["SigBlk", "/proc/self/status"];
    let own = sandbox.start(sandbox.program("grep", &line)).end();
    let of_job = sandbox
        .run(&[], &format!("exec grep {}", line.join(" ")))
        .end();
    assert_eq!(of_job.stdout, own.stdout);
}

#[test]
fn each_of_the_other_signals_reaches_the_job() {
    let sandbox = Sandbox::new();
    for (signal, name) in [
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::WINCH, "WINCH"),
        (Signal::CONT, "CONT"),
    ] {
        let script = format!(
            "trap 'echo {name} > got-{name}; exit 7' {name}; echo up > up-{name}; while :; do sleep 0.05; done"
        );
        let mut run = sandbox.run(&[], &script);
        sandbox.mark(&format!("up-{name}"));
        run.signal(signal);
        let ended = run.end();
        assert_eq!(ended.code, Some(7), "{name} {ended:?}");
        assert_eq!(sandbox.mark(&format!("got-{name}")), name);
    }
}

#[test]
fn a_signal_reaches_the_whole_group() {
    let sandbox = Sandbox::new();
    let script = "sh -c 'trap \"echo got > got; exit\" TERM; echo up > up; while :; do sleep 0.05; done' & wait; wait";
    let mut run = sandbox.run(&[], script);
    sandbox.mark("up");
    run.signal(Signal::TERM);
    sandbox.mark("got");
    assert_eq!(run.end().signal, Some(Signal::TERM.as_raw()));
}

#[test]
fn a_second_term_is_passed_on_as_well() {
    let sandbox = Sandbox::new();
    let script = "trap 'echo got >> got' TERM; echo up > up; while test $(cat got 2>/dev/null | wc -l) -lt 2; do sleep 0.05; done; exit 8";
    let mut run = sandbox.run(&[], script);
    sandbox.mark("up");
    run.signal(Signal::TERM);
    sandbox.mark("got");
    run.signal(Signal::TERM);
    assert_eq!(run.end().code, Some(8));
}

#[test]
fn a_signal_that_was_ignored_stays_ignored_for_the_job() {
    let sandbox = Sandbox::new();
    let script = "trap '' HUP; exec $TOOL run x -- sh -c 'kill -HUP $$; exit 9'";
    let command = sandbox.program("sh", &["-c", script]);
    assert_eq!(sandbox.start(command).end().code, Some(9));
}

#[test]
fn a_job_that_is_stopped_hears_the_term_that_ends_it() {
    let sandbox = Sandbox::new();
    let script =
        "trap 'echo heard > heard; exit 0' TERM; kill -STOP $$; while :; do sleep 0.05; done";
    let options = ["--max-runtime", "500ms", "--kill-after", "5s"];
    let ended = sandbox.run(&options, script).end();
    assert_eq!(ended.code, Some(124), "{ended:?}");
    assert_eq!(sandbox.mark("heard"), "heard");
}
