//! A bad argument is refused with its value and with what was expected, and nothing is started.

use super::Sandbox;

/// Runs the tool, which must refuse with 64 and say each of these.
fn refused_arguments(arguments: &[&str], words: &[&str]) {
    let sandbox = Sandbox::new();
    let ended = sandbox.start(sandbox.tool(arguments)).end();
    assert_eq!(ended.code, Some(64), "{arguments:?} {ended:?}");
    for word in words {
        assert!(
            ended.stderr.contains(word),
            "{word:?} {arguments:?} {ended:?}"
        );
    }
    assert!(!ended.stderr.contains("panicked"), "{ended:?}");
    assert!(!sandbox.has("started"), "{arguments:?}");
}

fn run_refused(options: &[&str], name: &str, words: &[&str]) {
    let mut arguments = vec!["run"];
    arguments.extend(options);
    arguments.extend([name, "--", "touch", "started"]);
    refused_arguments(&arguments, words);
}

#[test]
fn a_bad_name_is_refused_with_the_rule() {
    run_refused(&[], "", &["\"\"", "empty", "1 to 512 bytes"]);
    run_refused(
        &[],
        &"n".repeat(513),
        &["nnn", "too long", "1 to 512 bytes"],
    );
    run_refused(&[], "a\nb", &["\"a\\nb\"", "control"]);
    run_refused(&[], "a{b}", &["\"a{b}\"", "brace"]);
    refused_arguments(&["status", "a{b}"], &["\"a{b}\"", "brace"]);
}

#[test]
fn a_bad_duration_is_refused_with_the_limits() {
    run_refused(&["--ttl", "0"], "x", &["ttl 0 ", "1s to 24h"]);
    run_refused(&["--ttl", "999ms"], "x", &["999ms", "1s to 24h", "margin"]);
    run_refused(&["--ttl", "25h"], "x", &["25h", "1s to 24h"]);
    run_refused(&["--ttl", "soon"], "x", &["soon", "such as"]);
    run_refused(&["--ttl", "30"], "x", &["30", "such as"]);
    run_refused(&["--ttl", "-1s"], "x", &["-1s", "negative"]);
    run_refused(&["-w", "1M"], "x", &["1M", "months", "5min"]);
    run_refused(&["-w", "later"], "x", &["later", "such as"]);
    run_refused(&["--connect-timeout", "x"], "x", &["such as"]);
}

#[test]
fn settings_that_break_the_stop_timeline_are_refused_with_the_limit() {
    run_refused(&["--kill-after", "15s"], "x", &["15s", "30s", "14.13s"]);
    run_refused(&["--margin", "14s"], "x", &["14s", "third"]);
    run_refused(&["--margin", "0s"], "x", &["0s", "more than 0"]);
    run_refused(&["--margin", "9s"], "x", &["10s", "9s"]);
    run_refused(
        &["--ttl", "2s", "--margin", "600ms"],
        "x",
        &["600ms", "kill-after"],
    );
}

#[test]
fn a_bad_store_is_refused_with_its_scheme_and_what_was_expected() {
    run_refused(&["--store", "consul://host"], "x", &["consul"]);
    run_refused(&["--store", "redis://host:port"], "x", &["HOST[:PORT]"]);
    run_refused(&["--store", ""], "x", &["\"***\"", "sqlite:PATH"]);
    run_refused(&["--store", "nonsense"], "x", &["\"***\"", "scheme"]);
    run_refused(
        &["--store", "redsi://host"],
        "x",
        &["redsi", "perhaps redis"],
    );
    run_refused(
        &["--store", "memory:"],
        "x",
        &["\"memory:\"", "no other process"],
    );
}

#[test]
fn a_password_is_not_repeated() {
    let sandbox = Sandbox::new();
    for url in ["consul://user:hush@host", "redis://user:hush@host:port/x"] {
        let ended = sandbox
            .start(sandbox.tool(&["run", "--store", url, "x", "--", "touch", "started"]))
            .end();
        assert_eq!(ended.code, Some(64), "{ended:?}");
        assert!(!ended.stderr.contains("hush"), "{ended:?}");
    }
}

#[test]
fn unknown_commands_and_options_are_refused() {
    refused_arguments(&["run", "x", "--"], &["COMMAND"]);
    refused_arguments(&["run", "x"], &["COMMAND"]);
    refused_arguments(&["run"], &["NAME"]);
    refused_arguments(&[], &["run"]);
    refused_arguments(&["walk"], &["walk"]);
    run_refused(&["--no-such-option"], "x", &["--no-such-option"]);
    run_refused(&["-n", "-w", "1s"], "x", &["--nonblock", "--wait"]);
    run_refused(&["-n", "--fair"], "x", &["--nonblock", "--fair"]);
    run_refused(&["-E", "300"], "x", &["300"]);
    run_refused(&["--label", "a\tb"], "x", &["label", "control"]);
    run_refused(&["--group", "a\tb"], "x", &["group", "control"]);
    run_refused(&["--group", &"g".repeat(65)], "x", &["group", "64"]);
    run_refused(&["--label", &"l".repeat(201)], "x", &["label", "200"]);
}

