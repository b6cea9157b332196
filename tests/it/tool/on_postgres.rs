//! The tool on a store in Postgres, beginning with its tables.

use super::export::Busy;
use super::{Place, operators, top};
use crate::harness::postgres_server::PostgresServer;

#[tokio::test]
async fn init_makes_the_tables_and_without_them_a_run_is_78_and_names_it() {
    let database = PostgresServer::database().await;
    let url = database.url();
    let place = Place::new();
    let said = place.fails(&["--store", &url], 78).stderr;
    assert!(said.contains("leasehold init"), "{said}");
    for _ in 0..2 {
        let init = ["init", "--store", &url, "--max-ttl", "1min"];
        let ended = place.start(place.tool(&init)).end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stderr.contains("longest ttl is 60s"), "{ended:?}");
    }
    let ended = place.run(&["--store", &url], "echo $LEASEHOLD_TOKEN").end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.trim().parse::<u64>().is_ok(), "{ended:?}");
    let said = place.fails(&["--store", &url, "--ttl", "2min"], 64).stderr;
    assert!(said.contains("max_ttl_ms=60000"), "{said}");
    let doctor = ["doctor", "--ttl", "2min", "--store", &url];
    let ended = place.start(place.tool(&doctor)).end();
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let line = ended.stdout.lines().find(|line| line.contains("max-ttl"));
    assert!(
        line.is_some_and(|line| line.starts_with("failure")),
        "{ended:?}"
    );
}

#[tokio::test]
async fn the_printed_sql_makes_the_tables() {
    let database = PostgresServer::database().await;
    let url = database.url();
    let place = Place::new();
    let print = ["init", "--print", "--store", &url];
    let printed = place.start(place.tool(&print)).end();
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let made = database
        .connect()
        .await
        .batch_execute(&printed.stdout)
        .await;
    made.expect("it is SQL");
    assert_eq!(place.run(&["--store", &url], "true").end().code, Some(0));
}

#[test]
fn init_of_a_store_without_tables_is_64() {
    let place = Place::new();
    for store in ["sqlite:./a", "redis://localhost"] {
        let ended = place.start(place.tool(&["init", "--store", store])).end();
        assert_eq!(ended.code, Some(64), "{ended:?}");
    }
}

#[tokio::test]
async fn one_of_two_runs_has_the_name_and_the_next_one_follows_at_once() {
    let database = PostgresServer::database().await;
    crate::postgres::set_up(&database.url()).await;
    let url = database.url();
    let place = Place::new();
    let mut first = place.run(
        &["--store", &url],
        "echo up > first; while [ ! -e go ]; do sleep 0.01; done",
    );
    place.mark("first");
    let held = place.run(&["--store", &url, "-n"], "true").end();
    assert_eq!(held.code, Some(75), "{held:?}");
    let mut second = place.run(&["--store", &url, "--fair"], "echo up > second");
    // It is in the queue before the first one ends.
    let client = database.connect().await;
    crate::harness::wait::until("the queue", async || {
        let row = client
            .query_one("SELECT count(*) FROM leasehold.queue", &[])
            .await
            .ok()?;
        (row.get::<_, i64>(0) == 1).then_some(())
    })
    .await;
    std::fs::write(place.path("go"), "").expect("written");
    assert_eq!(first.end().code, Some(0));
    assert_eq!(second.end().code, Some(0));
}

#[tokio::test]
async fn a_store_that_keeps_out_says_so_to_the_run_the_status_and_the_doctor() {
    let database = PostgresServer::database().await;
    crate::postgres::set_up(&database.url()).await;
    let url = database.url();
    let quiet = "UPDATE leasehold.lineage SET quiet_until = clock_timestamp() + interval '10 min'";
    let administrator = database.connect().await;
    administrator.batch_execute(quiet).await.expect("written");
    let place = Place::new();
    let said = place.fails(&["--store", &url, "-n"], 75).stderr;
    assert!(said.contains("the store grants nothing"), "{said}");
    assert!(!said.contains("pid="), "{said}");
    let status = place.start(place.tool(&["status", "--store", &url])).end();
    assert!(
        status.stdout.contains("more nothing is granted"),
        "{status:?}"
    );
    let doctor = place.start(place.tool(&["doctor", "--store", &url])).end();
    assert_eq!(doctor.code, Some(2), "{doctor:?}");
    assert!(!doctor.stdout.contains("report a bug"), "{doctor:?}");
    assert!(
        doctor.stdout.contains("held leases are renewed"),
        "{doctor:?}"
    );
}

#[tokio::test]
async fn the_status_of_an_evicted_name_says_so() {
    let database = PostgresServer::database().await;
    let url = database.url();
    crate::postgres::set_up(&url).await;
    operators::evict_and_ask(&url);
}

#[tokio::test]
async fn the_live_view_shows_a_holder_and_evicts_it() {
    let database = PostgresServer::database().await;
    let url = database.url();
    crate::postgres::set_up(&url).await;
    top::see_and_evict(&url);
}

#[tokio::test]
async fn the_store_is_exported_as_a_whole() {
    let database = PostgresServer::database().await;
    let url = database.url();
    crate::postgres::set_up(&url).await;
    let busy = Busy::make(&url).await;
    let offset = busy.exported("postgres").expect("Postgres has a clock");
    assert!(offset.abs() < 5.0, "{offset}");
    busy.end();
}
