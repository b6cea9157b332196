//! The tool on a server behind TLS. Apart from its other tests on servers, since not every one is built with it.

use super::{Ended, Place};
use crate::harness::redis_server::Setup;
use crate::harness::tls::TlsServer;

/// A run on this store that must fail so, before its command is started.
fn fails(url: &str, code: i32) -> Ended {
    Place::new().fails(&["--store", url], code)
}

#[tokio::test]
async fn runs_on_a_server_behind_tls_exclude_each_other() {
    let server = TlsServer::start().await;
    let place = Place::new();
    let url = server.trusting_url();
    let script = "echo $LEASEHOLD_TOKEN > first; until test -e go; do sleep 0.02; done; exit 4";
    let mut first = place.run(&["--store", &url], script);
    let token = place.numbers("first")[0];
    let tried = place.run(&["--store", &url, "-n"], "true").end();
    assert_eq!(tried.code, Some(75), "{tried:?}");
    let mut second = place.run(&["--store", &url], "echo $LEASEHOLD_TOKEN > second");
    second.wait_to_say("waiting for");
    place.let_go();
    assert_eq!(first.end().code, Some(4));
    assert_eq!(second.end().code, Some(0));
    assert!(place.numbers("second")[0] > token);
}

#[tokio::test]
async fn a_certificate_that_no_authority_signed_is_78_and_said() {
    let server = TlsServer::start().await;
    let ended = fails(&server.url(), 78);
    assert!(ended.stderr.contains("certificate"), "{ended:?}");
    assert!(ended.stderr.contains(&server.port.to_string()), "{ended:?}");
}

#[tokio::test]
async fn a_certificate_of_another_host_is_78_and_said() {
    let server = TlsServer::start().await;
    let url = server.trusting_url().replace("localhost", "127.0.0.1");
    let ended = fails(&url, 78);
    assert!(ended.stderr.contains("certificate"), "{ended:?}");
}

#[test]
fn a_file_of_certificates_that_is_not_there_is_64() {
    let ended = fails("rediss://localhost:1?ca=/no/such/file", 64);
    assert!(ended.stderr.contains("/no/such/file"), "{ended:?}");
}

#[tokio::test]
async fn a_client_or_a_server_without_tls_is_a_failure_that_names_the_store() {
    let server = TlsServer::start().await;
    let ended = fails(&server.url().replace("rediss", "redis"), 69);
    assert!(ended.stderr.contains(&server.port.to_string()), "{ended:?}");
    let server = Setup::default().with_port().start().await;
    let port = server.port().to_string();
    // To the server our first words are the beginning of a long line, whose end it waits for.
    let ended = fails(&format!("rediss://localhost:{port}"), 69);
    assert!(ended.stderr.contains(&port), "{ended:?}");
}
