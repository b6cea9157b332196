//! The files in `examples` that other programs read, and the page of the tool: the real tool runs the command lines in
//! them.
//!
//! The store is a file of the test, and the job is replaced by `true`; every option stays as it is written.

mod container;
mod cron;
mod hold;
mod kubernetes;
mod page;
mod programs;
mod prometheus;
mod systemd;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::harness::tree::root;

/// A folder with the tool in it, under its own name, and with the leases of one test.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tool = env!("CARGO_BIN_EXE_leasehold");
        std::os::unix::fs::symlink(tool, folder.path().join("leasehold")).unwrap();
        let store = format!("sqlite:{}", folder.path().join("leases.sqlite").display());
        fs::write(folder.path().join("store"), store).unwrap();
        Self(folder)
    }

    /// A program that finds the tool and the store, and nothing of the caller's that concerns them.
    fn program(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LEASEHOLD_") {
                command.env_remove(name);
            }
        }
        command
            .current_dir(self.0.path())
            .env("PATH", format!("{}:/usr/bin:/bin", self.0.path().display()))
            .env("LEASEHOLD_STORE_FILE", self.0.path().join("store"))
            .env("XDG_RUNTIME_DIR", self.0.path())
            .env("XDG_CONFIG_HOME", self.0.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs a command line of an example, with another job in it.
    fn run(&self, words: &[&str], job: &[&str]) -> Output {
        let words = with_job(words, job);
        assert!(words[0].ends_with("leasehold"), "{words:?}");
        let mut command = self.program(self.0.path().join("leasehold"));
        command.args(&words[1..]).output().unwrap()
    }
}

/// The words up to `--`, and another job after it.
fn with_job<'a>(words: &[&'a str], job: &[&'a str]) -> Vec<&'a str> {
    let end = words.iter().position(|word| *word == "--");
    let end = end.unwrap_or_else(|| panic!("no job in {words:?}"));
    assert!(words.len() > end + 1, "no job in {words:?}");
    [&words[..=end], job].concat()
}

/// The value of `--option value` or `--option=value`.
fn option<'a>(words: &[&'a str], option: &str) -> Option<&'a str> {
    let index = words.iter().position(|word| word.starts_with(option))?;
    let rest = words[index].strip_prefix(option)?;
    rest.strip_prefix('=')
        .or_else(|| words.get(index + 1).copied())
}

/// What follows this key, in the first line that begins with it.
fn setting<'a>(file: &'a str, key: &str) -> &'a str {
    let mut lines = file.lines();
    let value = lines.find_map(|line| line.trim_start().strip_prefix(key));
    value.unwrap_or_else(|| panic!("no {key}"))
}

/// A number of seconds, as `30s`.
fn seconds(text: &str) -> Duration {
    let number = text.strip_suffix('s').unwrap_or(text);
    Duration::from_secs(number.parse().unwrap())
}

fn example_path(file: &str) -> PathBuf {
    root().join("examples").join(file)
}

fn example(file: &str) -> String {
    fs::read_to_string(example_path(file)).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