#[test]
fn a_bad_limit_is_refused() {
    run_refused(
        &["--max-runtime", "0s"],
        "x",
        &["max-runtime 0s", "more than 0s"],
    );
    run_refused(&["--max-hold", "0s"], "x", &["max-hold", "more than 0s"]);
    run_refused(
        &["--hold-at-least", "367d"],
        "x",
        &["367d", "at most 366 days"],
    );
    run_refused(&["--min-token", "0"], "x", &["token", "whole number"]);
    run_refused(&["--min-token", "many"], "x", &["\"many\"", "whole number"]);
    run_refused(&["--store-file", "/no/such/file"], "x", &["/no/such/file"]);
}

#[test]
fn a_habit_of_another_tool_gets_the_right_line() {
    let line = "sh -c 'LINE'";
    refused_arguments(&["run", "-c", "echo hi", "x"], &[line]);
    refused_arguments(&["run", "x", "-c", "echo hi"], &[line]);
    refused_arguments(&["run", "x", "--no-such", "echo"], &["--no-such"]);
    let sandbox = Sandbox::new();
    let ended = sandbox
        .start(sandbox.tool(&["run", "x", "echo it's up"]))
        .end();
    assert_eq!(ended.code, Some(127), "{ended:?}");
    let right = r"leasehold run x sh -c 'echo it'\''s up'";
    assert!(ended.stderr.contains(right), "{ended:?}");
}

#[test]
fn the_command_needs_no_dashes() {
    let sandbox = Sandbox::new();
    for arguments in [
        &["run", "x", "echo", "-n", "--", "hi"][..],
        &["run", "-n", "x", "echo", "-n", "--", "hi"],
        &["run", "x", "-n", "echo", "-n", "--", "hi"],
        &["run", "x", "-n", "--", "echo", "-n", "--", "hi"],
    ] {
        let ended = sandbox.start(sandbox.tool(arguments)).end();
        assert_eq!(ended.code, Some(0), "{arguments:?} {ended:?}");
        assert_eq!(ended.stdout, "-- hi", "{arguments:?}");
    }
}

#[test]
fn a_command_that_is_not_there_is_told_before_the_wait() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.run(&[], super::HOLDER);
    sandbox.mark("first");
    let ended = sandbox
        .start(sandbox.tool(&["run", "x", "no-such-command"]))
        .end();
    assert_eq!(ended.code, Some(127), "{ended:?}");
}

#[test]
fn a_misspelt_variable_is_refused_and_those_of_kubernetes_are_not() {
    let sandbox = Sandbox::new();
    let run = |variable: &str| {
        let mut command = sandbox.tool(&["run", "-q", "x", "true"]);
        command.env(variable, "redis://x");
        sandbox.start(command).end()
    };
    let refused = run("LEASEHOLD_STOR");
    assert_eq!(refused.code, Some(64), "{refused:?}");
    assert!(refused.stderr.contains("LEASEHOLD_STOR "), "{refused:?}");
    assert!(refused.stderr.contains("LEASEHOLD_STORE,"), "{refused:?}");
    assert_eq!(run("LEASEHOLD_PORT_6379_TCP").code, Some(0));
}

#[test]
fn a_run_within_the_job_that_has_its_name_is_refused() {
    let sandbox = Sandbox::new();
    let tool = env!("CARGO_BIN_EXE_leasehold");
    for options in [&[][..], &["--permits", "1"], &["-n"]] {
        let script = format!("exec {tool} run {} x true", options.join(" "));
        let ended = sandbox.run(options, &script).end();
        assert_eq!(ended.code, Some(75), "{ended:?}");
        // With -n the exit code says it, as of every other holder.
        let says = ended.stderr.contains("its own end");
        assert_eq!(says, options != ["-n"], "{ended:?}");
    }
}

#[test]
fn a_check_outside_of_a_job_is_refused() {
    refused_arguments(&["check"], &["LEASEHOLD_STATUS_FILE", "leasehold run"]);
}

#[test]
fn help_and_version_are_no_errors() {
    let sandbox = Sandbox::new();
    for arguments in [&["--help"][..], &["run", "--help"], &["--version"]] {
        let ended = sandbox.start(sandbox.tool(arguments)).end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stdout.contains("leasehold"), "{ended:?}");
    }
}
