//! `check` and `progress`: what a job learns of its lease, whoever it is and wherever it runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::{Ended, HOLDER, Sandbox, wait_until};
use crate::sqlite::surroundings;

/// Copies the tool to where every user can run it.
fn copied_tool(sandbox: &Sandbox) -> PathBuf {
    let path = sandbox.path("tool");
    fs::copy(env!("CARGO_BIN_EXE_leasehold"), &path).expect("copied");
    path
}

/// A run where no folder can be written to.
fn run_without_a_place(sandbox: &Sandbox, options: &str, script: &str) -> Ended {
    let mounted = format!(
        "mount -t tmpfs -o ro none /run; exec \"$TOOL\" run {options} x -- sh -c '{script}'"
    );
    let mut words = vec!["--mount"];
    if !rustix::process::geteuid().is_root() {
        words.extend(["--user", "--map-root-user"]);
    }
    words.extend(["sh", "-ec", &mounted]);
    let mut command = sandbox.program("unshare", &words);
    command
        .env("XDG_RUNTIME_DIR", "/no/such/folder")
        .env("TMPDIR", "/no/such/folder");
    sandbox.start(command).end()
}

/// Asks with this status file.
fn check(sandbox: &Sandbox, path: &str, arguments: &[&str]) -> Ended {
    let mut command = sandbox.tool(&[&["check"][..], arguments].concat());
    command.env("LEASEHOLD_STATUS_FILE", path);
    sandbox.start(command).end()
}

#[test]
fn a_job_that_gave_up_its_user_can_ask_and_report() {
    if !rustix::process::geteuid().is_root() {
        assert!(!surroundings::are_allowed() || !rustix::process::geteuid().is_root());
        return;
    }
    let sandbox = Sandbox::new();
    let tool = copied_tool(&sandbox);
    let tool = tool.display();
    let script = format!(
        "exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -c '
            for i in 1 2 3 4 5 6; do sleep 0.5; {tool} check && {tool} progress || exit 9; done'"
    );
    let options = ["--progress-within", "2s"];
    let mut arguments = vec!["run"];
    arguments.extend(options);
    arguments.extend(["x", "--", "sh", "-c", &script]);
    let run = sandbox.tool(&arguments);
    // Whatever the mask of the tool.
    let masked = "umask 077; exec \"$0\" \"$@\"";
    let mut command = sandbox.program("sh", &["-c", masked]);
    command.arg(run.get_program()).args(run.get_args());
    let ended = sandbox.start(command).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn where_no_folder_can_be_written_to_the_job_runs_and_cannot_know() {
    if !surroundings::are_allowed() {
        return;
    }
    let sandbox = Sandbox::new();
    let script = "$TOOL check; echo $? > checked; $TOOL check --name x; echo $? >> checked; \
        $TOOL progress; echo $? >> checked; exit 3";
    let ended = run_without_a_place(&sandbox, "", script);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stderr.contains("no status file"), "{ended:?}");
    assert_eq!(sandbox.mark("checked"), "125\n125\n125");
}

#[test]
fn a_limit_that_no_job_could_report_to_is_refused_before_anything_runs() {
    if !surroundings::are_allowed() {
        return;
    }
    let sandbox = Sandbox::new();
    let options = "--progress-within 1min";
    let ended = run_without_a_place(&sandbox, options, "echo up > started");
    assert_eq!(ended.code, Some(125), "{ended:?}");
    assert!(ended.stderr.contains("progress-within"), "{ended:?}");
    assert!(!sandbox.has("started"));
}

#[test]
fn what_cannot_be_known_is_125_and_a_run_that_is_gone_is_79() {
    let sandbox = Sandbox::new();
    let _run = sandbox.run(&[], "echo $LEASEHOLD_STATUS_FILE > path; sleep 20");
    let path = sandbox.mark("path");
    let text = fs::read_to_string(&path).expect("there");
    let status: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let changed = |file: &str, key: &str, value: serde_json::Value| {
        let mut status = status.clone();
        status[key] = value;
        fs::write(sandbox.path(file), status.to_string()).expect("written");
        sandbox.path(file).display().to_string()
    };
    fs::write(sandbox.path("nonsense"), "no JSON").expect("written");
    let at = |file: &str| sandbox.path(file).display().to_string();
    for (path, code) in [
        (path, 0),
        (at("gone.json"), 79),
        (changed("lost", "state", "lost".into()), 79),
        (changed("passed", "deadline_ms", 1.into()), 79),
        (changed("boot", "boot_id", "another".into()), 79),
        (changed("clock", "clock", "another".into()), 125),
        (at("nonsense"), 125),
        (at("no/such/folder"), 125),
        (at(""), 125),
        (String::new(), 125),
    ] {
        let ended = check(&sandbox, &path, &[]);
        assert_eq!(ended.code, Some(code), "{path}: {ended:?}");
        assert_eq!(ended.stderr.is_empty(), code == 0, "{path}: {ended:?}");
    }
    let progress = |path: &str| {
        let mut command = sandbox.tool(&["progress"]);
        command.env("LEASEHOLD_STATUS_FILE", path);
        sandbox.start(command).end().code
    };
    assert_eq!(progress(&at("gone.json")), Some(79));
    assert_eq!(progress(&at("no/such/folder")), Some(125));
    assert_eq!(progress(""), Some(125));
}

