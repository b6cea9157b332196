//! Several hosts and addresses, one of which hangs: how long the way to the other one takes.

use std::time::Duration;

use leasehold::Client;
use rustix::process::Signal;

use crate::harness::asking::{claim, granted};
use crate::harness::network::with_hosts;
use crate::harness::postgres_server::PostgresServer;
use crate::harness::relay::{Passing, Relay};
use crate::harness::times::LONG;
use crate::harness::wait::{at, now};
use crate::postgres::hosts::url_of;
use crate::postgres::{open, own_server, set_up};

const TTL: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_lease_of_ten_seconds_outlives_a_host_that_falls_silent() {
    let (_server, database) = own_server().await;
    let (first, second) = (
        Relay::before(&database.socket()).await,
        Relay::before(&database.socket()).await,
    );
    let mut ports = [first.port(), second.port()];
    let (mut hung, mut sound) = (&first, &second);
    for round in 0..2 {
        let store = open(&url_of(&ports, &database));
        let client = Client::builder().shared_store(store).ttl(TTL).build();
        let client = client.await.expect("a client");
        let lease = client.acquire("a").await.expect("granted");
        let fell_silent_at = now();
        hung.pass(Passing::Nothing);
        // A new client meets the silence from the first.
        let store = open(&url_of(&ports, &database));
        granted(&*store, &claim(&format!("b{round}"), LONG)).await;
        println!("first grant after {:?}", now().since(fell_silent_at));
        at(fell_silent_at.after(TTL + TTL / 2)).await;
        lease.check().expect("renewed by the other host");
        lease.release().await;
        hung.pass(Passing::All);
        hung.cut();
        ports.reverse();
        std::mem::swap(&mut hung, &mut sound);
    }
}

#[tokio::test]
async fn a_first_server_whose_process_is_stopped_keeps_no_client_from_the_second() {
    let stopped = PostgresServer::start(&["fsync=off"]).await;
    let server = PostgresServer::start(&["fsync=off"]).await;
    let database = server.database_named("postgres");
    let first = stopped.database_named("postgres");
    stopped.signal(Signal::STOP);
    let url = format!(
        "postgres:///postgres?user=postgres&host={},{}",
        first.folder().display(),
        database.folder().display()
    );
    let begun = now();
    set_up(&url).await;
    granted(&*open(&url), &claim("a", LONG)).await;
    let took = now().since(begun);
    stopped.signal(Signal::CONT);
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn a_name_whose_first_address_is_silent_keeps_no_client_from_the_second() {
    let test = "faults::postgres::hosts::a_name_whose_first_address_is_silent_keeps_no_client_from_the_second";
    with_hosts(test, "::1 two.example\n127.0.0.1 two.example\n", || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let server = PostgresServer::start(&["fsync=off"]).await;
            let database = server.database_named("postgres");
            let relay = Relay::before(&database.socket()).await;
            // The system accepts, and no process answers.
            let silent = std::net::TcpListener::bind(("::1", relay.port()));
            let _silent = silent.expect("the port is free there");
            let port = relay.port();
            let url = format!("postgres://postgres@two.example:{port}/postgres?sslmode=disable");
            let begun = now();
            set_up(&url).await;
            granted(&*open(&url), &claim("a", LONG)).await;
            let took = now().since(begun);
            assert!(took < Duration::from_secs(2), "{took:?}");
        });
    });
}
