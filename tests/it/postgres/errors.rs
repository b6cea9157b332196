//! What each refusal of a real server tells the caller to do, without a secret in it.

use leasehold::ErrorKind;
use leasehold::store::{Outcome, Store};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{database, open, set_up, store};
use crate::harness::asking::{asked, chain, claim, granted, next_token, renewed};
use crate::harness::postgres_server::PostgresServer;
use crate::harness::times::{LIMIT, LONG};

async fn refused_claim(store: &dyn Store) -> leasehold::Error {
    let answer = asked(store, &claim("a", LONG), LIMIT).await;
    answer.expect_err("it is refused")
}

#[tokio::test]
async fn a_database_that_is_not_there_is_misconfigured() {
    let database = PostgresServer::database().await;
    let url = database.url().replace(database.name(), "nowhere");
    let error = refused_claim(&*open(&url)).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{}", chain(&error));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    for url in [
        "postgres:///d?host=/nowhere&user=u",
        "postgres://u@127.0.0.1:1/d",
        "postgres://u@host.invalid/d?sslmode=disable",
    ] {
        let error = refused_claim(&*open(url)).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", chain(&error));
    }
}

#[tokio::test]
async fn an_unknown_role_or_wrong_password_is_denied_and_the_password_never_shown() {
    let database = database().await;
    let url = database.url_as("nobody");
    let error = refused_claim(&*open(&format!("{url}&password=s3cret"))).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{}", chain(&error));
    let store = open(&format!("{url}&password=s3cret"));
    let shown = format!("{} {store:?} {}", chain(&error), store.location());
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[tokio::test]
async fn a_row_that_another_transaction_keeps_is_told_as_such() {
    let (database, store) = store().await;
    granted(&*store, &claim("a", LONG)).await;
    let stranger = database.connect().await;
    stranger
        .batch_execute("BEGIN; UPDATE leasehold.lease SET ends_at = now() - interval '1 s'")
        .await
        .expect("locked");
    let claim = claim("b", LONG);
    granted(&*store, &claim).await;
    stranger
        .batch_execute("LOCK TABLE leasehold.lease")
        .await
        .expect("locked");
    let released = store.release(&claim.name, claim.holder, None, LIMIT).await;
    let error = released.expect_err("it is locked");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{}", chain(&error));
    assert!(error.to_string().contains("locked"), "{error}");
}

#[tokio::test]
async fn a_server_that_takes_no_writes_for_a_while_is_unavailable_and_found_again() {
    let (database, store) = store().await;
    let name = database.name();
    let administrator = database.connect().await;
    let set = async |value: &str| {
        let sql = format!("ALTER DATABASE {name} SET default_transaction_read_only = {value}");
        let sql = format!("SET default_transaction_read_only = off; {sql}");
        administrator.batch_execute(&sql).await.expect("set");
    };
    set("on").await;
    let error = refused_claim(&*store).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", chain(&error));
    assert!(error.to_string().contains("standby"), "{error}");
    // A connection keeps what it was made with, as one to a demoted primary does: it is replaced.
    set("off").await;
    granted(&*store, &claim("a", LONG)).await;
}

#[tokio::test]
async fn what_a_server_answers_while_it_is_full_or_goes_down_is_unavailable() {
    let (database, store) = store().await;
    granted(&*store, &claim("held", LONG)).await;
    let stranger = database.connect().await;
    // Raised by the server instead of a claim, where it cannot be brought about.
    let raise = async |code: &str| {
        let sql = format!(
            "CREATE OR REPLACE FUNCTION leasehold.refuse() RETURNS trigger LANGUAGE plpgsql
            AS $$ BEGIN RAISE EXCEPTION 'raised' USING ERRCODE = '{code}'; END $$;
            CREATE OR REPLACE TRIGGER refuse BEFORE INSERT ON leasehold.lease
            FOR EACH ROW EXECUTE FUNCTION leasehold.refuse()"
        );
        stranger.batch_execute(&sql).await.expect("planted");
    };
    for code in [
        "08006", "08P01", "25006", "25P03", "53000", "53100", "53200", "53300", "53400", "55000",
        "57P01", "57P02", "57P03", "57P04", "57P05", "58000", "58030",
    ] {
        raise(code).await;
        let error = refused_claim(&*store).await;
        assert_eq!(
            error.kind(),
            ErrorKind::Unavailable,
            "{code}: {}",
            chain(&error)
        );
    }
    stranger
        .batch_execute("DROP TRIGGER refuse ON leasehold.lease")
        .await
        .expect("dropped");
    granted(&*store, &claim("a", LONG)).await;
}

#[tokio::test]
async fn a_role_that_has_no_connection_left_is_unavailable() {
    let database = database().await;
    let role = format!("full_{}", database.name());
    let sql = format!(
        "CREATE ROLE {role} LOGIN SUPERUSER; ALTER ROLE {role} NOSUPERUSER CONNECTION LIMIT 0"
    );
    let administrator = database.connect().await;
    administrator.batch_execute(&sql).await.expect("made");
    let error = refused_claim(&*open(&database.url_as(&role))).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", chain(&error));
    assert!(chain(&error).contains("53300"), "{}", chain(&error));
}

#[tokio::test]
async fn a_lost_row_of_the_set_up_names_the_command() {
    let (database, store) = store().await;
    let sql = "DELETE FROM leasehold.lineage";
    database
        .connect()
        .await
        .batch_execute(sql)
        .await
        .expect("deleted");
    let error = refused_claim(&*store).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{}", chain(&error));
    assert!(error.to_string().contains("leasehold init"), "{error}");
}

#[tokio::test]
async fn a_function_with_other_results_is_refused_by_what_it_returned() {
    let (database, store) = store().await;
    for (results, values, found) in [
        (
            "OUT outcome text, OUT token bigint",
            "SELECT 'granted', 7::bigint",
            "columns=2",
        ),
        ("OUT outcome text", "SELECT 'granted'", "types=text"),
    ] {
        let sql = format!(
            "DROP FUNCTION leasehold.acquire_1;
            CREATE FUNCTION leasehold.acquire_1(
                text, text, bigint, text, bigint, bigint, {results}
            ) LANGUAGE sql AS $${values}$$"
        );
        let stranger = database.connect().await;
        stranger.batch_execute(&sql).await.expect("made");
        let error = refused_claim(&*store).await;
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{}", chain(&error));
        assert!(chain(&error).contains(found), "{}", chain(&error));
    }
}

#[tokio::test]
async fn a_claim_that_lost_to_another_is_sent_again() {
    let (database, store) = store().await;
    let name = database.name();
    let sql = format!("ALTER DATABASE {name} SET default_transaction_isolation = serializable");
    database
        .connect()
        .await
        .batch_execute(&sql)
        .await
        .expect("set");
    for round in 0..10 {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let store = store.clone();
            let claim = claim(&format!("n{round}"), LONG);
            tasks.spawn(async move { asked(&*store, &claim, LIMIT).await });
        }
        for answer in tasks.join_all().await {
            answer.expect("no 40001 comes through");
        }
    }
}

