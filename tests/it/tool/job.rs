//! What the job gets, and how its end is passed on.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};

use super::terminal::Shell;
use super::{Sandbox, is_alive, wait_until};

#[test]
fn the_commands_own_code_is_passed_on() {
    let sandbox = Sandbox::new();
    for code in [0, 1, 42, 75, 79, 255] {
        let ended = sandbox.run(&[], &format!("exit {code}")).end();
        assert_eq!(ended.code, Some(code), "{ended:?}");
    }
}

#[test]
fn a_command_that_died_of_a_signal_is_128_and_its_number() {
    let sandbox = Sandbox::new();
    for (name, code) in [("KILL", 137), ("TERM", 143), ("SEGV", 139)] {
        let ended = sandbox.run(&[], &format!("kill -{name} $$")).end();
        assert_eq!(ended.code, Some(code), "{ended:?}");
    }
}

#[test]
fn how_the_command_ended_is_said_in_words() {
    let sandbox = Sandbox::new();
    for (script, words) in [
        ("exit 0", "the command exited with code 0\n"),
        ("exit 3", "the command exited with code 3\n"),
        (
            "kill -TERM $$",
            "the command was ended by signal 15 (SIGTERM)\n",
        ),
        ("kill -40 $$", "the command was ended by signal 40\n"),
    ] {
        let said = sandbox.run(&["-v"], script).end().stderr;
        assert!(said.contains(words), "{script}: {said}");
    }
}

#[test]
fn a_missing_command_is_127_and_one_that_cannot_run_126() {
    let sandbox = Sandbox::new();
    let ended = sandbox
        .start(sandbox.tool(&["run", "x", "--", "no-such-command"]))
        .end();
    assert_eq!(ended.code, Some(127), "{ended:?}");
    assert!(ended.stderr.contains("no-such-command"), "{ended:?}");
    std::fs::write(sandbox.path("text"), "text").expect("written");
    let ended = sandbox
        .start(sandbox.tool(&["run", "x", "--", "./text"]))
        .end();
    assert_eq!(ended.code, Some(126), "{ended:?}");
    assert!(ended.stderr.contains("./text"), "{ended:?}");
}

#[test]
fn a_command_that_cannot_be_run_is_found_before_the_wait() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.run(&[], super::HOLDER);
    sandbox.mark("first");
    std::fs::write(sandbox.path("text"), "text").expect("written");
    for (command, code) in [("./text", 126), ("./config/..", 126), ("./none", 127)] {
        std::fs::create_dir_all(sandbox.path("config")).expect("made");
        let ended = sandbox.start(sandbox.tool(&["run", "x", command])).end();
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(!ended.stderr.contains("waiting"), "{ended:?}");
    }
}

#[test]
fn standard_input_and_output_pass_through() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.tool(&["run", "x", "--", "cat"]);
    command.stdin(Stdio::piped());
    let mut run = sandbox.start(command);
    let mut stdin = run.child.stdin.take().expect("piped");
    let text = "a line\n".repeat(100_000);
    stdin.write_all(text.as_bytes()).expect("read by the job");
    drop(stdin);
    let ended = run.end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout == text);
    assert_eq!(ended.stderr, "");
}

#[test]
fn arguments_arrive_as_they_were_typed() {
    let sandbox = Sandbox::new();
    let arguments = [
        "run", "x", "--", "printf", "%s|", "a b", "", "$HOME", "--", "-n",
    ];
    let ended = sandbox.start(sandbox.tool(&arguments)).end();
    assert_eq!(ended.stdout, "a b||$HOME|--|-n|");
}

#[test]
fn the_job_learns_its_lease_from_its_environment() {
    let sandbox = Sandbox::new();
    let script =
        "echo $LEASEHOLD_NAME $LEASEHOLD_TTL_MS ${#LEASEHOLD_HOLDER} $LEASEHOLD_TOKEN > told
        cp $LEASEHOLD_STATUS_FILE status; echo $LEASEHOLD_STATUS_FILE > path";
    let ended = sandbox.run(&["--ttl", "7s"], script).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let told = sandbox.mark("told");
    assert!(told.starts_with("x 7000 49 "), "{told}");

    let status: serde_json::Value =
        serde_json::from_slice(&std::fs::read(sandbox.path("status")).expect("copied"))
            .expect("JSON");
    assert_eq!(status["name"], "x");
    assert_eq!(status["state"], "held");
    assert!(!sandbox.has(&sandbox.mark("path")), "removed at the end");
}

#[test]
fn an_address_with_a_password_is_not_passed_on() {
    let sandbox = Sandbox::new();
    let url = format!("sqlite:{}", sandbox.store().display());
    let arguments = [
        "run",
        "--store",
        &url,
        "x",
        "--",
        "sh",
        "-c",
        "echo [$LEASEHOLD_STORE] > told",
    ];
    let mut command = sandbox.tool(&arguments);
    command.env("LEASEHOLD_STORE", "redis://user:secret@host");
    assert_eq!(sandbox.start(command).end().code, Some(0));
    assert_eq!(sandbox.mark("told"), "[]");
}

