//! How long a command takes to give up: whatever becomes of its store, each limit that was given ends about when it
//! says, and what the server refused is told at once.

use std::time::Duration;

use rustix::process::Signal;

use super::Sandbox;
use crate::harness::ports::free_port;
use crate::harness::postgres_server::PostgresServer;
use crate::harness::redis_quorum::RedisQuorum;
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::wait::now;
use crate::harness::zookeeper_server::ZookeeperServer;

/// How much later than its limit a command may end, and how long an answer that is known may take.
const SLACK: Duration = Duration::from_millis(500);

/// The limit of each command.
const LIMIT: Duration = Duration::from_secs(1);

/// The ways to give a limit.
const COMMANDS: [&str; 4] = [
    "run -w 1s x true",
    "wait -w 1s x",
    "run --connect-timeout 1s x true",
    "status --connect-timeout 1s",
];

/// Runs a command on a store, which must fail with this code. Returns what it said, and how long it took.
fn failed(store: &str, command: &str, code: i32) -> (String, Duration) {
    let sandbox = Sandbox::new();
    let arguments: Vec<_> = command.split(' ').collect();
    let mut tool = sandbox.tool(&arguments);
    tool.env("LEASEHOLD_STORE", store);
    let began = now();
    let ended = sandbox.start(tool).end();
    let took = now().since(began);
    println!(
        "{took:>8.2?} exit {:?} {command} on {store}: {}",
        ended.code,
        ended.stderr.trim()
    );
    assert_eq!(ended.code, Some(code), "{command} on {store}: {ended:?}");
    (ended.stderr, took)
}

/// Runs a command that must fail with this code within this time. Returns what it said.
///
/// It may try three times: a busy machine starts one process or the other late, but a delay of the tool is in each.
fn failed_within(limit: Duration, store: &str, command: &str, code: i32) -> String {
    let mut tries = (0..3).map(|_| failed(store, command, code));
    let in_time = tries.find(|(_, took)| *took < limit);
    let (said, _) = in_time.unwrap_or_else(|| panic!("later than {limit:?}: {command} on {store}"));
    said
}

/// Fails unless every command on this store, which does not answer, ends with its limit and names the address.
fn gives_up_in_time(store: &str, address: &str) {
    for command in COMMANDS {
        let said = failed_within(LIMIT + SLACK, store, command, 69);
        assert!(said.contains(address), "{command} on {store}: {said}");
    }
}

/// Fails unless a run on this store, which refuses it, ends with this code at once.
fn is_told_at_once(store: &str, code: i32) {
    for command in ["run x true", "status x"] {
        failed_within(SLACK, store, command, code);
    }
}

#[tokio::test]
async fn every_limit_ends_within_half_a_second_of_itself() {
    let server = RedisServer::start().await;
    server.pause();
    gives_up_in_time(&server.url(), &server.socket().display().to_string());
    let port = free_port();
    gives_up_in_time(&format!("redis://127.0.0.1:{port}"), &port.to_string());
    let locked = Setup::default().with_port().with_password("right");
    let locked = locked.start().await;
    is_told_at_once(&format!("redis://127.0.0.1:{}", locked.port()), 77);
}

/// The same on every store, for the long tests.
pub(crate) async fn on_every_store() {
    let postgres = PostgresServer::start(&[]).await;
    let database = postgres.database_named("postgres");
    is_told_at_once(&database.url(), 78);
    postgres.signal(Signal::STOP);
    gives_up_in_time(&database.url(), &database.folder().display().to_string());
    postgres.signal(Signal::CONT);

    let chroot = ZookeeperServer::chroot().await;
    is_told_at_once(&format!("{chroot}/absent"), 78);
    let zookeeper = ZookeeperServer::start(Duration::from_secs(2)).await;
    let port = zookeeper.port();
    zookeeper.pause();
    gives_up_in_time(&format!("zookeeper://127.0.0.1:{port}"), &port.to_string());
    zookeeper.resume();

    let quorum = RedisQuorum::start_with_ports(3).await;
    quorum.servers.iter().for_each(RedisServer::pause);
    let port = quorum.servers[1].port().to_string();
    gives_up_in_time(&quorum.url(), &port);
    let new = RedisQuorum::start_new_with_ports(3).await;
    is_told_at_once(&new.url(), 78);

    let port = free_port();
    for store in ["redis", "postgres", "zookeeper"] {
        let database = if store == "postgres" { "/jobs" } else { "" };
        let store = format!("{store}://127.0.0.1:{port}{database}");
        gives_up_in_time(&store, &port.to_string());
    }
    let ports = [port, free_port(), free_port()];
    let members = ports.map(|port| format!("127.0.0.1:{port}")).join(",");
    let quorum = format!("redis+quorum://{members}?max_ttl=60s");
    gives_up_in_time(&quorum, &port.to_string());
}
