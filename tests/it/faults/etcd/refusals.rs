//! What real servers refuse: the kind and the words of each.

use leasehold::ErrorKind;
use leasehold::store::{Outcome, Release};
use serde_json::json;

use crate::etcd::fake::{Fake, Said};
use crate::etcd::open;
use crate::harness::asking::{chain, claim, granted, next_token, refused, released, renewed};
use crate::harness::etcd_server::EtcdServer;
use crate::harness::times::{LIMIT, LONG};
use crate::harness::tls::{Authority, Certificate};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_database_grants_nothing_and_renews_and_releases_on() {
    let server = EtcdServer::start().await;
    let url = server.url();
    let store = open(&url).await;
    let lease = claim("held", LONG);
    granted(&*store, &lease).await;
    let status = server.call("maintenance/status", json!({})).await;
    let member = &status["header"]["member_id"];
    let alarm = json!({ "action": "ACTIVATE", "memberID": member, "alarm": "NOSPACE" });
    server.call("maintenance/alarm", alarm).await;
    refused(
        &url,
        ErrorKind::Unavailable,
        "compact it, defragment each member",
    )
    .await;
    assert!(matches!(renewed(&*store, &lease).await, Outcome::Renewed));
    let hazards = store.hazards(LIMIT).await.expect("answered");
    let alarm = hazards.iter().find(|hazard| hazard.id == "etcd-alarm");
    let alarm = alarm.expect("it is told");
    assert!(alarm.what.contains("alarm:NOSPACE"), "{alarm:?}");
    assert_eq!(released(&*store, &lease).await, Release::Released);
}

/// Fails unless the server refuses our certificate. The end of the connection can overtake the alert that says so.
async fn certificate_refused(url: &str) {
    let store = open(url).await;
    let lease = claim("a", LONG);
    let failed = store.acquire(&lease, lease.ask, LIMIT).await;
    let error = failed.expect_err("it has no certificate of ours").error;
    let words = match error.kind() {
        ErrorKind::Misconfigured => "refuses our certificate, or wants one",
        _ => "it may want a client certificate that it trusts",
    };
    let said = chain(&error);
    assert!(said.contains(words), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_trusted_by_its_authority_and_its_name_and_shown_a_certificate() {
    let authority = Authority::new();
    // Its files are read for each connection.
    let certificate = authority.issue("127.0.0.1");
    let server = EtcdServer::start_behind(&certificate, true).await;
    let (url, client) = (server.url(), authority.issue("client"));
    let ca = format!("{url}&ca={}", authority.path().display());
    let whole = format!("{ca}&{}", client.shown());
    next_token(&*open(&whole).await, "a").await;
    let misconfigured = ErrorKind::Misconfigured;
    refused(&url, misconfigured, "certificate is not trusted").await;
    certificate_refused(&ca).await;
    let stranger = Certificate::new();
    certificate_refused(&format!("{ca}&{}", stranger.shown())).await;
    let other_name = format!("{whole}&server_name=elsewhere");
    refused(&other_name, misconfigured, "certificate is not trusted").await;
    let plain = url.replace("etcds://", "etcd://");
    refused(
        &plain,
        ErrorKind::Unavailable,
        "a server with TLS has the URL etcds://",
    )
    .await;
    let words = "a server without TLS has the URL etcd://";
    let tls = EtcdServer::shared().await.url();
    let tls = tls.replace("etcd://", "etcds://");
    refused(&tls, ErrorKind::Unavailable, words).await;
    // One that says something at once.
    let plain = Fake::answering(|_| Said::Nothing).await;
    let plain = plain.url().replace("etcd://", "etcds://");
    refused(&plain, misconfigured, "what listens there speaks no TLS").await;
}
