//! The tool on a store in Postgres, beginning with its tables.

use std::time::Duration;

use super::export::Busy;
use super::{Sandbox, operators, top};
use crate::harness::pgbouncer::PgBouncer;
use crate::harness::postgres_server::PostgresServer;
use crate::harness::wait::{at, now};

#[tokio::test]
async fn init_makes_the_tables_and_without_them_a_run_is_78_and_names_it() {
    let database = PostgresServer::database().await;
    let url = database.url();
    let sandbox = Sandbox::new();
    let said = sandbox.fails(&["--store", &url], 78).stderr;
    assert!(said.contains("leasehold init"), "{said}");
    for _ in 0..2 {
        let init = ["init", "--store", &url, "--max-ttl", "1min"];
        let ended = sandbox.start(sandbox.tool(&init)).end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stderr.contains("longest ttl is 60s"), "{ended:?}");
    }
    let ended = sandbox
        .run(&["--store", &url], "echo $LEASEHOLD_TOKEN")
        .end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.trim().parse::<u64>().is_ok(), "{ended:?}");
    let said = sandbox
        .fails(&["--store", &url, "--ttl", "2min"], 64)
        .stderr;
    assert!(said.contains("max_ttl_ms=60000"), "{said}");
    let doctor = ["doctor", "--ttl", "2min", "--store", &url];
    let ended = sandbox.start(sandbox.tool(&doctor)).end();
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
    let sandbox = Sandbox::new();
    let print = ["init", "--print", "--store", &url];
    let printed = sandbox.start(sandbox.tool(&print)).end();
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let made = database
        .connect()
        .await
        .batch_execute(&printed.stdout)
        .await;
    made.expect("it is SQL");
    assert_eq!(sandbox.run(&["--store", &url], "true").end().code, Some(0));
}

#[test]
fn init_of_a_store_that_needs_no_set_up_is_64() {
    let sandbox = Sandbox::new();
    for store in [
        "sqlite:./a",
        "redis://localhost",
        "redis+cluster://localhost",
    ] {
        let ended = sandbox
            .start(sandbox.tool(&["init", "--store", store]))
            .end();
        assert_eq!(ended.code, Some(64), "{ended:?}");
    }
}

#[test]
fn an_init_without_a_log_is_refused_by_name() {
    let sandbox = Sandbox::new();
    let init = ["init", "--unlogged", "--store", "postgres://localhost/x"];
    let ended = sandbox.start(sandbox.tool(&init)).end();
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(ended.stderr.contains("--unlogged"), "{ended:?}");
}

#[tokio::test]
async fn a_restart_behind_a_pooler_ends_no_run_that_waits_and_none_that_begins() {
    let (server, database) = crate::postgres::own_server().await;
    let pooler = PgBouncer::before(&database, 5).await;
    let url = pooler.url();
    let sandbox = Sandbox::new();
    let mut holder = sandbox.run(&["--store", &url, "--ttl", "30s"], super::HOLDER);
    sandbox.mark("first");
    let mut waiting = sandbox.run(&["--store", &url], "echo up > waiting");
    waiting.wait_to_say("waiting for");
    let names = ["a", "b", "c"];
    let begin = |name: &'static str| {
        let script = format!("echo up > {name}");
        let run = [
            "run",
            "--store",
            &url,
            "--connect-timeout",
            "15s",
            name,
            "--",
            "sh",
            "-c",
            &script,
        ];
        sandbox.start(sandbox.tool(&run))
    };
    server.end("INT").await;
    // While the server is down, and just after it is back.
    let mut new: Vec<_> = names[..2].iter().map(|name| begin(name)).collect();
    at(now().after(Duration::from_secs(2))).await;
    server.start_again().await;
    new.push(begin(names[2]));
    for run in &mut new {
        let ended = run.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    sandbox.let_go();
    for run in [&mut holder, &mut waiting] {
        let ended = run.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
}

#[tokio::test]
async fn a_password_is_taken_from_the_environment() {
    let (_server, database) = crate::postgres::own_server().await;
    let administrator = database.connect().await;
    for sql in [
        "CREATE ROLE app LOGIN SUPERUSER PASSWORD 's3cret'",
        "COPY (SELECT unnest(ARRAY['local all app scram-sha-256', 'local all all trust']))
            TO PROGRAM 'cat > pg_hba.conf'",
        "SELECT pg_reload_conf()",
    ] {
        administrator.batch_execute(sql).await.expect(sql);
    }
    let url = database.url_as("app");
    let sandbox = Sandbox::new();
    let with = |password: Option<&str>| {
        let mut tool = sandbox.tool(&["run", "--store", &url, "x", "--", "true"]);
        tool.env_remove("PGPASSWORD");
        if let Some(password) = password {
            tool.env("PGPASSWORD", password);
        }
        sandbox.start(tool).end()
    };
    assert_eq!(with(None).code, Some(77));
    assert_eq!(with(Some("s3cret")).code, Some(0));
    let wrong = with(Some("another"));
    assert_eq!(wrong.code, Some(77), "{wrong:?}");
    assert!(!wrong.stderr.contains("another"), "{wrong:?}");
}

#[tokio::test]
async fn one_of_two_runs_has_the_name_and_the_next_one_follows_at_once() {
    let database = PostgresServer::database().await;
    crate::postgres::set_up(&database.url()).await;
    let url = database.url();
    let sandbox = Sandbox::new();
    let mut first = sandbox.run(
        &["--store", &url],
        "echo up > first; while [ ! -e go ]; do sleep 0.01; done",
    );
    sandbox.mark("first");
    let held = sandbox.run(&["--store", &url, "-n"], "true").end();
    assert_eq!(held.code, Some(75), "{held:?}");
    let mut second = sandbox.run(&["--store", &url], "echo up > second");
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
    std::fs::write(sandbox.path("go"), "").expect("written");
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
    let sandbox = Sandbox::new();
    let said = sandbox.fails(&["--store", &url, "-n"], 75).stderr;
    assert!(said.contains("it grants nothing for "), "{said}");
    assert!(!said.contains("pid="), "{said}");
    let status = sandbox
        .start(sandbox.tool(&["status", "--store", &url]))
        .end();
    assert!(
        status.stderr.contains("more nothing is granted"),
        "{status:?}"
    );
    let doctor = sandbox
        .start(sandbox.tool(&["doctor", "--store", &url]))
        .end();
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
