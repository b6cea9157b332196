//! The queue in the file: what a release grants, and that nothing of it stays.

use std::path::Path;
use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};
use leasehold::store::sqlite::Sqlite;
use leasehold::store::{Handover, Held, Notice, Queued, Release, Store, Topic};
use tempfile::TempDir;

use super::{Asking, LIMIT, LONG, claim, granted, held, name, open, queued, raw};
use crate::harness::asking::{ahead, released};
use crate::harness::wait::next_notice;

async fn bench() -> (TempDir, Sqlite) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder.path().join("leases.sqlite")).await;
    (folder, store)
}

async fn inspect(store: &Sqlite, text: &str) -> Option<Held> {
    let found = store.inspect(&name(text), LIMIT).await;
    found.expect("answered")
}

fn count(file: &Path, sql: &str) -> i64 {
    let count = raw(file).query_row(sql, (), |row| row.get(0));
    count.expect("a count")
}

#[tokio::test]
async fn a_grant_that_no_client_hears_of_runs_out_and_is_swept() {
    let (folder, store) = bench().await;
    let (first, mut dead) = (claim("a", LONG), queued("a", LONG));
    let short = Duration::from_millis(600);
    dead.ask.queued = Some(Queued::new(short));
    granted(&store, &first).await;
    held(&store, &dead).await;
    assert_eq!(released(&store, &first).await, Release::Released);
    let held = inspect(&store, "a").await.expect("in time");
    assert_eq!(held.by, Some(dead.holder));
    assert!(held.remaining.is_some_and(|left| left <= short), "{held:?}");
    Monotonic.sleep_until(Monotonic.now().after(short)).await;
    assert!(inspect(&store, "a").await.is_none());
    granted(&store, &claim("b", LONG)).await;
    let file = folder.path().join("leases.sqlite");
    assert_eq!(count(&file, "SELECT count(*) FROM lease"), 1);
    assert_eq!(count(&file, "SELECT count(*) FROM line"), 0);
}

#[tokio::test]
async fn a_long_queue_of_dead_clients_is_passed_over_at_once_and_swept() {
    let (folder, store) = bench().await;
    let file = folder.path().join("leases.sqlite");
    let first = claim("a", LONG);
    granted(&store, &first).await;
    for _ in 0..1_000 {
        held(&store, &queued("a", LONG)).await;
    }
    let live = queued("a", LONG);
    raw(&file)
        .execute("UPDATE line SET alive_until_ns = 1", ())
        .expect("ours");
    assert_eq!(ahead(&store, &live).await, Some(0));
    let began = Monotonic.now();
    assert_eq!(released(&store, &first).await, Release::Released);
    granted(&store, &live).await;
    let took = Monotonic.now().since(began);
    println!("1,000 dead were passed over in {took:?}");
    assert!(took < Duration::from_secs(1), "{took:?}");
    for index in 0..8 {
        granted(&store, &claim(&index.to_string(), LONG)).await;
    }
    assert_eq!(count(&file, "SELECT count(*) FROM line"), 0);
}

#[tokio::test]
async fn clients_queued_under_another_boot_are_dead() {
    let (folder, store) = bench().await;
    let file = folder.path().join("leases.sqlite");
    let (first, dead) = (claim("a", LONG), queued("a", LONG));
    granted(&store, &first).await;
    held(&store, &dead).await;
    raw(&file)
        .execute("UPDATE line SET boot = 'b'", ())
        .expect("ours");
    assert_eq!(released(&store, &first).await, Release::Released);
    assert!(inspect(&store, "a").await.is_none());
    let next = claim("a", LONG);
    granted(&store, &next).await;
    // One that is there all the same only has to claim again.
    assert_eq!(ahead(&store, &dead).await, Some(0));
    assert_eq!(released(&store, &next).await, Release::Released);
    granted(&store, &dead).await;
    let other = "INSERT INTO line (name, place, client, boot, alive_until_ns) VALUES ('c', 1, '?', 'b', 9000)";
    raw(&file).execute(other, ()).expect("ours");
    store.close().await;
    open(&file).await.close().await;
    assert_eq!(count(&file, "SELECT count(*) FROM line"), 0);
}

