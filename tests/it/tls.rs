//! The store on Redis behind TLS. Apart from its other tests, because not every server of their matrix is built with it.

use std::sync::Arc;

use leasehold::ErrorKind;
use leasehold::store::redis::Redis;
use leasehold::store::{Lane, Store, conformance};

use crate::harness::asking::{asked, claim, granted};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::tls::{TlsServer, make_certificate};

#[tokio::test]
async fn a_server_behind_tls_keeps_the_contract() {
    let server = TlsServer::start().await;
    let store = Redis::open(&server.trusting_url()).expect("a URL in order");
    conformance::check(Arc::new(store)).await;
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_refused() {
    let server = TlsServer::start().await;
    let store = Redis::open(&server.url()).expect("a URL in order");
    let refused = asked(&store, &claim("a", LONG), LIMIT).await;
    let error = refused.expect_err("the web's roots do not know it");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    let source = std::error::Error::source(&error).expect("a source");
    assert!(source.to_string().contains("certificate"), "{source}");
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_is_shown_it_on_every_connection() {
    let server = TlsServer::of_known_clients().await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    server.hand_out(folder.path());
    let store = Redis::open(&server.url_showing(folder.path())).expect("a URL in order");
    granted(&store, &claim("a", LONG)).await;
    let own = store
        .on_own_connection(Lane::Watchdog)
        .await
        .expect("a connection of its own");
    granted(&*own, &claim("b", LONG)).await;
    let notices = store.notices().await.expect("a subscription");
    assert!(notices.is_some());
    let nameless = Redis::open(&server.trusting_url()).expect("a URL in order");
    let refused = asked(&nameless, &claim("a", LONG), LIMIT).await;
    refused.expect_err("it shows no certificate");
}

#[tokio::test]
async fn certificate_files_that_are_replaced_are_read_by_the_next_connection() {
    let server = TlsServer::of_known_clients().await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Of an authority that the server does not know.
    make_certificate(folder.path());
    let store = Redis::open(&server.url_showing(folder.path())).expect("a URL in order");
    let refused = asked(&store, &claim("a", LONG), LIMIT).await;
    refused.expect_err("the server does not know it");
    server.hand_out(folder.path());
    granted(&store, &claim("a", LONG)).await;
    std::fs::remove_file(folder.path().join("key.pem")).expect("it is there");
    let own = store.on_own_connection(Lane::Watchdog).await;
    let error = own.expect_err("a file is missing");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    granted(&store, &claim("b", LONG)).await;
}
