//! A list of arguments and variables that leaves the tool no room to start anything.

use std::io::ErrorKind;
use std::process::Command;

use super::Sandbox;

/// No single variable may be longer.
const LONGEST: usize = 100_000;

/// More than any system allows in all.
const MOST: usize = 8_000_000;

/// A run with so many bytes in its environment that say nothing.
fn padded(sandbox: &Sandbox, bytes: usize, ttl: &str) -> Command {
    let mut command = sandbox.tool(&["run", "x", "--", "touch", "started"]);
    command.env("LEASEHOLD_TTL", ttl);
    // Always the same variables, so that a byte more is just that.
    for index in 0..MOST / LONGEST {
        let length = bytes.saturating_sub(index * LONGEST).min(LONGEST);
        command.env(format!("PADDING_{index}"), "x".repeat(length));
    }
    command
}

/// How many bytes there may be so that the tool starts by a hair.
fn most(sandbox: &Sandbox) -> usize {
    let (mut fits, mut bursts) = (0, MOST);
    while bursts - fits > 1 {
        let middle = usize::midpoint(fits, bursts);
        // Refused at once, with as many bytes in it.
        match padded(sandbox, middle, "no").output() {
            Ok(ended) => {
                assert_eq!(ended.status.code(), Some(64), "{ended:?}");
                fits = middle;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ArgumentListTooLong, "{error}");
                bursts = middle;
            }
        }
    }
    fits
}

#[test]
fn a_job_that_cannot_be_started_is_125_and_the_name_is_free_again() {
    let sandbox = Sandbox::new();
    let ended = sandbox.start(padded(&sandbox, most(&sandbox), "9s")).end();
    assert_eq!(ended.code, Some(125), "{ended:?}");
    assert!(ended.stderr.contains("Argument list too long"), "{ended:?}");
    assert!(!sandbox.has("started"));
    assert_eq!(sandbox.run(&["-n"], "true").end().code, Some(0));
}
