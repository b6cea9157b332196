//! Sessions: what ends with them, and whose thread keeps them alive.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::store::{Outcome, Purpose};
use leasehold::{ErrorKind, OutagePolicy, ReleaseOutcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::{node_of_a, open};
use crate::harness::asking::{ahead, claim, granted, queued, released, renewed};
use crate::harness::leases::{client_at, take_waiting};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{at, now, until, until_so};
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
    let gone = queued("a", LONG);
    assert_eq!(ahead(&*dead, &gone).await, Some(0));
    let behind = queued("a", LONG);
    assert_eq!(ahead(&*next, &behind).await, Some(1));
    dead.close().await;
    until("the place", async || {
        (ahead(&*next, &behind).await == Some(0)).then_some(())
    })
    .await;
    released(&*holder, &first).await;
    granted(&*next, &behind).await;
}

/// `maxClientCnxns` counts them by machine.
#[tokio::test]
async fn a_client_that_polls_holds_and_waits_has_two_connections() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let before = server.connections();
    let client = client_at(&server.url(""), LONG).await;
    let listed = client.store().list("", LIMIT).await;
    assert!(listed.expect("answered").is_empty());
    let lease = take_waiting(&client, "a").await;
    let request = client.request("a");
    let waiting = tokio::spawn(request.on_outage(OutagePolicy::WaitOut).acquire());
    let rival = open(&server.url(""));
    until("the waiting client", async || {
        let held = rival.inspect(&claim("a", LONG).name, LIMIT).await;
        let waiting = held.expect("answered").and_then(|held| held.waiting);
        (waiting == Some(1)).then_some(())
    })
    .await;
    rival.close().await;
    drop(lease);
    let next = waiting.await.expect("no panic").expect("it is free");
    let made = server.connections() - before;
    assert!(made <= 2, "{made}");
    assert_eq!(next.release().await, ReleaseOutcome::Released);
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

/// The session that the server of the next test grants.
const SESSION: i64 = 7;

async fn read_frame(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; client.read_u32().await? as usize];
    client.read_exact(&mut frame).await?;
    Ok(frame)
}

/// Serves a client as a server without nodes, whose last write has this number. Records the session that is asked for.
async fn serve_session(
    mut client: TcpStream,
    zxid: i64,
    sessions: &Mutex<Vec<i64>>,
) -> io::Result<()> {
    let hello = read_frame(&mut client).await?;
    let session = hello[16..24].try_into().expect("eight bytes");
    sessions.lock().unwrap().push(i64::from_be_bytes(session));
    client.write_u32(37).await?;
    client.write_all(&[0; 4]).await?;
    client.write_i32(9_000).await?;
    client.write_i64(SESSION).await?;
    client.write_i32(16).await?;
    client.write_all(&[0; 17]).await?;
    loop {
        let request = read_frame(&mut client).await?;
        client.write_u32(16).await?;
        client.write_all(&request[..4]).await?;
        client.write_i64(zxid).await?;
        // A ping and a sync succeed. For all else there is no node.
        let succeeds = matches!(request[7], 9 | 11);
        client.write_i32(if succeeds { 0 } else { -101 }).await?;
    }
}

/// As a leader that is cut off, until it notices: it answers, and does not know what was written since.
#[tokio::test]
async fn a_server_that_is_behind_what_a_session_has_seen_shows_no_name_as_free() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await;
    let listener = listener.expect("loopback has a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let (sessions, cut) = (Arc::<Mutex<_>>::default(), Arc::new(Notify::new()));
    let (asked_for, cut_off) = (sessions.clone(), cut.clone());
    tokio::spawn(async move {
        for zxid in [100, 50, 200] {
            let (client, _) = listener.accept().await.expect("a client");
            tokio::select! {
                _ = serve_session(client, zxid, &asked_for) => {}
                () = cut_off.notified() => {}
            }
        }
    });
    let store = open(&format!("zookeeper://127.0.0.1:{port}"));
    let name = claim("a", LONG).name.clone();
    let read = || store.inspect(&name, LIMIT);
    assert!(read().await.expect("answered").is_none());
    cut.notify_one();
    until_so("the next server", async || {
        sessions.lock().unwrap().len() == 2
    })
    .await;
    let error = read().await.expect_err("it is behind");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:#}");
    until("a new session", async || read().await.ok()).await;
    assert_eq!(*sessions.lock().unwrap(), [0, SESSION, 0]);
}
