//! The store on Redis behind TLS. Apart from its other tests, because not every server of their matrix is built with it.
//! Settings that every store with TLS reads in the same way are tested here, too.

mod fleets;

use leasehold::ErrorKind;
use leasehold::store::redis::Redis;
use leasehold::store::{Purpose, Store, Tls};

use crate::conformance::check_at;
use crate::harness::asking::{asked, chain, claim, granted, next_token};
use crate::harness::times::{LIMIT, LONG, PATIENCE};
use crate::harness::tls::{Authority, Certificate, TlsServer, make_certificate};
use crate::redis::connections::{TWO_ADDRESSES, past_a_silent_address};

/// A store that has the time of a busy machine to connect.
fn patient(url: &str, tls: Tls) -> Redis {
    let builder = Redis::builder(url).tls(tls).connect_timeout(PATIENCE);
    builder.build().expect("settings in order")
}

/// A connection of each kind is made: for requests, for the watchdog, and for notices.
async fn connects(store: &Redis) {
    next_token(store, "a").await;
    let own = store.on_own_connection(Purpose::Watchdog).await;
    next_token(&*own.expect("a connection of its own"), "a").await;
    assert!(store.notices().await.expect("a subscription").is_some());
}

#[tokio::test]
async fn a_server_behind_tls_keeps_the_contract() {
    let server = TlsServer::start().await;
    check_at(server.trusting_url()).await;
}

#[test]
fn an_address_that_says_nothing_keeps_no_client_from_the_second_behind_tls() {
    past_a_silent_address(async || {
        let server = TlsServer::start().await;
        let (port, ca) = (server.port(), server.certificate().display().to_string());
        let url = format!("rediss://{TWO_ADDRESSES}:{port}?ca={ca}&server_name=localhost");
        (server, port, url)
    });
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
        .on_own_connection(Purpose::Watchdog)
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
    let own = store.on_own_connection(Purpose::Watchdog).await;
    let error = own.expect_err("a file is missing");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    granted(&store, &claim("b", LONG)).await;
}

#[tokio::test]
async fn a_client_without_a_certificate_or_with_a_strangers_is_told_that_by_its_kind() {
    let authority = Authority::new();
    let server = TlsServer::with(authority.issue("localhost"), true).await;
    let trusting = || Tls::new().ca(authority.path());
    let known = authority.issue("worker");
    let tls = trusting().client_certificate(known.path(), known.key());
    connects(&patient(&server.url(), tls)).await;
    let stranger = Authority::new().issue("worker");
    let strange = trusting().client_certificate(stranger.path(), stranger.key());
    for tls in [trusting(), strange] {
        let store = patient(&server.url(), tls);
        let refused = asked(&store, &claim("c", LONG), LIMIT).await;
        let error = refused.expect_err("the server does not know it");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        store
            .notices()
            .await
            .expect_err("the server does not know it");
    }
}

#[test]
fn the_key_of_another_certificate_is_refused_when_the_store_is_made() {
    let (certificate, other) = (Certificate::new(), Certificate::new());
    let tls = Tls::new().client_certificate(certificate.path(), other.key());
    let built = Redis::builder("rediss://localhost:1").tls(tls).build();
    let error = built.expect_err("they do not belong together");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    for path in [certificate.path(), other.key()] {
        let path = path.display().to_string();
        assert!(error.to_string().contains(&path), "{error}");
    }
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_what_was_expected() {
    let certificate = Certificate::new();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let encrypted = folder.path().join("encrypted.pem");
    let text = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nhush\n-----END ENCRYPTED PRIVATE KEY-----\n";
    std::fs::write(&encrypted, text).expect("the folder is ours");
    let broken = folder.path().join("broken.pem");
    let text = "-----BEGIN CERTIFICATE-----\n!hush!\n-----END CERTIFICATE-----\n";
    std::fs::write(&broken, text).expect("the folder is ours");
    let showing = |certificate, key| Tls::new().client_certificate(certificate, key);
    for (tls, words) in [
        (
            Tls::new().ca("/nowhere"),
            ["ca=\"/nowhere\"", "certificates in PEM form"],
        ),
        (Tls::new().ca(certificate.key()), ["ca=", "no certificate"]),
        (Tls::new().ca(broken), ["ca=", "cannot be parsed"]),
        (
            showing("/nowhere".into(), certificate.key()),
            ["cert=\"/nowhere\"", "PEM"],
        ),
        (
            showing(certificate.path(), "/nowhere".into()),
            ["key=\"/nowhere\"", "PEM"],
        ),
        (
            showing(certificate.path(), certificate.path()),
            ["key=", "no key"],
        ),
        (
            showing(certificate.path(), encrypted),
            ["key=", "encrypted"],
        ),
        (
            Tls::new().server_name("not a name"),
            ["server_name=\"not a name\"", "expected"],
        ),
    ] {
        let built = Redis::builder("rediss://localhost:1").tls(tls).build();
        let error = built.expect_err("it cannot be used");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let text = chain(&error);
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert!(!text.contains("hush"), "{text}");
    }
}

#[test]
fn tls_settings_for_a_url_without_tls_are_refused() {
    let tls = || Tls::new().server_name("db.example");
    let redis = Redis::builder("redis://localhost").tls(tls()).build();
    let postgres = leasehold::store::postgres::Postgres::builder("postgres://localhost");
    let errors = [redis.map(drop), postgres.tls(tls()).build().map(drop)];
    for error in errors.map(|built| built.expect_err("it does not use TLS")) {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("TLS"), "{error}");
    }
}

#[tokio::test]
async fn a_server_whose_certificate_has_another_name_is_refused_without_server_name() {
    let authority = Authority::new();
    let server = TlsServer::with(authority.issue("db.example"), false).await;
    let trusting = || Tls::new().ca(authority.path());
    connects(&patient(
        &server.url(),
        trusting().server_name("db.example"),
    ))
    .await;
    let address = server.url().replace("localhost", "127.0.0.1");
    connects(&patient(
        &format!("{address}?server_name=db.example"),
        trusting(),
    ))
    .await;
    for tls in [trusting(), trusting().server_name("other.example")] {
        let store = patient(&server.url(), tls);
        let refused = asked(&store, &claim("a", LONG), LIMIT).await;
        let error = refused.expect_err("it has another name");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        assert!(chain(&error).contains("db.example"), "{error:#}");
        store.notices().await.expect_err("it has another name");
    }
}

#[tokio::test]
async fn a_parameter_of_the_url_is_used_instead_of_the_builders_setting() {
    let server = TlsServer::start().await;
    let other = Certificate::new();
    let tls = Tls::new().ca(other.path()).server_name("localhost");
    connects(&patient(&server.trusting_url(), tls)).await;
}
