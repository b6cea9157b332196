//! How long a job and its lease may and must last.

use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};

use super::{STUBBORN_FAMILY, Sandbox, is_alive};

#[test]
fn a_job_that_runs_for_too_long_is_ended_with_124() {
    let sandbox = Sandbox::new();
    let began = Monotonic.now();
    let options = ["--max-runtime", "300ms", "--kill-after", "300ms"];
    let ended = sandbox.run(&options, STUBBORN_FAMILY).end();
    assert_eq!(ended.code, Some(124), "{ended:?}");
    let took = Monotonic.now().since(began);
    assert!(took >= Duration::from_millis(600), "{took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(
        sandbox
            .numbers("pids")
            .into_iter()
            .all(|pid| !is_alive(pid))
    );
}

#[test]
fn a_job_that_reports_progress_without_end_has_its_time_all_the_same() {
    let sandbox = Sandbox::new();
    let began = Monotonic.now();
    let script = "exec yes > ${LEASEHOLD_STATUS_FILE%.json}.progress";
    let ended = sandbox.run(&["--max-runtime", "1s"], script).end();
    assert_eq!(ended.code, Some(124), "{ended:?}");
    let took = Monotonic.now().since(began);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_job_that_ends_before_its_time_keeps_its_code() {
    let sandbox = Sandbox::new();
    let ended = sandbox.run(&["--max-runtime", "20s"], "exit 3").end();
    assert_eq!(ended.code, Some(3), "{ended:?}");
}

#[test]
fn a_lease_that_is_held_for_too_long_is_ended_with_79() {
    let sandbox = Sandbox::new();
    let options = ["--max-hold", "300ms", "--kill-after", "300ms"];
    let ended = sandbox.run(&options, "exec sleep 20").end();
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(ended.stderr.contains("max_hold"), "{ended:?}");
}

#[test]
fn a_short_job_keeps_its_name_taken_while_the_tool_is_gone() {
    let sandbox = Sandbox::new();
    let began = Monotonic.now();
    assert_eq!(
        sandbox
            .run(&["--hold-at-least", "1500ms"], "true")
            .end()
            .code,
        Some(0)
    );
    assert!(Monotonic.now().since(began) < Duration::from_millis(1_400));
    assert_eq!(
        sandbox.run(&["-n"], "echo up > second").end().code,
        Some(75)
    );
    assert_eq!(sandbox.run(&[], "echo up > third").end().code, Some(0));
    assert!(Monotonic.now().since(began) >= Duration::from_millis(1_500));
    assert!(!sandbox.has("second"));
}

#[test]
fn a_job_that_is_ended_by_a_limit_of_its_own_keeps_its_name_taken() {
    for limit in ["--max-hold", "--progress-within"] {
        let sandbox = Sandbox::new();
        let options = [limit, "300ms", "--kill-after", "200ms", "--ttl", "2s"];
        let kept = ["--hold-at-least", "1h"];
        let ended = sandbox
            .run(&[&options[..], &kept].concat(), "exec sleep 20")
            .end();
        assert_eq!(ended.code, Some(79), "{ended:?}");
        let status = sandbox.start(sandbox.tool(&["status"])).end().stdout;
        assert!(status.contains("state=kept"), "{limit}: {status}");
    }
}

#[test]
fn with_few_descriptors_a_run_works_or_says_why_and_the_name_is_free() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&[], "true").end().code, Some(0));
    for most in 4..=32 {
        let script = format!("ulimit -n {most}; exec \"$TOOL\" run -n x true");
        let ended = sandbox.start(sandbox.program("sh", &["-c", &script])).end();
        let is_internal = ended.code == Some(125) && !ended.stderr.contains("panicked");
        // A file that cannot be opened is a store that cannot be used.
        let is_expected = is_internal || matches!(ended.code, Some(0 | 69 | 78));
        assert!(is_expected, "{most}: {ended:?}");
        assert_eq!(sandbox.run(&["-n"], "true").end().code, Some(0), "{most}");
    }
}

#[test]
fn a_name_is_kept_for_longer_than_a_day() {
    let sandbox = Sandbox::new();
    let weekly = ["--hold-at-least", "8d"];
    assert_eq!(sandbox.run(&weekly, "true").end().code, Some(0));
    let ended = sandbox.run(&["-n"], "true").end();
    assert_eq!(ended.code, Some(75), "{ended:?}");
}

#[test]
fn a_long_job_frees_its_name_at_its_end() {
    let sandbox = Sandbox::new();
    let ended = sandbox
        .run(&["--hold-at-least", "100ms"], "sleep 0.2")
        .end();
    assert_eq!(ended.code, Some(0));
    assert_eq!(sandbox.run(&["-n"], "true").end().code, Some(0));
}

#[test]
fn the_token_is_lifted_over_what_storage_has_seen() {
    let sandbox = Sandbox::new();
    let told = "echo $LEASEHOLD_TOKEN > token";
    assert_eq!(sandbox.run(&[], told).end().code, Some(0));
    // Ahead of the clock, as after a restore from a machine whose clock was fast.
    let seen = sandbox.numbers("token")[0] + 3_600_000_000;
    let ended = sandbox.run(&["--min-token", &seen.to_string()], told).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(sandbox.numbers("token")[0] > seen);
}

/// A write beyond `ulimit -f` ends a process by default: the name would stay taken for its ttl.
#[test]
fn a_limit_on_the_size_of_files_fails_the_run_and_does_not_kill_it() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&[], "true").end().code, Some(0));
    let script = "ulimit -f 0; exec $TOOL run --connect-timeout 1s -n x true";
    let ended = sandbox
        .start(sandbox.program("bash", &["-c", script]))
        .end();
    assert_eq!(ended.signal, None, "{ended:?}");
    let next = sandbox.run(&["-n"], "true").end();
    assert_eq!(next.code, Some(0), "{next:?}");
    // The job has the signal as it was: it is ended by its own write.
    let script = "$TOOL run x -- bash -c 'ulimit -f 0; echo long > file'";
    let ended = sandbox
        .start(sandbox.program("bash", &["-c", script]))
        .end();
    assert_eq!(ended.code, Some(153), "{ended:?}");
}
