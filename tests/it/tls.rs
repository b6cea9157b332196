//! The store on Redis behind TLS. Apart from its other tests, because not every server of their matrix is built with it.

use std::sync::Arc;

use leasehold::ErrorKind;
use leasehold::store::redis::Redis;
use leasehold::store::{Store, conformance};

use crate::harness::asking::{LIMIT, LONG, claim};
use crate::harness::tls::TlsServer;

#[tokio::test]
async fn a_server_behind_tls_keeps_the_contract() {
    let server = TlsServer::start().await;
    let store = Redis::open(&server.trusting_url()).expect("a URL in order");
    conformance::check(Arc::new(store)).await;
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused() {
    let server = TlsServer::start().await;
    let store = Redis::open(&server.url()).expect("a URL in order");
    let refused = store.acquire(&claim("a", LONG), LIMIT).await;
    let error = refused.expect_err("the web's roots do not know it");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    let source = std::error::Error::source(&error).expect("a source");
    assert!(source.to_string().contains("certificate"), "{source}");
}
