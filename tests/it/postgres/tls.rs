//! The store on Postgres behind TLS.

use leasehold::ErrorKind;
use leasehold::store::postgres::Postgres;
use leasehold::store::{Purpose, Store, TableSettings, Tls};

use super::{open, set_up};
use crate::harness::asking::{asked, chain, claim, granted, next_token};
use crate::harness::postgres_server::PostgresServer;
use crate::harness::times::{LIMIT, LONG, PATIENCE};
use crate::harness::tls::{Authority, Certificate, make_certificate};

/// The URL of a server behind TLS, with these further parameters.
fn tls_url(server: &PostgresServer, parameters: &str) -> String {
    let port = server.port();
    format!("postgres://postgres@localhost:{port}/postgres?sslmode=require&{parameters}")
}

/// A store that has the time of a busy machine to connect.
fn patient_store(url: &str) -> Postgres {
    let builder = Postgres::builder(url).connect_timeout(PATIENCE);
    builder.build().expect("a URL in order")
}

#[tokio::test]
async fn a_server_behind_tls_is_used_and_an_unknown_one_is_refused() {
    let certificate = Certificate::new();
    let server = PostgresServer::start_behind_tls(&certificate).await;
    let host = format!("postgres://postgres@localhost:{}/postgres", server.port());
    let trusting = format!("{host}?sslmode=require&ca={}", certificate.path().display());
    set_up(&trusting).await;
    next_token(&*open(&trusting), "a").await;
    for (url, word) in [
        // The web's roots do not know it.
        (format!("{host}?sslmode=require"), "certificate"),
        // It is not for this name.
        (trusting.replace("localhost", "127.0.0.1"), "certificate"),
    ] {
        let refused = asked(&*open(&url), &claim("a", LONG), LIMIT).await;
        let error = refused.expect_err("it is not trusted");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        assert!(format!("{error:#}").contains(word), "{error:#}");
    }
    let plain = open(&format!("{host}?sslmode=disable"));
    let refused = asked(&*plain, &claim("a", LONG), LIMIT).await;
    let error = refused.expect_err("the server wants TLS");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_is_shown_it_on_every_connection() {
    let authority = Authority::new();
    let server = PostgresServer::start_for_known_clients(&authority.issue("localhost")).await;
    let client = authority.issue("worker");
    let trusting = format!("ca={}", authority.path().display());
    let showing = tls_url(&server, &format!("{trusting}&{}", client.shown()));
    // In the words of libpq, too.
    let names = [
        ("?ca=", "?sslrootcert="),
        ("&ca=", "&sslrootcert="),
        ("&cert=", "&sslcert="),
        ("&key=", "&sslkey="),
    ];
    let as_libpq = names.iter().fold(showing.clone(), |url, (name, other)| {
        url.replace(name, other)
    });
    set_up(&as_libpq).await;
    let store = patient_store(&showing);
    granted(&store, &claim("a", LONG)).await;
    let own = store.on_own_connection(Purpose::Watchdog).await;
    granted(&*own.expect("a connection of its own"), &claim("b", LONG)).await;
    assert!(store.notices().await.expect("a subscription").is_some());
    // The same settings by the builder.
    let tls = Tls::new().ca(authority.path());
    let tls = tls.client_certificate(client.path(), client.key());
    let bare = tls_url(&server, "");
    let built = Postgres::builder(&bare).tls(tls).build();
    let built = built.expect("settings in order");
    granted(&built, &claim("c", LONG)).await;
    let made = built.init(TableSettings::default(), PATIENCE).await;
    made.expect("the tables are there");

    let nameless = patient_store(&tls_url(&server, &trusting));
    let refused = asked(&nameless, &claim("a", LONG), LIMIT).await;
    let error = refused.expect_err("it shows no certificate");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    let stranger = Authority::new().issue("worker");
    let strange = patient_store(&tls_url(
        &server,
        &format!("{trusting}&{}", stranger.shown()),
    ));
    let refused = asked(&strange, &claim("a", LONG), LIMIT).await;
    let error = refused.expect_err("the server does not know its authority");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
}

#[tokio::test]
async fn a_server_whose_certificate_has_another_name_is_refused_without_server_name() {
    let authority = Authority::new();
    let server = PostgresServer::start_behind_tls(&authority.issue("db.example")).await;
    let trusting = format!("ca={}", authority.path().display());
    let named = tls_url(&server, &format!("{trusting}&server_name=db.example"));
    set_up(&named).await;
    let store = patient_store(&named);
    granted(&store, &claim("a", LONG)).await;
    assert!(store.notices().await.expect("a subscription").is_some());
    for other in ["", "server_name=other.example"] {
        let store = patient_store(&tls_url(&server, &format!("{trusting}&{other}")));
        let refused = asked(&store, &claim("a", LONG), LIMIT).await;
        let error = refused.expect_err("it has another name");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        assert!(chain(&error).contains("db.example"), "{error:#}");
    }
}

#[tokio::test]
async fn certificate_files_that_are_replaced_are_read_by_the_next_connection() {
    let authority = Authority::new();
    let server = PostgresServer::start_for_known_clients(&authority.issue("localhost")).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Of an authority that the server does not know.
    make_certificate(folder.path());
    let file = |name: &str| folder.path().join(name);
    let tls = Tls::new()
        .ca(authority.path())
        .client_certificate(file("certificate.pem"), file("key.pem"));
    let bare = tls_url(&server, "");
    let builder = Postgres::builder(&bare).tls(tls);
    let store = builder.connect_timeout(PATIENCE).build();
    let store = store.expect("settings in order");
    let refused = asked(&store, &claim("a", LONG), LIMIT).await;
    refused.expect_err("the server does not know it");
    authority.issue("worker").hand_out(folder.path());
    let made = store.init(TableSettings::default(), PATIENCE).await;
    made.expect("the tables are made");
    granted(&store, &claim("a", LONG)).await;
    std::fs::remove_file(file("key.pem")).expect("it is there");
    // It makes a connection of its own.
    let made = store.init(TableSettings::default(), PATIENCE).await;
    let error = made.expect_err("a file is missing");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(chain(&error).contains("key.pem"), "{error:#}");
    granted(&store, &claim("b", LONG)).await;
}
