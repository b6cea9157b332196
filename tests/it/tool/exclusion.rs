//! One job at a time, and what the others get.

use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};

use super::Sandbox;

#[test]
fn two_runs_of_one_name_never_overlap_and_the_second_token_is_greater() {
    let sandbox = Sandbox::new();
    let script = "mkdir busy || echo overlap > overlap
        sleep 0.3; echo $LEASEHOLD_TOKEN >> tokens; rmdir busy";
    let mut runs: Vec<_> = (0..3).map(|_| sandbox.run(&[], script)).collect();
    for run in &mut runs {
        assert_eq!(run.end().code, Some(0));
    }
    let tokens = sandbox.numbers("tokens");
    assert_eq!(tokens.len(), 3);
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    assert!(!sandbox.has("overlap"));
}

#[test]
fn two_names_run_side_by_side() {
    let sandbox = Sandbox::new();
    let _first = sandbox.run(&[], "echo up > first; sleep 20");
    sandbox.mark("first");
    let ended = sandbox
        .start(sandbox.tool(&["run", "y", "--", "true"]))
        .end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn without_waiting_a_held_name_is_75_at_once_and_names_the_holder() {
    let sandbox = Sandbox::new();
    let first = sandbox.run(&["--label", "the first"], "echo up > first; sleep 20");
    sandbox.mark("first");
    let began = Monotonic.now();
    let ended = sandbox.run(&["-n"], "echo up > second").end();
    assert!(Monotonic.now().since(began) < Duration::from_secs(2));
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert!(ended.stderr.contains("the first"), "{ended:?}");
    assert!(
        ended
            .stderr
            .contains(&format!(":{} has it", first.child.id())),
        "{ended:?}"
    );
    assert!(!sandbox.has("second"));
}

#[test]
fn a_wait_that_runs_out_is_75() {
    let sandbox = Sandbox::new();
    let _first = sandbox.run(&[], "echo up > first; sleep 20");
    sandbox.mark("first");
    let began = Monotonic.now();
    let ended = sandbox.run(&["-w", "300ms"], "echo up > second").end();
    let waited = Monotonic.now().since(began);
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert!(waited >= Duration::from_millis(300), "{waited:?}");
    assert!(waited < Duration::from_secs(3), "{waited:?}");
    assert!(!sandbox.has("second"));
}

#[test]
fn a_wait_that_is_long_enough_gets_the_lease() {
    let sandbox = Sandbox::new();
    let _first = sandbox.run(&[], "echo up > first; sleep 0.5");
    sandbox.mark("first");
    let ended = sandbox.run(&["-w", "15s"], "echo up > second").end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(sandbox.has("second"));
}

#[test]
fn the_code_for_a_held_name_can_be_chosen() {
    let sandbox = Sandbox::new();
    let _first = sandbox.run(&[], "echo up > first; sleep 20");
    sandbox.mark("first");
    assert_eq!(sandbox.run(&["-n", "-E", "3"], "true").end().code, Some(3));
    assert_eq!(
        sandbox.run(&["-n", "--skip-ok"], "true").end().code,
        Some(0)
    );
}

#[test]
fn a_run_within_a_run_sees_its_own_lease() {
    let sandbox = Sandbox::new();
    let inner = format!(
        "echo $LEASEHOLD_NAME > outer; {} run y -- sh -c 'echo $LEASEHOLD_NAME > inner'; echo $LEASEHOLD_NAME > after",
        env!("CARGO_BIN_EXE_leasehold")
    );
    assert_eq!(sandbox.run(&[], &inner).end().code, Some(0));
    assert_eq!(sandbox.mark("outer"), "x");
    assert_eq!(sandbox.mark("inner"), "y");
    assert_eq!(sandbox.mark("after"), "x");
}
