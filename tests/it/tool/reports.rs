//! `--report` and `--json`: what programs learn of a run.

use serde_json::Value;

use super::{STUBBORN_FAMILY, Sandbox};

/// The report of a run with these options.
fn reported(sandbox: &Sandbox, options: &[&str], script: &str) -> Value {
    let mut all = vec!["--report", "report.json"];
    all.extend(options);
    let code = sandbox.run(&all, script).end().code;
    let text = std::fs::read(sandbox.path("report.json")).expect("written");
    let report: Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(report["version"], 1);
    assert_eq!(report["name"], "x");
    assert_eq!(report["exit_code"], code.expect("a code"));
    report
}

#[test]
fn a_command_that_ended_decided_itself_whatever_code_it_used() {
    let sandbox = Sandbox::new();
    let report = reported(
        &sandbox,
        &[],
        "echo $LEASEHOLD_TOKEN > token; sleep 0.1; exit 79",
    );
    assert_eq!(report["outcome"], "ended");
    assert_eq!(report["decided_by"], "command");
    assert_eq!(report["command_code"], 79);
    assert_eq!(report["token"], sandbox.numbers("token")[0]);
    assert!(report["held_ms"].as_u64().expect("a number") >= 100);
    assert!(report["waited_ms"].is_u64());
}

#[test]
fn a_signal_is_named() {
    let report = reported(&Sandbox::new(), &[], "kill -9 $$");
    assert_eq!(report["outcome"], "ended");
    assert_eq!(report["command_signal"], 9);
}

#[test]
fn a_job_that_was_ended_says_why() {
    let sandbox = Sandbox::new();
    let options = ["--max-runtime", "200ms", "--kill-after", "200ms"];
    let report = reported(&sandbox, &options, STUBBORN_FAMILY);
    assert_eq!(report["outcome"], "max_runtime");
    assert_eq!(report["decided_by"], "leasehold");
    assert_eq!(report["command_signal"], 9);
    assert!(report["why"].is_string());
}

#[test]
fn a_held_name_is_told_apart_from_a_command_with_the_same_code() {
    let sandbox = Sandbox::new();
    let _first = sandbox.run(&[], "echo up > first; sleep 20");
    sandbox.mark("first");
    for options in [&["-n"][..], &["-n", "--skip-ok"], &["-n", "-E", "3"]] {
        let report = reported(&sandbox, options, "true");
        assert_eq!(report["outcome"], "not_acquired");
        assert_eq!(report["decided_by"], "leasehold");
        assert_eq!(report["command_code"], Value::Null);
    }
}

#[test]
fn a_store_that_fails_is_a_failure() {
    let sandbox = Sandbox::new();
    let report = reported(&sandbox, &["--store", "sqlite:/dev/null/x"], "true");
    assert_eq!(report["outcome"], "failed");
    assert!(report["why"].is_string());
}

#[test]
fn a_place_that_cannot_be_written_to_is_said_before_anything_runs() {
    let sandbox = Sandbox::new();
    let ended = sandbox
        .run(&["--report", "no/such/folder"], "echo up > started")
        .end();
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(ended.stderr.contains("no/such/folder"), "{ended:?}");
    assert!(!sandbox.has("started"));
}

#[test]
fn events_are_objects_with_a_version_and_a_name() {
    let sandbox = Sandbox::new();
    let ended = sandbox.run(&["--json"], "exit 2").end();
    assert_eq!(ended.code, Some(2));
    let events: Vec<Value> = ended
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let names: Vec<_> = events
        .iter()
        .map(|event| event["event"].as_str().expect("text"))
        .collect();
    assert_eq!(names, ["acquired", "started", "ended", "released"]);
    assert!(
        events
            .iter()
            .all(|event| event["version"] == 1 && event["name"] == "x")
    );
}