#[test]
fn a_leaked_environment_is_no_lease() {
    let sandbox = Sandbox::new();
    let asked = "$TOOL check --name x; echo $? > asked; $TOOL check --name y; echo $? >> asked";
    let script = format!("{asked}; echo $LEASEHOLD_STATUS_FILE > path; {HOLDER}");
    let mut command = sandbox.program("sh", &["-c", "exec \"$TOOL\" run x -- sh -c \"$0\""]);
    command.arg(&script);
    let mut run = sandbox.start(command);
    sandbox.mark("first");
    assert_eq!(sandbox.mark("asked"), "0\n79");
    // As a terminal that the job has left does: its lease is held, and it is not of the job.
    let path = sandbox.mark("path");
    assert_eq!(check(&sandbox, &path, &[]).code, Some(0));
    let leaked = check(&sandbox, &path, &["--name", "x"]);
    assert_eq!(leaked.code, Some(79), "{leaked:?}");
    assert_eq!(leaked.stderr, "");
    sandbox.let_go();
    assert_eq!(run.end().code, Some(0), "{}", run.said());
    assert_eq!(check(&sandbox, &path, &["--name", "x"]).code, Some(79));
    // The first start of a script, outside of any job.
    let outside = sandbox.start(sandbox.tool(&["check", "--name", "x"])).end();
    assert_eq!((outside.code, &*outside.stderr), (Some(79), ""));
}

#[test]
fn a_permit_is_of_the_name_of_its_pool() {
    let sandbox = Sandbox::new();
    let asked = "$TOOL check --name x; echo $? > asked; $TOOL check --name y; echo $? >> asked";
    let script = "exec \"$TOOL\" run --permits 2 x -- sh -c \"$0\"";
    let mut command = sandbox.program("sh", &["-c", script]);
    command.arg(asked);
    let ended = sandbox.start(command).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(sandbox.mark("asked"), "0\n79");
}

#[test]
fn every_user_can_read_the_status_file_and_it_has_no_pass() {
    let sandbox = Sandbox::new();
    let _run = sandbox.run(
        &[],
        "echo $LEASEHOLD_STATUS_FILE $LEASEHOLD_TOKEN $LEASEHOLD_HOLDER > told; sleep 20",
    );
    let told = sandbox.mark("told");
    let words: Vec<_> = told.split(' ').collect();
    let path = PathBuf::from(words[0]);
    let mode = |path: &std::path::Path| fs::metadata(path).expect("there").permissions().mode();
    assert_eq!(mode(&path) & 0o777, 0o644);
    assert_eq!(mode(path.parent().expect("a folder")) & 0o777, 0o711);
    assert_eq!(mode(&path.with_extension("progress")) & 0o777, 0o622);
    let text = fs::read_to_string(&path).expect("there");
    assert!(
        !text.contains(words[1]) && !text.contains(words[2]),
        "{text}"
    );
}

#[test]
fn a_runtime_folder_that_is_no_text_is_passed_over() {
    use std::os::unix::ffi::OsStringExt;
    let sandbox = Sandbox::new();
    let odd = std::ffi::OsString::from_vec(b"odd-\xff".to_vec());
    let odd = sandbox.0.path().join(odd);
    fs::create_dir(&odd).expect("made");
    let tool = env!("CARGO_BIN_EXE_leasehold");
    let mut command = sandbox.tool(&["run", "x", tool, "check"]);
    command.env("XDG_RUNTIME_DIR", &odd);
    let ended = sandbox.start(command).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn what_dead_runs_left_is_removed_at_the_next_start() {
    let sandbox = Sandbox::new();
    let mut first = sandbox.run(&[], "echo $LEASEHOLD_STATUS_FILE > path; sleep 20");
    let path = PathBuf::from(sandbox.mark("path"));
    let folder = path.parent().expect("a folder").to_owned();
    let text = fs::read_to_string(&path).expect("there");
    let mut status: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let left = |pid: u64, deadline_ms: u64, status: &mut serde_json::Value| {
        status["deadline_ms"] = deadline_ms.into();
        let path = folder.join(format!("{pid}-left.json"));
        fs::write(&path, status.to_string()).expect("written");
        fs::write(path.with_extension("progress"), "").expect("written");
        path
    };
    let nobody = 4_194_303;
    let own = u64::from(std::process::id());
    let dead = left(nobody, 1, &mut status);
    // Perhaps of a run in another container.
    let held = left(nobody - 1, u64::MAX, &mut status);
    let alive = left(own, 1, &mut status);
    assert_eq!(
        sandbox
            .start(sandbox.tool(&["run", "y", "true"]))
            .end()
            .code,
        Some(0)
    );
    assert!(!dead.exists() && !dead.with_extension("progress").exists());
    assert!(held.exists() && alive.exists() && path.exists());
    first.signal(rustix::process::Signal::TERM);
    first.end();
    wait_until("the removal of the first run's file", || !path.exists());
}