#[tokio::test]
async fn tables_that_another_program_widens_and_rewrites_cost_no_lease() {
    let (database, store) = store().await;
    let kept = claim("kept", LONG);
    let token = granted(&*store, &kept).await;
    let stranger = database.connect().await;
    for sql in [
        "ALTER TABLE leasehold.lease ADD COLUMN remark text DEFAULT 'x'",
        "VACUUM FULL leasehold.lease",
        "REINDEX TABLE leasehold.lease",
        "ALTER TABLE leasehold.lease DROP COLUMN remark",
    ] {
        stranger.batch_execute(sql).await.expect(sql);
        let renewal = renewed(&*store, &kept).await;
        assert!(matches!(renewal, Outcome::Renewed), "{sql}: {renewal:?}");
        assert_eq!(granted(&*store, &kept).await, token, "{sql}");
        next_token(&*store, "other").await;
    }
}

#[tokio::test]
async fn a_table_that_was_dropped_names_the_command_and_tokens_rise_once_it_is_back() {
    let (database, store) = store().await;
    let kept = claim("kept", LONG);
    let token = granted(&*store, &kept).await;
    let sql = "DROP TABLE leasehold.lease";
    let stranger = database.connect().await;
    stranger.batch_execute(sql).await.expect("dropped");
    let error = refused_claim(&*store).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{}", chain(&error));
    assert!(error.to_string().contains("leasehold init"), "{error}");
    let renewal = renewed(&*store, &kept).await;
    assert!(matches!(renewal, Outcome::Unknown(_)), "{renewal:?}");
    set_up(&database.url()).await;
    let renewal = renewed(&*store, &kept).await;
    assert!(matches!(renewal, Outcome::Refused), "{renewal:?}");
    assert!(next_token(&*store, "kept").await > token);
}

/// What a server that cannot fork says, also in answer to the question for TLS.
#[tokio::test]
async fn a_server_that_cannot_fork_is_unavailable_also_behind_tls() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("loopback has a free port");
    let port = listener.local_addr().expect("it is bound").port();
    for (answer, kind) in [
        (
            &b"Ecould not fork new process for connection\n\0"[..],
            ErrorKind::Unavailable,
        ),
        (b"N", ErrorKind::Misconfigured),
    ] {
        let url = format!("postgres://me@127.0.0.1:{port}/jobs?sslmode=require");
        let store = open(&url);
        let serving = async {
            loop {
                let (mut stream, _) = listener.accept().await.expect("a client");
                let mut question = [0; 8];
                let _ = stream.read_exact(&mut question).await;
                let _ = stream.write_all(answer).await;
            }
        };
        let error = tokio::select! {
            error = refused_claim(&*store) => error,
            () = serving => unreachable!("it serves on"),
        };
        assert_eq!(error.kind(), kind, "{}", chain(&error));
    }
}
