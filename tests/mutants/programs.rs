//! Builds the test programs of the copy, and runs them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use serde_json::Value;

use crate::LIMIT;

/// The programs by the word that rows have for them.
#[derive(Debug)]
pub(crate) struct Programs {
    copy: PathBuf,
    programs: BTreeMap<String, PathBuf>,
}

/// How a run of a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Passed,
    Failed,
    /// It had not ended at the limit.
    Hung,
    /// No test has such a name.
    Missing,
}

impl Programs {
    /// Builds with the features of the tree's own tests, and into its target, so that the dependencies are compiled already.
    pub(crate) fn build(copy: &Path, target: &Path) -> Self {
        let built = cargo()
            .args(["test", "--locked", "--no-run", "--message-format=json"])
            .args(["--workspace", "--all-features", "--lib", "--test", "it"])
            .current_dir(copy)
            .env("CARGO_TARGET_DIR", target)
            // Any wrapper gives the packages of the copy names of their own in it. Else the next build of the tree would
            // take them for its own.
            .env("RUSTC_WORKSPACE_WRAPPER", "/usr/bin/env")
            .stderr(Stdio::inherit())
            .output()
            .expect("cargo runs");
        assert!(
            built.status.success(),
            "the copy does not compile: {}",
            errors(&built.stdout)
        );
        let program = |message: Value| {
            message["profile"]["test"].as_bool().filter(|test| *test)?;
            let word = match message["target"]["name"].as_str()? {
                "leasehold" => "lib",
                "leasehold_model" => "model",
                name => name,
            };
            let path = message["executable"].as_str()?;
            Some((word.to_owned(), path.into()))
        };
        let programs = messages(&built.stdout).filter_map(program).collect();
        Self {
            copy: copy.into(),
            programs,
        }
    }

    /// Runs one row's test: the word for a program, then a filter.
    pub(crate) fn run(&self, test: &str, mutant: Option<&str>) -> Ended {
        let (word, filter) = test.split_once(' ').expect("a program and a filter");
        let program = self
            .programs
            .get(word)
            .unwrap_or_else(|| panic!("no such program: {test}"));
        let listed = Command::new(program)
            .args(["--list", filter])
            .output()
            .expect("it starts");
        if !String::from_utf8_lossy(&listed.stdout).contains(": test") {
            return Ended::Missing;
        }
        let folder = if word == "model" {
            self.copy.join("tests/model")
        } else {
            self.copy.clone()
        };
        let mut run = Command::new(program);
        run.arg(filter).current_dir(folder).stdin(Stdio::null());
        run.stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(mutant) = mutant {
            run.env("MUTANT", mutant);
        }
        let mut child = run.spawn().expect("it starts");
        let until = Instant::now() + LIMIT;
        loop {
            match child.try_wait().expect("our child") {
                Some(status) if status.success() => return Ended::Passed,
                Some(_) => return Ended::Failed,
                None if Instant::now() > until => {
                    child.kill().and_then(|()| child.wait()).expect("our child");
                    return Ended::Hung;
                }
                None => thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

/// A cargo that is told nothing of this program: a build script that reads its variables would be run again, here and
/// then in the tree.
fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    for (key, _) in env::vars_os() {
        let name = key.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&key);
        }
    }
    cargo
}

fn messages(output: &[u8]) -> impl Iterator<Item = Value> {
    output
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
}

fn errors(output: &[u8]) -> String {
    let texts = messages(output).filter_map(|message| {
        let is_error = message["message"]["level"] == "error";
        message["message"]["rendered"]
            .as_str()
            .filter(|_| is_error)
            .map(str::to_owned)
    });
    texts.collect()
}
