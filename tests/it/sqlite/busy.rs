//! What a store does while others keep the file, its runtime or its queue busy.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::clock::{Clock, Monotonic};
use leasehold::store::sqlite::Sqlite;
use leasehold::store::{Outcome, Purpose, Store};

use super::child::Child;
use super::{
    LIMIT, LONG, asked, claim, granted, held, integrity, name, open, pass_time, queued, raw,
};

/// The limit of calls that are to reach it, and how much later they may end on a busy machine.
const SHORT: Duration = Duration::from_millis(200);
const A_LITTLE: Duration = Duration::from_millis(200);

/// A connection in the middle of a transaction, like that of a process that was stopped there.
fn stopped_writer(file: &Path) -> rusqlite::Connection {
    let writer = raw(file);
    writer
        .execute_batch("BEGIN IMMEDIATE")
        .expect("the writer is in");
    writer
}

async fn ends_at_its_limit<T>(call: impl Future<Output = T>) -> T {
    let began = Monotonic.now();
    let answer = call.await;
    let took = Monotonic.now().since(began);
    assert!(took <= SHORT + A_LITTLE, "ended after {took:?}");
    answer
}

#[tokio::test]
async fn while_a_writer_is_stopped_calls_end_by_their_limit_and_go_on_afterwards() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("leases.sqlite");
    let store = open(&file).await;
    let ours = claim("ours", LONG);
    granted(&store, &ours).await;
    let renewal = [ours.renewal()];
    let writer = stopped_writer(&file);

    let free = claim("free", LONG);
    let acquired = ends_at_its_limit(asked(&store, &free, SHORT)).await;
    assert_eq!(acquired.expect_err("busy").kind(), ErrorKind::TimedOut);
    let renewed = ends_at_its_limit(store.renew(&renewal, SHORT)).await;
    let [Outcome::Unknown(error)] = &renewed.outcomes[..] else {
        panic!("expected an unknown outcome, got {renewed:?}");
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let released = ends_at_its_limit(store.release(&ours.name, ours.holder, None, SHORT)).await;
    assert_eq!(released.expect_err("busy").kind(), ErrorKind::TimedOut);

    // The store itself is not stuck behind them.
    held(&store, &claim("ours", LONG)).await;
    writer.execute_batch("COMMIT").expect("it goes on");
    granted(&store, &free).await;
    let renewed = store.renew(&renewal, LIMIT).await.outcomes;
    assert!(matches!(renewed[..], [Outcome::Renewed]), "{renewed:?}");
}

#[tokio::test]
async fn while_a_writer_is_stopped_waiting_clients_are_told_of_the_holder() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("leases.sqlite");
    let store = open(&file).await;
    granted(&store, &claim("a", LONG)).await;
    let _writer = stopped_writer(&file);
    held(&store, &claim("a", LONG)).await;
    let found = store.inspect(&name("a"), LIMIT).await.expect("answered");
    assert!(found.is_some());
    assert_eq!(store.list("", LIMIT).await.expect("answered").len(), 1);
}

#[tokio::test]
async fn a_shell_left_in_a_reading_transaction_delays_no_client() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("leases.sqlite");
    let store = open(&file).await;
    let shell = raw(&file);
    shell
        .execute_batch("BEGIN; SELECT * FROM lease")
        .expect("it reads");
    // Enough for the file to grow several times.
    for index in 0..500 {
        granted(&store, &claim(&index.to_string(), LONG)).await;
    }
}

#[tokio::test]
async fn more_requests_than_the_queue_takes_all_end_by_their_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("leases.sqlite");
    let store = Arc::new(open(&file).await);
    let writer = stopped_writer(&file);
    let mut calls = tokio::task::JoinSet::new();
    for index in 0..400 {
        let store = store.clone();
        calls.spawn(async move {
            let claim = claim(&index.to_string(), LONG);
            ends_at_its_limit(asked(&*store, &claim, SHORT)).await
        });
    }
    for answer in calls.join_all().await {
        assert_eq!(answer.expect_err("busy").kind(), ErrorKind::TimedOut);
    }
    drop(writer);
    granted(&*store, &claim("0", LONG)).await;
}

#[test]
fn a_blocked_pool_of_the_users_runtime_delays_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build();
    let runtime = runtime.expect("a runtime");
    let (release, blocked) = std::sync::mpsc::sync_channel::<()>(0);
    runtime.spawn_blocking(move || blocked.recv());
    runtime.block_on(async {
        let folder = tempfile::tempdir().expect("a folder");
        let store = open(&folder.path().join("leases.sqlite")).await;
        granted(&store, &claim("a", LONG)).await;
        store.close().await;
    });
    drop(release);
}

