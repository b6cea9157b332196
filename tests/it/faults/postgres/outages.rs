//! Restarts and failovers as servers and poolers report them: every one of them is `Unavailable`, and clients go on.

use std::time::Duration;

use leasehold::store::Store;
use leasehold::{Client, ErrorKind, OutagePolicy};
use rustix::process::Signal;

use crate::harness::asking::{asked, chain, claim, granted};
use crate::harness::pgbouncer::PgBouncer;
use crate::harness::postgres_server::{Database, PostgresServer};
use crate::harness::relay::Relay;
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{at, now, until};
use crate::postgres::hosts::url_of;
use crate::postgres::{open, own_server, set_up};

/// What each claim is answered for this time; every answer is a grant, or an error that says to try again.
async fn only_outages(store: &dyn Store, time: Duration) -> usize {
    let (end, mut failures) = (now().after(time), 0);
    let mut index = 0;
    while now() < end {
        index += 1;
        if let Err(error) = asked(store, &claim(&format!("n{index}"), LONG), LIMIT).await {
            failures += 1;
            assert!(error.is_transient(), "{}", chain(&error));
        }
        at(now().after(Duration::from_millis(50))).await;
    }
    failures
}

#[tokio::test]
async fn a_restart_behind_a_pooler_ends_no_waiter_and_is_unavailable_until_it_is_over() {
    let (server, database) = own_server().await;
    let pooler = PgBouncer::before(&database, 3).await;
    let store = open(&pooler.url());
    let held = claim("held", LONG);
    granted(&*store, &held).await;
    let client = Client::builder().shared_store(open(&pooler.url()));
    let client = client.build().await.expect("a client");
    let waiting = tokio::spawn(async move {
        let request = client.request("held").on_outage(OutagePolicy::WaitOut);
        request.acquire().await
    });
    for signal in ["INT", "QUIT"] {
        server.end(signal).await;
        let down = only_outages(&*store, Duration::from_secs(2)).await;
        assert!(down > 0, "the server was down");
        server.start_again().await;
        let begun = now();
        until("the end of the pooler's pause", async || {
            match asked(&*store, &held, LIMIT).await {
                Ok(_) => Some(()),
                Err(error) => {
                    assert!(error.is_transient(), "{}", chain(&error));
                    None
                }
            }
        })
        .await;
        println!(
            "granted {:?} after the restart by {signal}",
            now().since(begun)
        );
    }
    until("the release", async || {
        let release = store.release(&held.name, held.holder, None, LIMIT);
        release.await.ok()
    })
    .await;
    let lease = tokio::time::timeout(LIMIT * 2, waiting).await;
    drop(lease.expect("in time").expect("no panic").expect("granted"));
}

async fn refused_by(database: &Database) -> leasehold::Error {
    let answer = asked(&*open(&database.url()), &claim("b", LONG), LIMIT).await;
    answer.expect_err("it is not ready")
}

