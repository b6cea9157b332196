//! The tool on a server of etcd.

use super::{Sandbox, any_store};
use crate::harness::etcd_server::EtcdServer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_runs_has_the_name_and_an_evicted_job_ends_with_79() {
    let url = EtcdServer::shared().await.url();
    any_store::one_of_two_runs_has_the_name_and_an_evicted_job_ends_with_79(&url);
    any_store::the_doctor_says(&url, &["ok       trial: ", "etcd-few-members", "etcd 3."]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_see_and_evict_what_is_held() {
    let url = EtcdServer::shared().await.url();
    any_store::operators_see_and_evict_what_is_held([&url, &url]);
}

#[test]
fn bad_input_is_64_and_a_server_that_is_not_there_69() {
    let sandbox = Sandbox::new();
    for (url, code, words) in [
        ("etcd://me@a", 64, "its user or its password is missing"),
        ("etcd://a/path", 64, "prefix= is what all keys begin with"),
        ("etcd://a?ca=x.pem", 64, "etcds:// does"),
        ("etcds://a?ca=/absent.pem", 64, "the file cannot be read"),
        ("etcd://127.0.0.1:9", 69, "no server listens at 127.0.0.1:9"),
    ] {
        let said = sandbox.fails(&["-n", "--store", url], code).stderr;
        assert!(said.contains(words), "{url}: {said}");
    }
}
