//! An embedded file that the tool cannot use, or that nothing named.

use super::{HOLDER, Sandbox, loss};
use crate::harness::redis_server::Setup;

#[test]
fn a_damaged_file_is_78_and_left_alone() {
    let sandbox = Sandbox::new();
    std::fs::write(
        sandbox.store(),
        b"not a database, but long enough to be read as one".repeat(200),
    )
    .expect("written");
    let before = std::fs::read(sandbox.store()).expect("read");
    let said = sandbox.fails(&[], 78).stderr;
    assert!(said.contains("leases.sqlite"), "{said}");
    assert!(std::fs::read(sandbox.store()).expect("read") == before);
}

#[test]
fn another_programs_file_is_78_and_left_alone() {
    let sandbox = Sandbox::new();
    let other = rusqlite::Connection::open(sandbox.store()).expect("opened");
    other
        .execute_batch("CREATE TABLE mine (a); INSERT INTO mine VALUES (1)")
        .expect("made");
    drop(other);
    let before = std::fs::read(sandbox.store()).expect("read");
    sandbox.fails(&[], 78);
    assert!(std::fs::read(sandbox.store()).expect("read") == before);
}

#[test]
fn a_file_of_a_newer_version_is_78_and_left_alone() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&[], "true").end().code, Some(0));
    let file = rusqlite::Connection::open(sandbox.store()).expect("opened");
    let version: i64 = file
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .expect("read");
    file.pragma_update(None, "user_version", version + 1)
        .expect("written");
    drop(file);
    sandbox.fails(&[], 78);
}

#[test]
fn a_folder_that_is_not_there_is_78() {
    let sandbox = Sandbox::new();
    let url = format!("sqlite:{}", sandbox.path("nowhere/leases.sqlite").display());
    let said = sandbox.fails(&["--store", &url], 78).stderr;
    assert!(said.contains("nowhere"), "{said}");
}

#[test]
fn a_store_that_stays_busy_is_69() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&[], "true").end().code, Some(0));
    loss::block_store(&sandbox, || {
        sandbox.fails(&["--connect-timeout", "500ms"], 69);
    });
}

#[test]
fn the_default_file_is_named_once() {
    let sandbox = Sandbox::new();
    // Root's file is the machine's own, so not as root.
    let user = match rustix::process::geteuid().is_root() {
        true => "unshare --user",
        false => "env",
    };
    // Quiet: without a terminal it is named all the same.
    let script = format!("exec {user} $TOOL run -q x true");
    let mut command = sandbox.program("sh", &["-c", &script]);
    command
        .env_remove("LEASEHOLD_STORE")
        .env("XDG_STATE_HOME", sandbox.path("state"));
    let ended = sandbox.start(command).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stderr.matches(".sqlite").count(), 1, "{ended:?}");
    assert!(
        ended.stderr.contains("this user on this machine"),
        "{ended:?}"
    );
    assert!(sandbox.has("state/leasehold/leases.sqlite"));
}

#[test]
fn a_store_file_that_others_can_read_is_warned_about() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("url"), "redis://:hush@127.0.0.1:1\n").expect("written");
    let said = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(sandbox.path("url"), permissions).expect("set");
        let said = sandbox.fails(&["-n", "--store-file", "url"], 69).stderr;
        assert!(!said.contains("hush"), "{said}");
        said.contains("other users can read")
    };
    assert!(said(0o644));
    assert!(!said(0o600));
}

#[test]
fn a_configuration_with_a_password_that_others_can_read_is_warned_about() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = Sandbox::new();
    let said = |url: &str, mode| {
        std::fs::write(sandbox.path("c.toml"), format!("store = \"{url}\"\n")).expect("written");
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(sandbox.path("c.toml"), permissions).expect("set");
        let mut command = sandbox.tool(&["run", "-n", "--config", "c.toml", "x", "true"]);
        command.env_remove("LEASEHOLD_STORE");
        let said = sandbox.start(command).end().stderr;
        assert!(!said.contains("hush"), "{said}");
        said.contains("other users can read")
    };
    let secret = "redis://:hush@127.0.0.1:1";
    assert!(said(secret, 0o644));
    assert!(!said(secret, 0o600));
    assert!(!said("redis://127.0.0.1:1", 0o644));
}

#[test]
fn a_store_in_memory_is_told_every_store_that_others_share() {
    let said = Sandbox::new().fails(&["--store", "memory:"], 64).stderr;
    for form in [
        "redis://",
        "redis+unix:",
        "redis+sentinel://",
        "redis+cluster://",
        "redis+quorum://",
        "postgres://",
        "zookeeper://",
        "sqlite:PATH",
    ] {
        assert!(said.contains(form), "{form} {said}");
    }
}

