//! How many connections there are, what they carry, and that one that is lost is found again.

use std::time::Duration;

use leasehold::store::Release;
use leasehold::store::postgres::Postgres;
use leasehold::{Client, ClientId, ErrorKind};

use super::{open, set_up, store};
use crate::harness::asking::{asked, chain, claim, granted, next_token, released};
use crate::harness::postgres_server::{Database, PostgresServer};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::tls::Certificate;
use crate::harness::wait::{now, until};

/// How many connections of ours this database has.
async fn count(database: &Database) -> i64 {
    let sql = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'leasehold'";
    let row = database.connect().await.query_one(sql, &[]).await;
    row.expect("answered").get(0)
}

#[tokio::test]
async fn a_second_connection_is_opened_only_when_the_first_is_busy() {
    let (database, store) = store().await;
    for _ in 0..10 {
        next_token(&*store, "a").await;
    }
    assert_eq!(count(&database).await, 1);
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..64 {
        let store = store.clone();
        tasks.spawn(async move { next_token(&*store, &format!("n{index}")).await });
    }
    tasks.join_all().await;
    let count = count(&database).await;
    assert!((2..=4).contains(&count), "{count} connections");
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_the_next_request_opens_one() {
    let (database, store) = store().await;
    next_token(&*store, "a").await;
    let end = now().after(Duration::from_secs(20));
    while count(&database).await > 0 {
        assert!(now() < end, "still there");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    next_token(&*store, "a").await;
}

#[tokio::test]
async fn a_connection_that_the_server_ended_is_replaced() {
    let (database, store) = store().await;
    // The server's list is a moment ahead of the client: a request of that moment fails, and the next one connects.
    let served = async || {
        until("a grant", async || {
            let claim = claim(&ClientId::draw().to_string(), LONG);
            asked(&*store, &claim, LIMIT).await.ok()?;
            Some(released(&*store, &claim).await)
        })
        .await
    };
    for _ in 0..3 {
        assert_eq!(served().await, Release::Released);
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'leasehold'";
        database
            .connect()
            .await
            .query(end, &[])
            .await
            .expect("ended");
        until("the end of the connection", async || {
            (count(&database).await == 0).then_some(())
        })
        .await;
    }
    assert_eq!(served().await, Release::Released);
}

#[tokio::test]
async fn a_held_lease_costs_a_connection_for_its_watchdog_and_one_for_requests() {
    let (database, store) = store().await;
    let client = Client::builder().shared_store(store).build().await;
    let _lease = client.unwrap().acquire("a").await.unwrap();
    assert!(count(&database).await <= 2);
}

#[tokio::test]
async fn nothing_is_set_on_the_session_and_nothing_prepared() {
    let database = PostgresServer::database().await;
    set_up(&database.url()).await;
    let url = database.url();
    let builder = Postgres::builder(&url).lanes(1);
    let store = builder.build().expect("a store");
    next_token(&store, "a").await;
    let sql = "SELECT query FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'leasehold'";
    let row = database.connect().await.query_one(sql, &[]).await;
    let query: String = row.expect("one connection").get(0);
    assert!(query.starts_with("SELECT * FROM \"leasehold\"."), "{query}");
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
async fn a_server_of_known_clients_is_shown_the_certificate_that_the_files_have_at_that_time() {
    let certificate = Certificate::new();
    let server = PostgresServer::start_for_known_clients(&certificate).await;
    let files = tempfile::tempdir().expect("a folder");
    let hand_out = |certificate: &Certificate| {
        for (file, from) in [("cert", certificate.path()), ("key", certificate.key())] {
            std::fs::copy(from, files.path().join(file)).expect("the folder is ours");
        }
    };
    let file = |name: &str| files.path().join(name).display().to_string();
    let trusting = format!(
        "postgres://postgres@localhost:{}/postgres?ca={}",
        server.port(),
        certificate.path().display()
    );
    let showing = |cert: &str, key: &str| {
        let (certificate, private_key) = (file("cert"), file("key"));
        format!("{trusting}&sslmode=require&{cert}={certificate}&{key}={private_key}")
    };
    hand_out(&certificate);
    set_up(&showing("sslcert", "sslkey")).await;
    let store = open(&showing("cert", "key"));
    next_token(&*store, "a").await;
    let unknown = open(&format!("{trusting}&sslmode=require"));
    let refused = asked(&*unknown, &claim("a", LONG), LIMIT).await;
    refused.expect_err("the server knows only clients with a certificate");
    // Replaced by one that the server does not know: the next connection shows it.
    let store = open(&showing("cert", "key"));
    hand_out(&Certificate::new());
    let refused = asked(&*store, &claim("a", LONG), LIMIT).await;
    refused.expect_err("the server does not know this certificate");
    // A file that went away is named, and the store works again once it is there.
    std::fs::remove_file(file("key")).expect("it is ours");
    let refused = asked(&*store, &claim("a", LONG), LIMIT).await;
    let error = refused.expect_err("there is no key");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(chain(&error).contains(&file("key")), "{}", chain(&error));
    hand_out(&certificate);
    next_token(&*store, "a").await;
}

#[tokio::test]
async fn a_store_serves_another_runtime_after_the_first_one_ended() {
    let (_database, store) = store().await;
    let first = store.clone();
    let token = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(next_token(&*first, "a"))
    });
    let before = token.join().expect("it ran");
    let claim = claim("a", LONG);
    assert!(granted(&*store, &claim).await > before);
}
