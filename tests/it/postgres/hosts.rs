//! Several hosts in one URL: what a first host that does not answer costs.

use std::sync::Arc;
use std::time::Duration;

use leasehold::store::{Purpose, Store};
use tokio::net::{TcpSocket, TcpStream};

use super::{database, open, set_up};
use crate::harness::asking::{asked, claim, granted, next_token};
use crate::harness::postgres_server::Database;
use crate::harness::relay::{Passing, Relay};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::now;

/// Well below the limit of one handshake, which is 2 s.
const SOON: Duration = Duration::from_millis(1_500);

/// The URL of these ports of this machine, in this order.
pub(crate) fn url_of(ports: &[u16], database: &Database) -> String {
    let hosts: Vec<_> = ports
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    format!(
        "postgres://postgres@{}/{}",
        hosts.join(","),
        database.name()
    )
}

/// Everything that connects does so soon: requests, the watchdog, the notices, and the set-up.
async fn reaches_soon(url: &str) {
    let begun = now();
    set_up(url).await;
    assert!(
        now().since(begun) < SOON,
        "init took {:?}",
        now().since(begun)
    );
    let store: Arc<dyn Store> = open(url);
    for step in 0..3 {
        let begun = now();
        match step {
            0 => drop(next_token(&*store, "a").await),
            1 => drop(
                store
                    .on_own_connection(Purpose::Watchdog)
                    .await
                    .expect("made"),
            ),
            _ => assert!(store.notices().await.expect("answered").is_some()),
        }
        let took = now().since(begun);
        assert!(took < SOON, "step {step} took {took:?}");
    }
}

#[tokio::test]
async fn a_first_host_that_accepts_and_says_nothing_keeps_no_client_from_the_second() {
    let database = database().await;
    let (silent, sound) = (
        Relay::before(&database.socket()).await,
        Relay::before(&database.socket()).await,
    );
    silent.pass(Passing::Nothing);
    reaches_soon(&url_of(&[silent.port(), sound.port()], &database)).await;
    // In the other order as well.
    reaches_soon(&url_of(&[sound.port(), silent.port()], &database)).await;
}

#[tokio::test]
async fn a_first_host_that_drops_packets_keeps_no_client_from_the_second() {
    let database = database().await;
    let sound = Relay::before(&database.socket()).await;
    // The system drops what is sent to a full queue of connections that no process accepts.
    let full = TcpSocket::new_v4().expect("a socket");
    full.bind("127.0.0.1:0".parse().expect("an address"))
        .expect("a free port");
    let full = full.listen(1).expect("it listens");
    let address = full.local_addr().expect("it is bound");
    let mut queued = Vec::new();
    while let Ok(Ok(connection)) =
        tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await
    {
        queued.push(connection);
    }
    reaches_soon(&url_of(&[address.port(), sound.port()], &database)).await;
}

#[tokio::test]
async fn the_host_that_last_worked_is_tried_first() {
    let database = database().await;
    let (first, second) = (
        Relay::before(&database.socket()).await,
        Relay::before(&database.socket()).await,
    );
    let store = open(&url_of(&[first.port(), second.port()], &database));
    first.pass(Passing::Nothing);
    next_token(&*store, "a").await;
    second.cut();
    // The request that finds the end of the connection may fail.
    let claim = claim("b", LONG);
    let _ = crate::harness::asking::asked(&*store, &claim, LONG).await;
    let begun = now();
    granted(&*store, &claim).await;
    assert!(now().since(begun) < Duration::from_millis(250));
}

#[tokio::test]
async fn an_error_of_a_connection_names_the_host_that_refused() {
    let url = "postgres://postgres@127.0.0.1:1,127.0.0.2:1/none";
    let store = open(url);
    let error = asked(&*store, &claim("a", LONG), LIMIT).await;
    let error = format!("{:#}", error.expect_err("no server"));
    let is_named = ["127.0.0.1:1: ", "127.0.0.2:1: "]
        .iter()
        .any(|host| error.contains(&format!(": {host}")));
    assert!(is_named, "{error}");
}
