//! Sessions: what ends with them, and whose thread keeps them alive.

use std::sync::Arc;
use std::time::Duration;

use leasehold::store::{Outcome, Purpose, Queued};
use leasehold::{OutagePolicy, ReleaseOutcome, WaitOrder};

use super::{node_of_a, open, take};
use crate::harness::asking::{claim, granted, held, released, renewed};
use crate::harness::leases::client_at;
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{at, now, until};
use crate::harness::zookeeper_server::{Wire, ZookeeperServer};

/// The watchdog's thread dies without a word: what it renewed is gone after its session, and the store serves on.
#[test]
fn a_session_does_not_outlive_the_thread_of_its_watchdog() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().expect("a runtime")
    };
    let main = runtime();
    let url = main.block_on(ZookeeperServer::chroot());
    // 4 s are the least that this server agrees to.
    let store = open(&format!("{url}?session=4s"));
    let lease = claim("a", Duration::from_secs(3));
    std::thread::scope(|scope| {
        let watchdog = scope.spawn(|| {
            let runtime = runtime();
            let watchdog = runtime.block_on(store.on_own_connection(Purpose::Watchdog));
            let watchdog = watchdog.expect("made");
            runtime.block_on(granted(&*store, &lease));
            assert!(matches!(
                runtime.block_on(renewed(&*watchdog, &lease)),
                Outcome::Renewed
            ));
            // Nothing is closed, and no task is left to do so.
            std::mem::forget(watchdog);
            runtime.shutdown_background();
        });
        watchdog.join().expect("it ends");
    });
    main.block_on(async {
        let next = claim("a", LONG);
        until("the name", async || {
            let answer = store.acquire(&next, next.ask, LONG).await.ok()?;
            matches!(answer, leasehold::store::Answer::Granted(_)).then_some(())
        })
        .await;
    });
}

/// The watchdog's thread is blocked: nothing keeps its session alive, and the servers remove its leases by themselves.
#[test]
fn a_session_does_not_outlive_the_silence_of_its_watchdog() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().expect("a runtime")
    };
    let main = runtime();
    let url = main.block_on(ZookeeperServer::chroot());
    let server = main.block_on(ZookeeperServer::shared());
    let store = open(&format!("{url}?session=4s"));
    let lease = claim("a", Duration::from_secs(3));
    let (unblock, blocked) = std::sync::mpsc::sync_channel::<()>(1);
    std::thread::scope(|scope| {
        let (store, lease) = (&store, &lease);
        scope.spawn(move || {
            let runtime = runtime();
            let watchdog = runtime.block_on(store.on_own_connection(Purpose::Watchdog));
            let _watchdog = watchdog.expect("made");
            runtime.block_on(granted(&**store, lease));
            // No task of this runtime runs any more.
            let _ = blocked.recv();
        });
        let mut operator = Wire::connect(server);
        let node = node_of_a(&url);
        main.block_on(async {
            let leases = |operator: &mut Wire| {
                let nodes = operator.children(&node);
                nodes.iter().filter(|node| node.starts_with("h-")).count()
            };
            until("the lease", async || {
                (leases(&mut operator) == 1).then_some(())
            })
            .await;
            let taken_at = now();
            until("the end of the session", async || {
                at(now().after(Duration::from_millis(50))).await;
                (leases(&mut operator) == 0).then_some(())
            })
            .await;
            eprintln!(
                "case=watchdog blocked node_gone_after={:.1?}",
                now().since(taken_at)
            );
        });
        drop(unblock);
    });
}

#[tokio::test]
async fn the_places_of_a_client_that_ends_are_gone_with_it() {
    let url = ZookeeperServer::chroot().await;
    let (holder, dead, next) = (open(&url), open(&url), open(&url));
    let first = claim("a", LONG);
    granted(&*holder, &first).await;
    let mut gone = claim("a", LONG);
    gone.ask.queued = Some(Queued::new(0));
    assert_eq!(held(&*dead, &gone).await.ahead, Some(0));
    let mut behind = claim("a", LONG);
    behind.ask.queued = Some(Queued::new(0));
    assert_eq!(held(&*next, &behind).await.ahead, Some(1));
    dead.close().await;
    until("the place", async || {
        (held(&*next, &behind).await.ahead == Some(0)).then_some(())
    })
    .await;
    released(&*holder, &first).await;
    granted(&*next, &behind).await;
}

/// `maxClientCnxns` counts them by machine.
#[tokio::test]
async fn a_client_that_looks_holds_and_waits_has_two_connections() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let before = server.connections();
    let client = client_at(&server.url(""), LONG).await;
    let listed = client.store().list("", LIMIT).await;
    assert!(listed.expect("answered").is_empty());
    for order in [WaitOrder::Fair, WaitOrder::Any] {
        let lease = take(&client, "a").await;
        let request = client.request("a").order(order);
        let waiting = tokio::spawn(request.on_outage(OutagePolicy::WaitOut).acquire());
        let rival = open(&server.url(""));
        until("the waiting client", async || {
            let held = rival.inspect(&claim("a", LONG).name, LIMIT).await;
            let waiting = held.expect("answered").and_then(|held| held.waiting);
            (order == WaitOrder::Any || waiting == Some(1)).then_some(())
        })
        .await;
        rival.close().await;
        drop(lease);
        let next = waiting.await.expect("no panic").expect("it is free");
        let made = server.connections() - before;
        assert!(made <= 2, "{made} with {order:?}");
        assert_eq!(next.release().await, ReleaseOutcome::Released);
    }
    client.shutdown(LIMIT).await;
}

/// One client, used from a second runtime after the first has ended.
#[test]
fn a_store_serves_one_runtime_after_another() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().expect("a runtime")
    };
    let url = runtime().block_on(ZookeeperServer::chroot());
    let store = Arc::clone(&open(&url));
    let lease = claim("a", LONG);
    let token = runtime().block_on(granted(&*store, &lease));
    assert_eq!(runtime().block_on(granted(&*store, &lease)), token);
}
