//! The store on Redis behind TLS. Apart from its other tests, because not every server of their matrix is built with it.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use leasehold::ErrorKind;
use leasehold::store::redis::Redis;
use leasehold::store::{Store, conformance};
use tempfile::TempDir;

use crate::harness::asking::{LIMIT, LONG, claim};
use crate::harness::redis_server::{RedisServer, Setup};

#[tokio::test]
async fn a_server_behind_tls_keeps_the_contract() {
    let (_server, url, folder) = start_with_tls().await;
    let ca = folder.path().join("certificate.pem");
    let store = Redis::open(&format!("{url}?ca={}", ca.display())).expect("a URL in order");
    conformance::check(Arc::new(store)).await;
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused() {
    let (_server, url, _folder) = start_with_tls().await;
    let store = Redis::open(&url).expect("a URL in order");
    let refused = store.acquire(&claim("a", LONG), LIMIT).await;
    let error = refused.expect_err("the web's roots do not know it");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    let source = std::error::Error::source(&error).expect("a source");
    assert!(source.to_string().contains("certificate"), "{source}");
}

/// A server that speaks TLS alone, its URL, and the folder with its certificate.
async fn start_with_tls() -> (RedisServer, String, TempDir) {
    let folder = TempDir::new().expect("a temporary folder");
    make_certificate(folder.path());
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
    let port = listener.local_addr().expect("it is bound").port();
    drop(listener);
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (key, certificate) = (file("key.pem"), file("certificate.pem"));
    let setup = Setup::default()
        .with(["--tls-port", &port.to_string()])
        .with(["--tls-auth-clients", "no"])
        .with(["--tls-key-file", &key])
        .with(["--tls-cert-file", &certificate])
        .with(["--tls-ca-cert-file", &certificate]);
    (
        setup.start().await,
        format!("rediss://localhost:{port}"),
        folder,
    )
}

/// A certificate for `localhost` that vouches for itself.
fn make_certificate(folder: &Path) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
        .args(["ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"])
        .args(["-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(folder.join("key.pem"))
        .arg("-out")
        .arg(folder.join("certificate.pem"))
        .output()
        .expect("missing openssl: apt-get install -y openssl");
    assert!(made.status.success(), "{made:?}");
    assert!(fs::exists(folder.join("certificate.pem")).expect("the folder is ours"));
}
