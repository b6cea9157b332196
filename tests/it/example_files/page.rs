//! The page that people copy from: every command in it is run as it is written.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::{Machine, stderr};

use crate::harness::tree::root;

const TOOL: &str = "src/bin/leasehold/README.md";

fn page_text(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

/// The blocks of code in this language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    let blocks = page.split(fence.as_str()).skip(1);
    blocks
        .map(|rest| rest.split("\n```").next().unwrap())
        .collect()
}

/// Runs a block as the script it is, where `./backup.sh` is to be found.
fn run_block(block: &str) {
    let machine = Machine::new();
    let file = |name: &str, text: &str| {
        let path = machine.0.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    file("backup.sh", "#!/bin/sh\necho \"$@\" >> ran\n");
    let store = fs::read_to_string(machine.0.path().join("store")).unwrap();
    let script = block.replace("redis://redis.example.com", &store);
    // A group of the user's own, whoever runs the tests.
    let group = rustix::process::getegid().as_raw();
    let script = script.replace("-g backup", &format!("-g {group}"));
    let head = if block.starts_with("#!") {
        ""
    } else {
        "#!/bin/sh\nset -e\n"
    };
    file("script", &format!("{head}{script}\n"));
    let ended = machine.program(machine.0.path().join("script")).output();
    let ended = ended.unwrap();
    assert!(ended.status.success(), "{block}\n{}", stderr(&ended));

    let ran = fs::read_to_string(machine.0.path().join("ran")).unwrap_or_default();
    assert_eq!(
        ran.lines().count(),
        block.matches("./backup.sh").count(),
        "{block}\n{ran}"
    );
    if block.starts_with("#!") {
        let said = String::from_utf8(ended.stdout).unwrap();
        assert!(said.starts_with("only one of us runs"), "{block}\n{said}");
    }
}

#[test]
fn every_command_on_the_page_of_the_tool_works() {
    let page = page_text(TOOL);
    let blocks = blocks(&page, "sh");
    assert!(blocks.len() > 8);
    for block in blocks {
        run_block(block);
    }
}

#[test]
fn the_page_names_no_option_that_the_tool_does_not_have() {
    let machine = Machine::new();
    let options_of = |command: &str| {
        let mut tool = machine.program(env!("CARGO_BIN_EXE_leasehold"));
        let help = tool.args([command, "--help"]).output().unwrap().stdout;
        options_named(&String::from_utf8(help).unwrap())
    };
    for line in page_text(TOOL).lines() {
        let Some((_, call)) = line.split_once("leasehold ") else {
            continue;
        };
        // What follows belongs to the job, or to the sentence around.
        let own = call.split('`').next().unwrap();
        let own = own.split(" -- ").next().unwrap();
        let own = own.split(" sh -c ").next().unwrap();
        let named = options_named(own);
        if named.is_empty() {
            continue;
        }
        let command = call
            .split(|c: char| !c.is_ascii_lowercase())
            .next()
            .unwrap();
        let known = options_of(command);
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{unknown:?} in {line}");
    }
}

fn options_named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let long = words.filter(|word| word.starts_with("--") && word.len() > 2);
    long.map(Into::into).collect()
}