/// As schema 4 writes them: its clients do not claim at their places.
#[tokio::test]
async fn clients_of_an_older_version_keep_no_name_from_a_claim() {
    let (folder, store) = bench().await;
    let file = folder.path().join("leases.sqlite");
    let (first, next) = (claim("a", LONG), queued("a", LONG));
    granted(&store, &first).await;
    let old = "INSERT INTO line (name, place, client, boot, alive_until_ns)
        SELECT name, 1, 'old', boot, ends_at_ns FROM lease";
    raw(&file).execute(old, ()).expect("ours");
    assert_eq!(ahead(&store, &next).await, Some(0));
    assert_eq!(released(&store, &first).await, Release::Released);
    let held = inspect(&store, "a").await.expect("it was granted");
    assert_eq!(held.by, Some(next.holder));
    // An offer of theirs is a name that is kept for a while.
    let offer = "UPDATE lease SET standing = 3, holder = 'old', token = 0";
    raw(&file).execute(offer, ()).expect("ours");
    crate::harness::asking::held(&store, &claim("a", LONG)).await;
}

/// A try grants what the holder, which is gone, cannot.
#[tokio::test]
async fn a_try_at_a_lease_that_ran_out_grants_it_to_the_queue() {
    let (_folder, store) = bench().await;
    let short = Duration::from_millis(200);
    let (first, next) = (claim("a", short), queued("a", LONG));
    granted(&store, &first).await;
    held(&store, &next).await;
    Monotonic.sleep_until(Monotonic.now().after(short)).await;
    assert!(inspect(&store, "a").await.is_none());
    let found = held(&store, &claim("a", LONG)).await;
    assert_eq!((found.by, found.place), (Some(next.holder), None));
    granted(&store, &next).await;
}

/// What this client and one that only watches hear of "a", from now on.
async fn following(store: &Sqlite, client: &Asking) -> Box<dyn leasehold::store::Notices> {
    let notices = store.notices().await.expect("it listens");
    let notices = notices.expect("it has notices");
    let queue = Topic::Queue(name("a"), client.holder.client());
    for topic in [Topic::Freed(name("a")), queue] {
        notices.follow(&topic);
        assert_eq!(next_notice(&*notices).await, Notice::Freed(name("a")));
    }
    notices
}

#[tokio::test]
async fn a_kept_name_brings_one_notice() {
    let (_folder, store) = bench().await;
    let (first, next) = (claim("a", LONG), queued("a", LONG));
    granted(&store, &first).await;
    held(&store, &next).await;
    let notices = following(&store, &next).await;
    let kept_for = Some(LONG / 2);
    let released = store
        .release(&name("a"), first.holder, kept_for, LIMIT)
        .await;
    assert_eq!(released.expect("answered"), Release::Released);
    assert_eq!(next_notice(&*notices).await, Notice::Freed(name("a")));
    // Whatever else is written, those who wait are left alone.
    let mut heard = 1;
    for other in ["b", "c"] {
        granted(&store, &claim(other, LONG)).await;
        let quiet = Duration::from_millis(1_200);
        while let Ok(notice) = tokio::time::timeout(quiet, notices.next()).await {
            assert_eq!(notice, Notice::Freed(name("a")));
            heard += 1;
        }
    }
    assert!(heard <= 2, "{heard}: once to each of the two");
}

#[tokio::test]
async fn a_grant_is_told_once() {
    let (_folder, store) = bench().await;
    let (first, next) = (claim("a", LONG), queued("a", LONG));
    granted(&store, &first).await;
    held(&store, &next).await;
    let notices = following(&store, &next).await;
    assert_eq!(released(&store, &first).await, Release::Released);
    let held = inspect(&store, "a").await.expect("it was granted");
    let token = held.token.expect("a token");
    let Notice::Granted(told) = next_notice(&*notices).await else {
        panic!("no grant was told of");
    };
    let end = told.ends_at.expect("its end");
    let handover = Handover::new(name("a"), next.holder, token).with_end(end);
    assert_eq!(*told, handover);
    // It is not granted for longer than that, to a client that may be dead.
    let longest = Monotonic.now().after(Queued::LONGEST_TERM);
    assert!(Monotonic.now() < end && end <= longest, "{end:?}");
    granted(&store, &claim("b", LONG)).await;
    let quiet = Duration::from_millis(1_200);
    let more = tokio::time::timeout(quiet, notices.next()).await;
    assert!(more.is_err(), "{more:?}");
}
