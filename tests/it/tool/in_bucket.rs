//! The tool on a store in a bucket.

use rustix::process::Signal;

use super::Bench;
use crate::harness::bucket_server::BucketServer;

#[tokio::test]
async fn a_job_runs_under_a_lease_in_a_bucket_and_status_shows_it() {
    let prefix = format!("tool-{:016x}", fastrand::u64(..));
    let url = BucketServer::shared().await.leases_url(&prefix);
    let bench = Bench::new();
    let doctor = ["doctor", "--json", "--store", &url];
    let untried = bench.start(bench.tool(&doctor)).end();
    assert!(untried.stdout.contains("bucket-untried"), "{untried:?}");
    let init = bench
        .start(bench.tool(&["init", "--connect-timeout", "1min", "--store", &url]))
        .end();
    assert_eq!(init.code, Some(0), "{init:?}");
    let mut run = bench.run(
        &["--store", &url],
        "echo $LEASEHOLD_TOKEN > token; sleep 600",
    );
    let token = bench.mark("token");
    let status = ["status", "--store", &url, "--json"];
    let shown = bench.start(bench.tool(&status)).end();
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stdout.contains(&token), "{shown:?}");
    run.signal(Signal::TERM);
    run.end();
    let shown = bench.start(bench.tool(&status)).end();
    assert!(!shown.stdout.contains(&token), "{shown:?}");
    let tried = bench.start(bench.tool(&doctor)).end();
    assert_eq!(tried.code, Some(0), "{tried:?}");
    assert!(!tried.stdout.contains("bucket-untried"), "{tried:?}");
}

/// Nothing is noted, and no job begins.
pub(crate) fn init_and_a_job_are_refused(url: &str, words: &str) {
    let bench = Bench::new();
    let init = bench.tool(&["init", "--connect-timeout", "1min", "--store", url]);
    let init = bench.start(init).end();
    let job = bench.run(&["--store", url], "touch ran").end();
    for refused in [init, job] {
        println!("{refused:?}");
        assert_eq!(refused.code, Some(78), "{refused:?}");
        assert!(refused.stderr.contains(words), "{refused:?}");
    }
    assert!(!bench.has("ran"));
    let doctor = bench.tool(&["doctor", "--json", "--store", url]);
    let doctor = bench.start(doctor).end();
    assert!(doctor.stdout.contains("bucket-untried"), "{doctor:?}");
}
