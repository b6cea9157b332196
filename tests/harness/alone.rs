//! A test in a process of its own, because it changes state that all tests of a process share.

use std::process::{Command, Stdio};

/// Set only in such a process.
const ALONE: &str = "LEASEHOLD_TEST_ALONE";

/// Runs this closure of a test, which is its whole body, in a process of its own.
pub fn alone(body: impl FnOnce()) {
    let test = test_of(&body);
    alone_as(test, body);
}

/// The same for the closure of a test that another one is about.
pub fn alone_as(test: &str, body: impl FnOnce()) {
    let own = std::env::current_exe().expect("the test binary");
    alone_under(Command::new(own), test, body);
}

/// The path of the test that contains this closure.
pub fn test_of<F>(_: &F) -> &'static str {
    let closure = std::any::type_name::<F>();
    let test = closure.split_once("::{{closure}}");
    let (_, path) = test
        .and_then(|(test, _)| test.split_once("::"))
        .expect(closure);
    path
}

/// Runs the body of this test in a process that the command starts, which ends with the path of the test program.
pub fn alone_under(mut command: Command, test: &str, body: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        body();
        return;
    }
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    let ended = command
        .env(ALONE, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    let is_passed = ended.status.success() && output.contains("1 passed");
    assert!(is_passed, "{output}\n{errors}");
    // The measurements of the test.
    eprint!("{errors}");
}
