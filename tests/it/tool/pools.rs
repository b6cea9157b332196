//! `--permits`, `--shared`, `--exclusive` and `--again`, with the real program; and a pool in the other commands.

use rustix::process::Signal;
use serde_json::Value;

use super::{Ended, Process, Sandbox};

impl Sandbox {
    /// Starts a job with these options that says its permit in the mark, and ends once there is a file `go`.
    fn taker(&self, options: &[&str], mark: &str) -> Process {
        let script = format!(
            "echo $LEASEHOLD_NAME ${{LEASEHOLD_PERMIT-none}} > {mark}; until test -e go; do sleep 0.02; done"
        );
        self.run(options, &script)
    }

    /// Starts such a job, and waits until it runs. Returns what it said.
    fn holds(&self, options: &[&str], mark: &str) -> (Process, String) {
        let run = self.taker(options, mark);
        let said = self.mark(mark);
        (run, said)
    }

    fn says(&self, arguments: &[&str]) -> Ended {
        self.start(self.tool(arguments)).end()
    }
}

#[test]
fn two_permits_are_held_at_once_and_each_job_knows_its_number() {
    let sandbox = Sandbox::new();
    let (_first, one) = sandbox.holds(&["--permits", "2"], "one");
    let (_second, two) = sandbox.holds(&["--permits", "2"], "two");
    let mut said = [one, two];
    said.sort();
    assert_eq!(said, ["x#1 1", "x#2 2"]);
    let third = sandbox.fails(&["-n", "--permits", "2"], 75);
    assert!(third.stderr.contains("has permit"), "{third:?}");
    let mut waiting = sandbox.taker(&["--permits", "2"], "three");
    waiting.wait_to_say("waiting for x: ");
    assert!(!sandbox.has("three"));
    sandbox.let_go();
    assert_eq!(waiting.end().code, Some(0));
}

#[test]
fn those_that_share_a_name_run_together_and_one_that_is_alone_waits_for_them() {
    let sandbox = Sandbox::new();
    let (_first, one) = sandbox.holds(&["--shared"], "one");
    let (_second, two) = sandbox.holds(&["--shared"], "two");
    assert!(
        one.starts_with("x#") && two.starts_with("x#"),
        "{one} {two}"
    );
    sandbox.fails(&["-n", "--exclusive"], 75);
    let mut alone = sandbox.taker(&["--exclusive"], "alone");
    alone.wait_to_say("waiting for x: ");
    assert!(!sandbox.has("alone"));
    sandbox.let_go();
    assert_eq!(alone.end().code, Some(0));
    assert_eq!(sandbox.mark("alone"), "x none");
}

#[test]
fn no_other_shares_a_name_that_is_held_alone() {
    let sandbox = Sandbox::new();
    let (_alone, _) = sandbox.holds(&["--exclusive"], "alone");
    sandbox.fails(&["-n", "--shared"], 75);
    sandbox.fails(&["-n"], 75);
}

#[test]
fn a_wait_ends_when_what_it_waits_for_is_free() {
    let sandbox = Sandbox::new();
    let (_first, _) = sandbox.holds(&["--permits", "2"], "one");
    let wait = |options: &[&str]| sandbox.says(&[&["wait", "-w", "0s", "x"], options].concat());
    assert_eq!(wait(&["--permits", "2"]).code, Some(0));
    assert_eq!(wait(&["--shared"]).code, Some(0));
    let alone = wait(&["--exclusive"]);
    assert_eq!(alone.code, Some(75), "{alone:?}");
    assert!(alone.stderr.contains("has permit"), "{alone:?}");
    let (_second, _) = sandbox.holds(&["--permits", "2"], "two");
    assert_eq!(wait(&["--permits", "2"]).code, Some(75));
}

#[test]
fn status_shows_the_permits_of_a_pool_and_evict_names_them() {
    let sandbox = Sandbox::new();
    let (_first, _) = sandbox.holds(&["--permits", "2"], "one");
    let (_second, _) = sandbox.holds(&["--permits", "2"], "two");
    for arguments in [&["status", "--json", "x"][..], &["status", "--json"]] {
        let answer: Value = serde_json::from_str(&sandbox.says(arguments).stdout).expect("JSON");
        let permits = answer["leases"].as_array().expect("a list").iter();
        let permits: Vec<_> = permits.map(|lease| lease["permit"].as_u64()).collect();
        assert_eq!(permits, [Some(1), Some(2)], "{answer}");
    }
    assert_eq!(sandbox.says(&["status", "--quiet", "x"]).code, Some(0));
    let pool = sandbox.says(&["evict", "x"]);
    assert_eq!(pool.code, Some(1), "{pool:?}");
    assert!(pool.stderr.contains("its permits: x#1 x#2"), "{pool:?}");
    assert_eq!(sandbox.says(&["evict", "--now", "x#1"]).code, Some(0));
}

