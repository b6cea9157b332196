//! Leases in a bucket: on moto, which the tests share, and on stores in memory with a fault.

use std::sync::Arc;
use std::time::Duration;

use leasehold::store::bucket::Bucket;
use leasehold::store::record::Records;
use leasehold::store::{Release, Store, conformance, open};
use leasehold::{Client, ErrorKind, LossReason};
use object_store::ObjectStore;

use crate::fence::object_store::faulty::{Fault, Faulty};
use crate::harness::asking::{asked, claim, granted, held, next_token, released};
use crate::harness::bucket_server::{BucketServer, Program, bucket};
use crate::harness::leases::take_waiting;
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{lost, until};

const SKEW: Duration = Duration::from_secs(1);

fn records(store: Arc<dyn ObjectStore>, prefix: &str) -> Records<Bucket> {
    let bucket = Bucket::new(store, prefix).expect("a prefix in order");
    Records::new(bucket.with_skew(SKEW))
}

/// Leases on this server, below a prefix that no other test has.
fn leases_at(url: &str) -> impl Fn() -> Records<Bucket> + use<> {
    let (url, prefix) = (url.to_owned(), format!("{:016x}", fastrand::u64(..)));
    move || records(bucket(&url), &prefix)
}

pub(crate) async fn a_server_keeps_the_contract(url: &str) {
    let leases = leases_at(url);
    conformance::check(move || std::future::ready(Arc::new(leases()) as Arc<dyn Store>)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moto_keeps_the_contract() {
    // Of its own: it serves one request at a time.
    let server = BucketServer::start(Program::Moto).await;
    a_server_keeps_the_contract(&server.url()).await;
}

#[tokio::test]
async fn a_server_that_ignores_conditions_is_refused_by_the_first_claim() {
    for (fault, said) in [
        (Fault::IgnoresConditions, "were carried out, expected 1"),
        (Fault::HasNoVersions, "have no version"),
    ] {
        let store = records(Faulty::with(fault), "leases");
        let error = asked(&store, &claim("a", LONG), LIMIT).await;
        let error = error.expect_err("it does not compare");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
        assert!(format!("{error:#}").contains(said), "{error:#}");
        // Nothing is noted: the next process finds out again.
        let again = asked(&store, &claim("a", LONG), LIMIT).await;
        assert_eq!(again.expect_err("still").kind(), ErrorKind::Misconfigured);
    }
}

#[tokio::test]
async fn a_claim_reads_the_note_of_the_trial_and_no_more() {
    let store = Faulty::with(Fault::None);
    next_token(&records(store.clone(), "leases"), "a").await;
    store.requests();
    let fresh = records(store.clone(), "leases");
    let lease = claim("a", LONG);
    granted(&fresh, &lease).await;
    assert_eq!(
        store.requests(),
        (1, 2),
        "the record, the note, and the put"
    );
    assert_eq!(released(&fresh, &lease).await, Release::Released);
    next_token(&fresh, "a").await;
    assert_eq!(store.requests(), (3, 0));
}

#[tokio::test]
async fn a_missing_bucket_is_named() {
    let url = BucketServer::shared().await.url() + "-missing";
    let store = leases_at(&url)();
    let error = asked(&store, &claim("a", LONG), LIMIT).await;
    let error = error.expect_err("there is no bucket");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(
        format!("{error:#}").contains("bucket is missing"),
        "{error:#}"
    );
}

#[tokio::test]
async fn a_server_that_does_not_listen_is_an_outage() {
    let store = leases_at("http://127.0.0.1:9/tests")();
    let error = asked(&store, &claim("a", LONG), LIMIT).await;
    let error = error.expect_err("nobody listens");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:#}");
}

#[tokio::test]
async fn a_dead_holders_name_is_granted_to_a_fresh_process() {
    let leases = leases_at(&BucketServer::shared().await.url());
    let dead = claim("a", Duration::from_secs(1));
    let token = granted(&leases(), &dead).await;
    let next = claim("a", LONG);
    held(&leases(), &next).await;
    let lifted = until("the end of the dead holder's lease", async || {
        // Each time as a process that was not there before.
        let answer = asked(&leases(), &next, LIMIT).await.expect("answered");
        matches!(answer, leasehold::store::Answer::Granted(_)).then_some(())
    });
    lifted.await;
    assert!(next.renewal().token > token);
}

#[tokio::test]
async fn credentials_are_read_from_a_file_and_a_wrong_one_is_named() {
    let server = BucketServer::shared().await;
    let url = server.leases_url(&format!("{:016x}", fastrand::u64(..)));
    let store = open(&url).await.expect("the file is there");
    next_token(&*store, "a").await;
    for (url, said) in [
        (format!("{url}&profile=none"), "has no section [none]"),
        (
            url.replace("credentials=", "credentials=/nowhere"),
            "cannot be read",
        ),
    ] {
        let error = open(&url).await.map(drop).expect_err(said);
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_is_told_when_the_server_falls_silent() {
    let server = BucketServer::start(Program::Moto).await;
    let leases = leases_at(&server.url());
    let client = Client::builder()
        .store(leases())
        .ttl(Duration::from_secs(3));
    let client = client.build().await.expect("settings in order");
    let lease = take_waiting(&client, "a").await;
    server.process.pause();
    assert_eq!(lost(&lease).await, LossReason::Deadline);
    server.process.resume();
    drop(lease);
    drop(take_waiting(&client, "a").await);
}
