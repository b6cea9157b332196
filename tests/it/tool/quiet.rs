//! `-q`: what went wrong is said, and nothing else.

use super::{Sandbox, loss};
use crate::harness::child::stop;

/// What a quiet run with these options says, which ends with this code.
fn quiet(sandbox: &Sandbox, options: &[&str], script: &str, code: i32) -> String {
    let ended = sandbox.run(&[&["-q"], options].concat(), script).end();
    assert_eq!(ended.code, Some(code), "{ended:?}");
    ended.stderr
}

#[test]
fn a_held_name_is_told_by_the_exit_code_alone() {
    let sandbox = Sandbox::new();
    let _first = sandbox.run(&[], "echo up > first; sleep 20");
    sandbox.mark("first");
    for (options, code) in [
        (&["-n"][..], 75),
        (&["-n", "--skip-ok"], 0),
        (&["-n", "-E", "3"], 3),
        (&["-w", "1s"], 75),
        (&["-w", "1s", "--skip-ok"], 0),
    ] {
        assert_eq!(quiet(&sandbox, options, "true", code), "", "{options:?}");
    }
    let loud = sandbox.run(&["-n", "--skip-ok"], "true").end();
    assert!(loud.stderr.contains("x not acquired: "), "{loud:?}");
}

#[test]
fn a_job_that_ends_by_itself_is_passed_on_without_a_word() {
    let sandbox = Sandbox::new();
    assert_eq!(quiet(&sandbox, &[], "exit 3", 3), "");
    assert_eq!(quiet(&sandbox, &[], "sleep 20 & exit 0", 0), "");
    assert_eq!(quiet(&sandbox, &[], "echo its own >&2", 0), "its own\n");
}

#[test]
fn why_the_tool_fails_is_said() {
    let sandbox = Sandbox::new();
    let text = quiet(&sandbox, &["--store", "sqlite:/dev/null/x"], "true", 78);
    assert!(text.contains("/dev/null/x"), "{text}");
    let text = quiet(&sandbox, &["--ttl", "0s"], "true", 64);
    assert!(text.contains("1s to 24h"), "{text}");
}

#[test]
fn a_store_that_is_gone_until_the_wait_runs_out_is_said() {
    let sandbox = Sandbox::new();
    let _first = sandbox.run(&["--ttl", "60s"], "echo up > first; sleep 20");
    sandbox.mark("first");
    let mut waiting = sandbox.run(&["-q", "-w", "2s"], "true");
    sandbox.has_line(1);
    let ended = loss::block_store(&sandbox, || waiting.end());
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert!(ended.stderr.contains("not acquired"), "{ended:?}");
}

#[test]
fn why_a_job_was_ended_is_said_in_one_line() {
    let sandbox = Sandbox::new();
    let options = ["--max-runtime", "200ms"];
    let text = quiet(&sandbox, &options, "exec sleep 20", 124);
    assert!(
        text.contains("ran for as long as --max-runtime allows"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
    let options = ["--max-hold", "200ms"];
    let text = quiet(&sandbox, &options, "exec sleep 20", 79);
    assert!(
        text.contains("held for as long as --max-hold allows"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn a_job_that_was_killed_without_its_guardian_is_said() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.run(&["-q", "--ttl", "2s"], "echo up > first; exec sleep 20");
    sandbox.mark("first");
    stop(run.guardian());
    loss::block_store(&sandbox, || {
        run.wait_to_say("has not ended the job in time")
    });
    assert_eq!(run.end().code, Some(79));
}