#[test]
fn a_build_number_in_a_name_is_no_permit_of_the_name_before_it() {
    let sandbox = Sandbox::new();
    let tool = env!("CARGO_BIN_EXE_leasehold");
    let script = format!(
        "{tool} check --name deploy; echo $? > check; {tool} run -n deploy true; echo $? > ran; sleep 20"
    );
    let run = ["run", "deploy#42", "--", "sh", "-c", &script];
    let _run = sandbox.start(sandbox.tool(&run));
    assert_eq!(sandbox.mark("ran"), "0");
    assert_eq!(sandbox.mark("check"), "79");
    let quiet = sandbox.says(&["status", "--quiet", "deploy"]);
    assert_eq!(quiet.code, Some(1), "{quiet:?}");
    let listed: Value = serde_json::from_str(&sandbox.says(&["status", "--json"]).stdout).unwrap();
    assert_eq!(listed["leases"][0]["name"], "deploy#42", "{listed}");
    assert_eq!(listed["leases"][0]["permit"], Value::Null, "{listed}");
    let evicted = sandbox.says(&["evict", "deploy"]);
    assert!(!evicted.stderr.contains("#42"), "{evicted:?}");
}

#[test]
fn the_permits_of_a_pool_are_not_those_of_a_pool_whose_name_begins_alike() {
    let sandbox = Sandbox::new();
    let named = |name: &str, mark: &str| {
        let script = format!("echo up > {mark}; sleep 20");
        let run = ["run", "--permits", "2", name, "--", "sh", "-c", &script];
        let run = sandbox.start(sandbox.tool(&run));
        sandbox.mark(mark);
        run
    };
    let _runs = [named("gpu", "one"), named("gpu#x", "two")];
    let listed: Value =
        serde_json::from_str(&sandbox.says(&["status", "--json", "gpu"]).stdout).unwrap();
    let names = listed["leases"].as_array().expect("a list").iter();
    let names: Vec<_> = names.map(|lease| lease["name"].to_string()).collect();
    assert!(names.len() == 1 && !names[0].contains("#x"), "{listed}");
}

/// The writer waits for the outer share, and the inner one would wait for the writer.
#[test]
fn a_share_within_the_job_of_a_share_is_refused_while_a_writer_waits() {
    let sandbox = Sandbox::new();
    let tool = env!("CARGO_BIN_EXE_leasehold");
    let inner = |kind: &str| format!("{tool} run -w 20s {kind} x true 2>> said; echo $? >> codes");
    // One run stands between them, whose name is another one.
    let inner = [inner("--shared"), inner("--shared"), inner("--exclusive")];
    let [free, shared, alone] = inner;
    let between =
        format!("until test -e go; do sleep 0.02; done; {shared}; {alone}; mv codes done");
    std::fs::write(sandbox.path("between"), between).unwrap();
    let mut outer = sandbox.run(&["--shared"], &format!("{free}; {tool} run y sh between"));
    assert_eq!(sandbox.mark("codes"), "0");
    let mut writing = sandbox.run(&["--exclusive"], "true");
    writing.wait_to_say("waiting for x: ");
    sandbox.let_go();
    assert_eq!(sandbox.mark("done"), "0\n75\n75");
    assert!(sandbox.mark("said").contains("part of the job that has x#"));
    assert_eq!(outer.end().code, Some(0));
    assert_eq!(writing.end().code, Some(0));
}

#[test]
fn a_permit_within_the_jobs_that_have_all_permits_is_refused() {
    let sandbox = Sandbox::new();
    let tool = env!("CARGO_BIN_EXE_leasehold");
    let inner = |count| format!("{tool} run -w 20s --permits {count} x");
    let third = format!("{} true 2> said; echo $? > code", inner(2));
    std::fs::write(sandbox.path("second"), third).unwrap();
    let second = format!("{} sh second", inner(2));
    assert_eq!(
        sandbox.run(&["--permits", "2"], &second).end().code,
        Some(0)
    );
    assert_eq!(sandbox.mark("code"), "75");
    let said = std::fs::read_to_string(sandbox.path("said")).unwrap();
    assert!(said.contains("part of the job that has x#"), "{said}");
}

#[test]
fn at_most_one_of_the_three_can_be_asked_for_and_256_permits() {
    let sandbox = Sandbox::new();
    sandbox.fails(&["--permits", "2", "--shared"], 64);
    sandbox.fails(&["--shared", "--exclusive"], 64);
    sandbox.fails(&["--permits", "0"], 64);
    sandbox.fails(&["--permits", "257"], 64);
    sandbox.fails(&["--again", "-n"], 64);
}

#[test]
fn a_command_that_fails_is_run_again_until_it_ends_with_0() {
    let sandbox = Sandbox::new();
    let script = "echo $LEASEHOLD_TOKEN >> tokens; test $(wc -l < tokens) = 3";
    let ended = sandbox.run(&["--again"], script).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let tokens = sandbox.numbers("tokens");
    assert!(tokens.len() == 3 && tokens.is_sorted(), "{tokens:?}");
    assert_eq!(ended.stderr.matches("is run again").count(), 2, "{ended:?}");
}

#[test]
fn an_evicted_command_is_run_again_and_a_signal_ends_it_for_good() {
    let sandbox = Sandbox::new();
    let script =
        "echo up >> ups; mv ups up-$LEASEHOLD_TOKEN; ls up-* | wc -l > count; exec sleep 20";
    let mut run = sandbox.run(&["--again", "--ttl", "3s"], script);
    assert_eq!(sandbox.mark("count"), "1");
    assert_eq!(sandbox.says(&["evict", "x"]).code, Some(0));
    run.wait_to_say("is run again");
    super::wait_until("the second start", || sandbox.mark("count") == "2");
    run.signal(Signal::TERM);
    let ended = run.end();
    assert_eq!(ended.signal, Some(Signal::TERM.as_raw()), "{ended:?}");
    assert_eq!(sandbox.mark("count"), "2");
}
