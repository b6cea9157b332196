//! The fence in an object store on servers that take long to install: one more that compares versions, and one that does so
//! too early.

use leasehold::ErrorKind;
use leasehold::fence::object_store::Fence;

use crate::fence::control::on_another_bucket_server;
use crate::fence::keeps_the_contract;
use crate::fence::object_store::registers::Registers;
use crate::fence::object_store::tag_alone;
use crate::harness::bucket_server::{BucketServer, Program};
use crate::tool::fenced_jobs::python_writes_under_the_jobs_pass_and_fails_when_it_is_stale;
use crate::tool::in_bucket::init_and_a_job_are_refused;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_to_files_keeps_the_contract() {
    let server = BucketServer::start(Program::Versitygw).await;
    Fence::try_out(&*server.bucket()).await.expect("fit");
    keeps_the_contract(Registers::of_one_process(server.bucket())).await;
    keeps_the_contract(Registers::of_many_processes(server.bucket())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moto_keeps_the_contract() {
    let server = BucketServer::start(Program::Moto).await;
    keeps_the_contract(Registers::of_one_process(server.bucket())).await;
    keeps_the_contract(Registers::of_many_processes(server.bucket())).await;
}

#[tokio::test]
async fn a_token_in_the_metadata_does_not_fence_behind_a_gateway_to_files() {
    let server = BucketServer::start(Program::Versitygw).await;
    tag_alone::compare("versitygw", server.bucket()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_writer_loses_writes_behind_a_gateway_only_without_the_fence() {
    let name = "faults::object_store::a_paused_writer_loses_writes_behind_a_gateway_only_without_the_fence";
    on_another_bucket_server(name, Program::Versitygw).await;
}

/// It refuses each outdated version that comes alone, so a raise does not find out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_compares_before_it_writes_is_found_unfit() {
    let server = BucketServer::start(Program::S3sFs).await;
    let fence = Fence::new(server.bucket(), "ledger").expect("valid");
    fence
        .raise(&crate::fence::pass(1, 1))
        .await
        .expect("it compares");
    let error = Fence::try_out(&*server.bucket()).await.expect_err("unfit");
    println!("s3s-fs: {error:#}");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(error.to_string().contains("puts at once"), "{error:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_as_documented_writes_under_the_jobs_pass_and_fails_when_it_is_stale() {
    python_writes_under_the_jobs_pass_and_fails_when_it_is_stale().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_behind_a_gateway_to_files_keep_the_contract() {
    let server = BucketServer::start(Program::Versitygw).await;
    crate::bucket::a_server_keeps_the_contract(&server.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn init_and_the_first_claim_refuse_a_server_that_compares_before_it_writes() {
    let server = BucketServer::start(Program::S3sFs).await;
    init_and_a_job_are_refused(&server.leases_url("leases"), "puts at once");
}