#[tokio::test]
async fn a_server_that_shuts_down_or_takes_no_connections_is_unavailable() {
    let server = PostgresServer::start(&["fsync=off", "wal_level=replica"]).await;
    let database = server.database_named("postgres");
    set_up(&database.url()).await;
    // A standby that is still starting up takes no connections for as long as this is off.
    let cold = server.cold_standby().await;
    let error = refused_by(&cold.database_named("postgres")).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", chain(&error));
    assert!(chain(&error).contains("57P03"), "{}", chain(&error));
    // A smart shutdown waits for this session, and refuses others.
    let _session = database.connect().await;
    server.signal(Signal::TERM);
    let error = until("the refusal", async || {
        let answer = asked(&*open(&database.url()), &claim("b", LONG), LIMIT).await;
        answer.err()
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", chain(&error));
    assert!(chain(&error).contains("57P03"), "{}", chain(&error));
}

#[tokio::test]
async fn a_standby_alone_is_unavailable_until_it_is_promoted() {
    let server = PostgresServer::start(&["fsync=off", "wal_level=replica"]).await;
    let database = server.database_named("postgres");
    set_up(&database.url()).await;
    let standby = server.standby(&["fsync=off"]).await;
    let store = open(&standby.database_named("postgres").url());
    let error = until("the tables on the standby", async || {
        let error = asked(&*store, &claim("a", LONG), LIMIT).await.err()?;
        error.to_string().contains("standby").then_some(error)
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", chain(&error));
    server.end("QUIT").await;
    standby.promote().await;
    // The same connection: it leads to the same server, which takes writes now.
    asked(&*store, &claim("a", LONG), LIMIT)
        .await
        .expect("answered");
}

#[tokio::test]
async fn while_the_synchronous_standby_is_away_clients_leave_connections_to_others() {
    let server = PostgresServer::start(&["fsync=off", "max_connections=60"]).await;
    let database = server.database_named("postgres");
    set_up(&database.url()).await;
    let administrator = database.connect().await;
    for sql in [
        "SET synchronous_commit = local",
        "ALTER SYSTEM SET synchronous_standby_names = 'nowhere'",
        "SELECT pg_reload_conf()",
    ] {
        administrator.batch_execute(sql).await.expect(sql);
    }
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..3 {
        let store = open(&database.url());
        for task in 0..4 {
            let store = store.clone();
            clients.spawn(async move {
                let end = now().after(Duration::from_secs(12));
                let mut index = 0;
                while now() < end {
                    index += 1;
                    let claim = claim(&format!("{client} {task} {index}"), Duration::from_secs(3));
                    let limit = Duration::from_millis(500);
                    let answer = asked(&*store, &claim, limit).await;
                    let error = answer.expect_err("no standby has it");
                    assert!(error.is_transient(), "{}", chain(&error));
                    at(now().after(Duration::from_millis(20))).await;
                }
            });
        }
    }
    let mut most = 0;
    while !clients.is_empty() {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold'";
        let row = administrator.query_one(sql, &[]).await.expect("answered");
        most = most.max(row.get::<_, i64>(0));
        let pause = tokio::time::sleep(Duration::from_millis(100));
        tokio::select! {
            () = pause => {}
            Some(ended) = clients.join_next() => ended.expect("no panic"),
        }
    }
    println!("at most {most} connections of 3 clients");
    assert!(most <= 18, "{most} connections of 3 clients");
    // A stranger connects, and the doctor names it.
    let doctor = open(&database.url());
    let hazards = doctor.hazards(LIMIT).await.expect("answered");
    let ids: Vec<_> = hazards.iter().map(|hazard| hazard.id).collect();
    assert!(ids.contains(&"postgres-waits-for-standby"), "{ids:?}");
    let back = "ALTER SYSTEM RESET synchronous_standby_names";
    administrator.batch_execute(back).await.expect(back);
    let reload = "SELECT pg_reload_conf()";
    administrator.batch_execute(reload).await.expect(reload);
    until("the connections that were given up to end", async || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        let row = administrator.query_one(sql, &[]).await.expect("answered");
        (row.get::<_, i64>(0) == 0).then_some(())
    })
    .await;
    granted(&*doctor, &claim("after", LONG)).await;
}

#[tokio::test]
async fn a_network_that_forgets_connections_gets_further_ones_at_growing_pauses() {
    let (_server, database) = own_server().await;
    let relay = Relay::before(&database.socket()).await;
    let store = open(&url_of(&[relay.port()], &database));
    granted(&*store, &claim("before", LONG)).await;
    let end = now().after(Duration::from_secs(12));
    let mut index = 0;
    while now() < end {
        relay.forget();
        index += 1;
        let claim = claim(&format!("n{index}"), Duration::from_secs(3));
        let answer = asked(&*store, &claim, Duration::from_millis(400)).await;
        if let Err(error) = answer {
            assert!(error.is_transient(), "{}", chain(&error));
        }
        at(now().after(Duration::from_millis(20))).await;
    }
    // Two at once, and then one after pauses of 1, 2 and 4 s. Their server still has each of them.
    let unended = relay.connections();
    println!("{unended} connections without an end");
    assert!((3..=6).contains(&unended), "{unended}");
    relay.cut();
    let begun = now();
    until("the ends to count", async || {
        let answer = asked(&*store, &claim("after", LONG), LIMIT).await;
        answer.ok().map(drop)
    })
    .await;
    assert!(now().since(begun) < Duration::from_secs(2));
}
