//! What a caller is told of a store that cannot serve it, and what it is never told.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::store::Sent;

use super::open;
use crate::harness::asking::{asked, chain, claim, granted};
use crate::harness::times::LONG;
use crate::harness::zookeeper_server::ZookeeperServer;

const LIMIT: Duration = Duration::from_secs(2);

/// The same URL with a login.
fn with_login(url: &str, login: &str) -> String {
    url.replacen("://", &format!("://{login}@"), 1)
}

#[tokio::test]
async fn a_chroot_that_is_not_there_is_misconfigured_and_not_made() {
    let url = ZookeeperServer::chroot().await;
    let store = open(&format!("{url}/absent"));
    for _ in 0..2 {
        let error = asked(&*store, &claim("a", LONG), LIMIT).await;
        let error = error.expect_err("there is no chroot");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
        assert!(chain(&error).contains("chroot"), "{error:#}");
    }
}

#[tokio::test]
async fn the_nodes_of_a_user_are_denied_to_others_and_no_secret_is_told() {
    let url = ZookeeperServer::chroot().await;
    let store = open(&with_login(&url, "me:the%40secret"));
    granted(&*store, &claim("a", LONG)).await;
    assert!(!format!("{store:?} {}", store.location()).contains("secret"));
    for other in [url.clone(), with_login(&url, "me:wrong-secret")] {
        let other = open(&other);
        let error = asked(&*other, &claim("a", LONG), LIMIT).await;
        let error = error.expect_err("it is not its own");
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:#}");
        let said = format!("{} {other:?} {}", chain(&error), other.location());
        assert!(!said.contains("secret"), "{said}");
    }
    let hazards = store.hazards(LIMIT).await.expect("answered");
    assert!(!format!("{hazards:?}").contains("secret"), "{hazards:?}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable_within_the_limit_and_nothing_was_sent() {
    // Bound, and so taken by no other program, but not served.
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = port.local_addr().expect("it is bound").port();
    let store = open(&format!("zookeeper://127.0.0.1:{port}"));
    let limit = Duration::from_millis(300);
    let claim = claim("a", LONG);
    let failed = store.acquire(&claim, claim.ask, limit).await;
    let failed = failed.expect_err("nobody listens");
    assert_eq!(failed.error.kind(), ErrorKind::Unavailable, "{failed:?}");
    assert_eq!(failed.sent, Sent::Never);
}

#[tokio::test]
async fn what_weakens_the_set_up_is_told() {
    let store = open(&ZookeeperServer::chroot().await);
    let hazards = store.hazards(LIMIT).await.expect("answered");
    let ids: Vec<_> = hazards.iter().map(|hazard| hazard.id).collect();
    for id in ["zookeeper-one-server", "zookeeper-open-access"] {
        assert!(ids.contains(&id), "{ids:?}");
    }
    let members = store.members(LIMIT).await.expect("answered");
    let version = members[0].version.as_deref().unwrap_or_default();
    assert!(version.starts_with("ZooKeeper 3."), "{members:?}");
}

/// The tool asks for the set-up with each `status`, and `export` with each scrape.
#[tokio::test]
async fn an_examination_of_the_set_up_reads_no_names() {
    const NAMES: u64 = 60;
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let store = open(&server.url(""));
    for index in 0..NAMES {
        granted(&*store, &claim(&format!("n{index}"), LONG)).await;
    }
    let before = server.requests();
    store.hazards(LIMIT).await.expect("answered");
    let requests = server.requests() - before;
    assert!(requests < NAMES / 2, "{requests}");
}