#[tokio::test]
async fn a_dropped_acquire_leaves_nothing_that_one_ttl_does_not_clean() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder.path().join("leases.sqlite")).await;
    let ttl = Duration::from_millis(300);
    for index in 0..100 {
        let claim = claim(&index.to_string(), ttl);
        let soon = pass_time(Duration::from_micros(fastrand::u64(..100)));
        // Whichever is first: before the thread saw it, in the midst of it, or after it.
        tokio::select! {
            biased;
            () = soon => {}
            _ = asked(&store, &claim, LIMIT) => {}
        }
    }
    // Requests are served in their order, so once this is answered the store has heard of every claim that it will.
    let last = claim("last", ttl);
    granted(&store, &last).await;
    pass_time(ttl).await;
    for index in 0..100 {
        granted(&store, &claim(&index.to_string(), ttl)).await;
    }
}

#[tokio::test]
async fn a_request_dropped_before_its_turn_is_not_carried_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("leases.sqlite");
    let store = open(&file).await;
    let writer = stopped_writer(&file);
    let (first, dropped) = (claim("first", LONG), claim("dropped", LONG));
    let ((), ()) = tokio::join!(
        async {
            let late = asked(&store, &first, SHORT).await;
            assert_eq!(late.expect_err("busy").kind(), ErrorKind::TimedOut);
        },
        async {
            let given_up = tokio::time::timeout(SHORT / 4, asked(&store, &dropped, LIMIT)).await;
            assert!(given_up.is_err());
        }
    );
    drop(writer);
    granted(&store, &claim("dropped", LONG)).await;
}

#[tokio::test]
async fn what_was_given_up_while_the_file_was_busy_is_not_carried_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("leases.sqlite");
    let store = open(&file).await;
    let (ours, free) = (claim("ours", LONG), claim("free", LONG));
    granted(&store, &ours).await;
    let mut renewal = [ours.renewal()];
    renewal[0].ttl = LONG * 2;
    let in_queue = queued("ours", LONG);
    let release = store.release(&ours.name, ours.holder, None, LIMIT);
    give_up(&store, &file, asked(&store, &free, LIMIT)).await;
    give_up(&store, &file, asked(&store, &in_queue, LIMIT)).await;
    give_up(&store, &file, store.renew(&renewal, LIMIT)).await;
    give_up(&store, &file, release).await;
    granted(&store, &claim("free", LONG)).await;
    let found = held(&store, &claim("ours", LONG)).await;
    assert!(found.remaining.is_some_and(|remaining| remaining <= LONG));
    let in_queue: i64 = raw(&file)
        .query_row("SELECT count(*) FROM line", (), |row| row.get(0))
        .expect("a count");
    assert_eq!(in_queue, 0);
}

/// Makes a call and gives it up while a writer is stopped, who goes on afterwards.
async fn give_up<T>(store: &Sqlite, file: &Path, call: impl Future<Output = T>) {
    let writer = stopped_writer(file);
    let given_up = tokio::time::timeout(SHORT / 4, call).await;
    assert!(given_up.is_err(), "the file is busy");
    drop(writer);
    // Requests are served in their order, so after this one nothing is tried any more.
    granted(store, &claim("other", Duration::from_nanos(1))).await;
}

#[tokio::test]
async fn two_stores_share_a_file_and_closing_one_keeps_the_others_locks() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("leases.sqlite");
    let (stays, leaves) = (open(&file).await, open(&file).await);
    granted(&stays, &claim("a", LONG)).await;
    held(&leaves, &claim("a", LONG)).await;
    leaves.close().await;
    // The last one to close a file deletes its log. A process that comes and goes must see that we are there.
    let mut child = Child::start(&file);
    assert!(child.ask("acquire b 60000").starts_with("granted "));
    child.finish();
    assert!(file.with_extension("sqlite-wal").exists());
    held(&stays, &claim("b", LONG)).await;
    assert_eq!(integrity(&file), "ok");
}

#[tokio::test]
async fn a_closed_store_lets_go_of_the_file_and_its_leases_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("leases.sqlite");
    let store = open(&file).await;
    granted(&store, &claim("a", LONG)).await;
    let watchdog = store
        .on_own_connection(Purpose::Watchdog)
        .await
        .expect("a connection of its own");
    store.close().await;
    let closed = store
        .on_own_connection(Purpose::Watchdog)
        .await
        .expect_err("closed");
    assert_eq!(closed.kind(), ErrorKind::Closed);
    held(&*watchdog, &claim("a", LONG)).await;
    watchdog.close().await;
    assert!(!file.with_extension("sqlite-wal").exists());
    let again: Sqlite = open(&file).await;
    held(&again, &claim("a", LONG)).await;
}