#[test]
fn what_the_command_leaves_in_its_session_is_ended_before_the_lease_is_free() {
    let sandbox = Sandbox::new();
    for leave in ["exec", "exec timeout 30", "set -m; exec"] {
        let script = format!("(trap '' TERM; {leave} sleep 20) & echo $! > pids; exit 5");
        let ended = sandbox.run(&["--ttl", "2s"], &script).end();
        assert_eq!(ended.code, Some(5), "{ended:?}");
        let pid = sandbox.numbers("pids")[0];
        assert!(!is_alive(pid), "{leave}");
    }
}

#[test]
fn an_ended_process_that_is_not_reaped_does_not_delay_the_end() {
    let sandbox = Sandbox::new();
    // A child of the group whose parent leaves the group and never asks for its end.
    let script = "sh -c 'sleep 20 & exec setsid sleep 8' &
        until test \"$(cut -d' ' -f6 /proc/$!/stat)\" = $!; do :; done; exit 6";
    let began = Monotonic.now();
    let ended = sandbox.run(&["--ttl", "2s"], script).end();
    assert_eq!(ended.code, Some(6), "{ended:?}");
    let took = Monotonic.now().since(began);
    assert!(took < Duration::from_secs(4), "{took:?}");
}

#[test]
fn what_left_the_session_runs_on_and_is_reported() {
    let sandbox = Sandbox::new();
    let ended = sandbox.run(&[], "setsid sh -c 'echo $$ > pids; exec sleep 5' & while ! test -s pids; do sleep 0.01; done; exit 6").end();
    assert_eq!(ended.code, Some(6), "{ended:?}");
    let pid = sandbox.numbers("pids")[0];
    assert!(is_alive(pid));
    assert!(ended.stderr.contains(&format!("pids=[{pid}]")), "{ended:?}");
}

#[test]
fn a_job_that_reports_progress_lives_on_and_one_that_stops_is_ended() {
    let sandbox = Sandbox::new();
    let tool = env!("CARGO_BIN_EXE_leasehold");
    let script = format!(
        "for i in 1 2 3 4 5 6; do sleep 0.5; {tool} progress || exit 9; done; cat $LEASEHOLD_STATUS_FILE > status; echo done > done; exec sleep 20"
    );
    let ended = sandbox.run(&["--progress-within", "2s"], &script).end();
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(ended.stderr.contains("no progress within"), "{ended:?}");
    assert_eq!(sandbox.mark("done"), "done");
    let status = std::fs::read_to_string(sandbox.path("status")).expect("copied");
    assert!(status.contains("progress_ms"), "{status}");
}

#[test]
fn status_and_top_show_how_long_ago_a_job_reported_progress() {
    let sandbox = Sandbox::new();
    let tool = env!("CARGO_BIN_EXE_leasehold");
    let script = format!("{tool} progress && {}", super::HOLDER);
    let _job = sandbox.run(&["--progress-within", "5min"], &script);
    sandbox.mark("first");
    let said = |arguments: &[&str]| sandbox.start(sandbox.tool(arguments)).end().stdout;
    wait_until("the report", || said(&["status"]).contains("progress="));
    let json: serde_json::Value = serde_json::from_str(&said(&["status", "--json"])).expect("JSON");
    assert!(json["leases"][0]["progress_ms"].is_u64(), "{json}");
    for command in ["status", "top"] {
        let mut shell = Shell::on(&sandbox);
        shell.press(&format!("stty rows 24 cols 160; $TOOL {command}\n"));
        shell.sees("PROGRESS");
    }
}

#[test]
fn progress_outside_of_a_job_is_64() {
    let sandbox = Sandbox::new();
    let ended = sandbox.start(sandbox.tool(&["progress"])).end();
    assert_eq!(ended.code, Some(64), "{ended:?}");
}

#[test]
fn a_command_that_cannot_be_run_is_127_although_the_message_is_lost() {
    let sandbox = Sandbox::new();
    let script = sandbox.path("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").expect("written");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("set");
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut command = sandbox.tool(&["run", "x", "--", "./script"]);
    let ended = command.stderr(full.expect("opened")).status();
    assert_eq!(ended.expect("run").code(), Some(127));
}

#[test]
fn the_trace_that_a_run_was_started_in_reaches_its_job_unchanged() {
    let sandbox = Sandbox::new();
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let told = "echo $TRACEPARENT $TRACESTATE";
    let mut command = sandbox.tool(&["run", "x", "--", "sh", "-c", told]);
    command.env("TRACEPARENT", trace).env("TRACESTATE", "a=b");
    let ended = sandbox.start(command).end();
    assert_eq!(ended.stdout, format!("{trace} a=b\n"));
}
