//! The tool on a store in a bucket.

use rustix::process::Signal;

use super::Sandbox;
use crate::harness::bucket_server::BucketServer;

#[tokio::test]
async fn a_job_runs_under_a_lease_in_a_bucket_and_status_shows_it() {
    let prefix = format!("tool-{:016x}", fastrand::u64(..));
    let url = BucketServer::shared().await.leases_url(&prefix);
    let sandbox = Sandbox::new();
    let doctor = ["doctor", "--json", "--store", &url];
    let untried = sandbox.start(sandbox.tool(&doctor)).end();
    assert!(untried.stdout.contains("bucket-untried"), "{untried:?}");
    let init = sandbox
        .start(sandbox.tool(&["init", "--connect-timeout", "1min", "--store", &url]))
        .end();
    assert_eq!(init.code, Some(0), "{init:?}");
    let mut run = sandbox.run(
        &["--store", &url],
        "echo $LEASEHOLD_TOKEN > token; sleep 600",
    );
    let token = sandbox.mark("token");
    let status = ["status", "--store", &url, "--json"];
    let shown = sandbox.start(sandbox.tool(&status)).end();
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stdout.contains(&token), "{shown:?}");
    run.signal(Signal::TERM);
    run.end();
    let shown = sandbox.start(sandbox.tool(&status)).end();
    assert!(!shown.stdout.contains(&token), "{shown:?}");
    let tried = sandbox.start(sandbox.tool(&doctor)).end();
    assert_eq!(tried.code, Some(0), "{tried:?}");
    assert!(!tried.stdout.contains("bucket-untried"), "{tried:?}");
}

/// Nothing is noted, and no job begins.
pub(crate) fn init_and_a_job_are_refused(url: &str, words: &str) {
    let sandbox = Sandbox::new();
    let init = sandbox.tool(&["init", "--connect-timeout", "1min", "--store", url]);
    let init = sandbox.start(init).end();
    let job = sandbox.run(&["--store", url], "touch ran").end();
    for refused in [init, job] {
        println!("{refused:?}");
        assert_eq!(refused.code, Some(78), "{refused:?}");
        assert!(refused.stderr.contains(words), "{refused:?}");
    }
    assert!(!sandbox.has("ran"));
    let doctor = sandbox.tool(&["doctor", "--json", "--store", url]);
    let doctor = sandbox.start(doctor).end();
    assert!(doctor.stdout.contains("bucket-untried"), "{doctor:?}");
}
