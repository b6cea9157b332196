//! The tool on a store in ZooKeeper.

use super::export::Busy;
use super::{Sandbox, operators, top};
use crate::harness::zookeeper_server::ZookeeperServer;

#[tokio::test]
async fn one_of_two_runs_has_the_name_and_the_next_one_follows() {
    let url = ZookeeperServer::chroot().await;
    let sandbox = Sandbox::new();
    let mut first = sandbox.run(
        &["--store", &url],
        "echo up > first; while [ ! -e go ]; do sleep 0.01; done",
    );
    sandbox.mark("first");
    let held = sandbox.run(&["--store", &url, "-n"], "true").end();
    assert_eq!(held.code, Some(75), "{held:?}");
    let status = sandbox
        .start(sandbox.tool(&["status", "--store", &url]))
        .end();
    assert_eq!(status.code, Some(0), "{status:?}");
    assert!(
        status.stdout.lines().any(|line| line.starts_with("x ")),
        "{status:?}"
    );
    let mut second = sandbox.run(&["--store", &url], "echo $LEASEHOLD_TOKEN");
    std::fs::write(sandbox.path("go"), "").expect("written");
    assert_eq!(first.end().code, Some(0));
    let second = second.end();
    assert_eq!(second.code, Some(0), "{second:?}");
    assert!(second.stdout.trim().parse::<u64>().is_ok(), "{second:?}");
}

#[tokio::test]
async fn a_chroot_that_is_not_there_is_78_and_no_password_is_told() {
    let url = ZookeeperServer::chroot().await;
    let url = url.replacen("://", "://me:secret@", 1);
    let sandbox = Sandbox::new();
    let said = sandbox
        .fails(&["--store", &format!("{url}/absent")], 78)
        .stderr;
    assert!(
        said.contains("chroot") && !said.contains("secret"),
        "{said}"
    );
}

#[tokio::test]
async fn an_evicted_job_ends_with_79() {
    let url = ZookeeperServer::chroot().await;
    let sandbox = Sandbox::new();
    let store = ["--store", url.as_str()];
    let options = [&store[..], &["--ttl", "4s"]].concat();
    let mut job = sandbox.run(&options, super::HOLDER);
    sandbox.mark("first");
    let evict = [&["evict"], &store[..], &["x"]].concat();
    let evicted = sandbox.start(sandbox.tool(&evict)).end();
    assert_eq!(evicted.code, Some(0), "{evicted:?}");
    let ended = job.end();
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(ended.stderr.contains("reason=evicted"), "{ended:?}");
}

#[tokio::test]
async fn the_doctor_tries_the_store_and_says_what_weakens_it() {
    let url = ZookeeperServer::chroot().await;
    let sandbox = Sandbox::new();
    let told = sandbox
        .start(sandbox.tool(&["doctor", "--store", &url]))
        .end();
    for line in ["ok       trial: ", "zookeeper-one-server"] {
        assert!(told.stdout.contains(line), "{line}: {told:?}");
    }
}

#[tokio::test]
async fn the_status_of_an_evicted_name_says_so() {
    let url = ZookeeperServer::chroot().await;
    operators::evict_and_ask(&url);
}

#[tokio::test]
async fn the_live_view_shows_a_holder_and_evicts_it() {
    let url = ZookeeperServer::chroot().await;
    top::see_and_evict(&url);
}

#[tokio::test]
async fn the_store_is_exported_as_a_whole() {
    let url = ZookeeperServer::chroot().await;
    let busy = Busy::make(&url).await;
    // The clock of the servers shows in what is written only, and an exporter writes nothing.
    assert_eq!(busy.exported("zookeeper"), None);
    busy.end();
}