#[test]
fn white_space_around_a_stores_text_does_not_name_another_file() {
    let sandbox = Sandbox::new();
    let file = sandbox.store().display().to_string();
    let holder = sandbox.run(&[], HOLDER);
    sandbox.mark("first");
    for text in ["\r", "\r\n", " ", "\t"].map(|tail| format!("sqlite:{file}{tail}")) {
        let mut by_variable = sandbox.tool(&["run", "-n", "x", "true"]);
        by_variable.env("LEASEHOLD_STORE", &text);
        let ended = sandbox.start(by_variable).end();
        assert_eq!(ended.code, Some(75), "{text:?} {ended:?}");
        sandbox.fails(&["-n", "--store", &text], 75);
    }
    drop(holder);
}

#[test]
fn what_would_name_another_file_is_refused() {
    let sandbox = Sandbox::new();
    let file = sandbox.store().display().to_string();
    for (text, why) in [
        (format!("sqlite:{file}?mode=rwc"), "no parameters"),
        ("sqlite::memory:".into(), "memory:"),
        (":memory:".into(), "memory:"),
        (format!("sqlite:{file}\nx"), "control character"),
    ] {
        let said = sandbox.fails(&["--store", &text], 64).stderr;
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn a_variable_that_is_set_and_empty_is_no_default() {
    let sandbox = Sandbox::new();
    for variable in [
        "LEASEHOLD_STORE",
        "LEASEHOLD_STORE_FILE",
        "LEASEHOLD_CONFIG",
        "LEASEHOLD_TLS_CA",
        "LEASEHOLD_TTL",
        "LEASEHOLD_LOG",
    ] {
        let mut command = sandbox.tool(&["run", "-n", "x", "touch", "started"]);
        command.env(variable, "");
        let ended = sandbox.start(command).end();
        assert_eq!(ended.code, Some(64), "{variable} {ended:?}");
        assert!(ended.stderr.contains(variable), "{ended:?}");
        assert!(ended.stderr.contains("empty"), "{ended:?}");
    }
    assert!(!sandbox.has("started"));
}

#[test]
fn a_path_with_two_slashes_is_told_that_absolute_ones_have_three() {
    let said = Sandbox::new()
        .fails(&["--store", "sqlite://var/x"], 78)
        .stderr;
    assert!(said.contains("three slashes: sqlite:///PATH"), "{said}");
}

/// A user who is not root, for a script of the shell.
fn as_another_user(sandbox: &Sandbox, script: &str) -> std::process::Command {
    // Permissions do not bind root.
    let user = match rustix::process::geteuid().is_root() {
        true => "unshare --user",
        false => "env",
    };
    sandbox.program("sh", &["-c", &format!("exec {user} {script}")])
}

#[test]
fn a_home_that_cannot_be_written_to_gets_the_way_to_name_another_place() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("home")).expect("made");
    let closed = std::fs::Permissions::from_mode(0o555);
    std::fs::set_permissions(sandbox.path("home"), closed).expect("set");
    let mut command = as_another_user(&sandbox, "$TOOL run x true");
    command
        .env_remove("LEASEHOLD_STORE")
        .env_remove("XDG_STATE_HOME")
        .env("HOME", sandbox.path("home"));
    let ended = sandbox.start(command).end();
    assert_eq!(ended.code, Some(77), "{ended:?}");
    assert!(ended.stderr.contains("--store sqlite:PATH"), "{ended:?}");
}

#[test]
fn a_metrics_file_that_no_collector_reads_is_64() {
    let said = Sandbox::new()
        .fails(&["--metrics-file", "a.txt"], 64)
        .stderr;
    assert!(said.contains("the ending .prom"), "{said}");
}

#[tokio::test]
async fn a_scheme_that_the_server_does_not_speak_gets_the_one_that_it_may() {
    let server = Setup::default().with_port().start().await;
    let port = server.port();
    for (url, hint) in [
        (
            format!("rediss://127.0.0.1:{port}"),
            "without TLS has redis://",
        ),
        (
            format!("postgres://127.0.0.1:{port}/jobs"),
            "such as redis://",
        ),
    ] {
        let options = ["--connect-timeout", "1s", "--store", &url];
        let said = Sandbox::new().fails(&options, 69).stderr;
        assert!(said.contains(hint), "{said}");
    }
}

#[test]
fn a_machine_can_require_a_store_to_be_named() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("c.toml"), "require-store = true\n").expect("written");
    let mut command = sandbox.tool(&["run", "--config", "c.toml", "x", "touch", "started"]);
    command.env_remove("LEASEHOLD_STORE");
    let ended = sandbox.start(command).end();
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(ended.stderr.contains("require-store"), "{ended:?}");
    assert!(!sandbox.has("started"));
}
