//! Settings in a file: after options and the environment, before the defaults.

use std::process::Command;

use super::{Ended, Sandbox};

/// A job that tells its ttl.
const TELL: [&str; 6] = ["run", "x", "--", "sh", "-c", "echo $LEASEHOLD_TTL_MS"];

impl Sandbox {
    /// Writes the user's own file.
    fn configure(&self, text: &str) {
        std::fs::create_dir_all(self.path("config/leasehold")).expect("made");
        std::fs::write(self.path("config/leasehold/config.toml"), text).expect("written");
    }
}

fn ended_with(sandbox: &Sandbox, command: Command) -> Ended {
    sandbox.start(command).end()
}

#[test]
fn a_setting_is_by_option_else_by_variable_else_by_file_else_the_default() {
    let sandbox = Sandbox::new();
    let told = |command| ended_with(&sandbox, command).stdout;
    assert_eq!(told(sandbox.tool(&TELL)), "30000\n");
    sandbox.configure("ttl = \"7s\"\n");
    assert_eq!(told(sandbox.tool(&TELL)), "7000\n");
    let mut command = sandbox.tool(&TELL);
    command.env("LEASEHOLD_TTL", "8s");
    assert_eq!(told(command), "8000\n");
    let mut command = sandbox.tool(&["run", "--ttl", "9s"]);
    command.args(&TELL[1..]).env("LEASEHOLD_TTL", "8s");
    assert_eq!(told(command), "9000\n");
}

#[test]
fn a_file_given_by_name_counts_alone() {
    let sandbox = Sandbox::new();
    sandbox.configure("ttl = \"7s\"\nlabel = \"own\"\n");
    std::fs::write(sandbox.path("other.toml"), "label = \"other\"\n").expect("written");
    let mut by_option = sandbox.tool(&["run", "--config", "other.toml"]);
    by_option.args(&TELL[1..]);
    let mut by_variable = sandbox.tool(&TELL);
    by_variable.env("LEASEHOLD_CONFIG", "other.toml");
    for command in [by_option, by_variable] {
        let ended = ended_with(&sandbox, command);
        assert_eq!(ended.stdout, "30000\n", "{ended:?}");
    }
}

#[test]
fn a_store_in_the_file_serves_every_command_and_gives_way_to_option_and_variable() {
    let sandbox = Sandbox::new();
    let url = format!("sqlite:{}", sandbox.path("configured.sqlite").display());
    sandbox.configure(&format!("store = \"{url}\"\n"));
    let used = |command: &mut Command| {
        let ended = ended_with(&sandbox, std::mem::replace(command, Command::new("true")));
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let store = ended.stderr.lines().next().expect("a line").to_owned();
        store.rsplit('/').next().expect("a file").to_owned()
    };
    let status = || sandbox.tool(&["status"]);
    assert_eq!(used(&mut status()), "leases.sqlite");
    let unset = || {
        let mut command = status();
        command.env_remove("LEASEHOLD_STORE");
        command
    };
    assert_eq!(used(&mut unset()), "configured.sqlite");
    let named = format!("sqlite:{}", sandbox.path("named.sqlite").display());
    assert_eq!(used(unset().args(["--store", &named])), "named.sqlite");
    std::fs::write(sandbox.path("url"), &named).expect("written");
    assert_eq!(used(unset().args(["--store-file", "url"])), "named.sqlite");
    assert_eq!(
        used(unset().env("LEASEHOLD_STORE_FILE", "url")),
        "named.sqlite"
    );
    sandbox.configure("store-file = \"url\"\n");
    assert_eq!(used(&mut unset()), "named.sqlite");
}

#[test]
fn an_option_that_contradicts_the_file_counts() {
    let sandbox = Sandbox::new();
    sandbox.configure("wait = \"20s\"\nconflict-exit-code = 9\n");
    let _first = sandbox.run(&[], "echo up > first; sleep 20");
    sandbox.mark("first");
    assert_eq!(sandbox.run(&["-n"], "true").end().code, Some(9));
    assert_eq!(
        sandbox.run(&["-n", "--skip-ok"], "true").end().code,
        Some(0)
    );
    assert_eq!(sandbox.run(&["-w", "50ms"], "true").end().code, Some(9));
    sandbox.configure("wait = \"50ms\"\n");
    assert_eq!(sandbox.run(&[], "true").end().code, Some(75));
}

#[test]
fn a_bad_file_is_refused_naming_file_key_value_and_expectation() {
    let sandbox = Sandbox::new();
    for (text, words) in [
        ("label = 5\n", &["label", "5", "text such as"][..]),
        ("ttl = \"soon\"\n", &["ttl", "soon", "such as", "line=1"]),
        ("ttl = \"25h\"\n", &["ttl", "25h", "1s to 24h"]),
        ("tll = \"25s\"\n", &["tll", "expected one of", "ttl"]),
        ("store = \n", &["store", "line=1"]),
        ("store-file = \"none\"\n", &["none", "expected a file"]),
    ] {
        sandbox.configure(text);
        let mut command = sandbox.tool(&["run", "x", "--", "touch", "started"]);
        command.env_remove("LEASEHOLD_STORE");
        let ended = ended_with(&sandbox, command);
        assert_eq!(ended.code, Some(64), "{text} {ended:?}");
        for word in words.iter().chain(&["config/leasehold/config.toml"]) {
            assert!(ended.stderr.contains(word), "{word} {text} {ended:?}");
        }
        assert!(!sandbox.has("started"), "{text}");
    }
}

#[test]
fn a_file_that_is_named_has_to_be_there() {
    let sandbox = Sandbox::new();
    let ended = ended_with(&sandbox, sandbox.tool(&["status", "--config", "none.toml"]));
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(ended.stderr.contains("none.toml"), "{ended:?}");
}

#[test]
fn what_needs_no_store_reads_no_file() {
    let sandbox = Sandbox::new();
    sandbox.configure("nonsense");
    for arguments in [&["man"][..], &["completions", "bash"], &["run", "--help"]] {
        let ended = ended_with(&sandbox, sandbox.tool(arguments));
        assert_eq!(ended.code, Some(0), "{arguments:?} {ended:?}");
    }
}
