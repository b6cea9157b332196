//! The line in the file: what is shown of it, and that nothing of it stays.

use std::path::Path;
use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};
use leasehold::store::sqlite::Sqlite;
use leasehold::store::{Answer, Eviction, Held, Notice, Notices, Queued, Release, Store, Topic};
use tempfile::TempDir;

use super::{Asking, LIMIT, LONG, asked, claim, granted, held, name, open, queued, raw};
use crate::harness::asking::released;

async fn bench() -> (TempDir, Sqlite) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder.path().join("leases.sqlite")).await;
    (folder, store)
}

async fn inspect(store: &Sqlite, text: &str) -> Option<Held> {
    let found = store.inspect(&name(text), LIMIT).await;
    found.expect("answered")
}

async fn evict(store: &Sqlite, how: Eviction) -> bool {
    let evicted = store.evict(&name("a"), how, LIMIT).await;
    evicted.expect("answered")
}

fn count(file: &Path, sql: &str) -> i64 {
    let count = raw(file).query_row(sql, (), |row| row.get(0));
    count.expect("a count")
}

#[tokio::test]
async fn an_offer_is_shown_as_taken_by_no_holder_and_an_operator_passes_it_on() {
    let (_folder, store) = bench().await;
    let (first, one, two) = (claim("a", LONG), queued("a", LONG), queued("a", LONG));
    granted(&store, &first).await;
    held(&store, &one).await;
    held(&store, &two).await;
    assert_eq!(released(&store, &first).await, Release::Released);
    let shown = inspect(&store, "a").await.expect("it is kept for somebody");
    assert_eq!((shown.by, shown.token, shown.since), (None, None, None));
    assert!(shown.remaining.expect("an end") <= Queued::OFFER);
    let listed = store.list("", LIMIT).await.expect("answered");
    assert_eq!(listed.len(), 1);
    assert!(!evict(&store, Eviction::Marked).await);
    assert!(evict(&store, Eviction::Now).await);
    // The first one's turn is over; it is the last now.
    assert_eq!(held(&store, &one).await.ahead, Some(0));
    granted(&store, &two).await;
}

#[tokio::test]
async fn an_offer_that_no_client_accepts_runs_out_and_is_swept() {
    let (folder, store) = bench().await;
    let (first, dead) = (claim("a", LONG), queued("a", LONG));
    granted(&store, &first).await;
    held(&store, &dead).await;
    assert_eq!(released(&store, &first).await, Release::Released);
    assert!(inspect(&store, "a").await.is_some());
    Monotonic
        .sleep_until(Monotonic.now().after(Queued::OFFER))
        .await;
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
    for _ in 0..500 {
        held(&store, &queued("a", LONG)).await;
    }
    let live = queued("a", LONG);
    raw(&file)
        .execute("UPDATE line SET alive_until_ns = 1", ())
        .expect("ours");
    assert_eq!(held(&store, &live).await.ahead, Some(0));
    let began = Monotonic.now();
    assert_eq!(released(&store, &first).await, Release::Released);
    granted(&store, &live).await;
    let took = Monotonic.now().since(began);
    println!("500 dead were passed over in {took:?}");
    assert!(took < Duration::from_secs(1), "{took:?}");
    for index in 0..8 {
        granted(&store, &claim(&index.to_string(), LONG)).await;
    }
    assert_eq!(count(&file, "SELECT count(*) FROM line"), 0);
}

#[tokio::test]
async fn clients_queued_under_another_boot_are_dead_and_their_offers_void() {
    let (folder, store) = bench().await;
    let file = folder.path().join("leases.sqlite");
    let (first, dead) = (claim("a", LONG), queued("a", LONG));
    granted(&store, &first).await;
    held(&store, &queued("a", LONG)).await;
    held(&store, &dead).await;
    assert_eq!(released(&store, &first).await, Release::Released);
    let other = "UPDATE line SET boot = 'b'; UPDATE lease SET boot = 'b';";
    raw(&file).execute_batch(other).expect("ours");
    assert!(inspect(&store, "a").await.is_none());
    let next = claim("a", LONG);
    granted(&store, &next).await;
    // One that is there all the same only has to claim again.
    assert_eq!(held(&store, &dead).await.ahead, Some(0));
    assert_eq!(released(&store, &next).await, Release::Released);
    granted(&store, &dead).await;
    raw(&file)
        .execute("INSERT INTO line VALUES ('c', 1, '?', 'b', 9000)", ())
        .expect("ours");
    store.close().await;
    open(&file).await.close().await;
    assert_eq!(count(&file, "SELECT count(*) FROM line"), 0);
}

/// A try makes the offer that the holder, which is gone, cannot make.
#[tokio::test]
async fn a_try_at_a_lease_that_ran_out_offers_it_to_the_queue() {
    let (_folder, store) = bench().await;
    let short = Duration::from_millis(200);
    let (first, next) = (claim("a", short), queued("a", LONG));
    granted(&store, &first).await;
    held(&store, &next).await;
    Monotonic.sleep_until(Monotonic.now().after(short)).await;
    assert!(inspect(&store, "a").await.is_none());
    let found = held(&store, &claim("a", LONG)).await;
    assert_eq!((found.by, found.ahead), (None, None));
    match asked(&store, &next, LIMIT).await {
        Ok(Answer::Granted(_)) => {}
        other => panic!("expected a grant, got {other:?}"),
    }
}

async fn hint(notices: &dyn Notices) -> Notice {
    let hinted = tokio::time::timeout(LIMIT, notices.next()).await;
    hinted.expect("a hint comes")
}

/// The hints about "a" that this client and a plain waiter get, from now on.
async fn following(store: &Sqlite, client: &Asking) -> Box<dyn Notices> {
    let notices = store.notices().await.expect("it listens");
    let notices = notices.expect("it hints");
    notices.follow(&Topic::Freed(name("a")));
    assert_eq!(hint(&*notices).await, Notice::Freed(name("a")));
    notices.follow(&Topic::Turn(name("a"), client.holder.client()));
    assert_eq!(hint(&*notices).await, Notice::Turn(name("a")));
    notices
}

async fn hinted_as_next(notices: &dyn Notices) -> Duration {
    match hint(notices).await {
        Notice::Next(_, remaining) => remaining,
        other => panic!("expected to be next, got {other:?}"),
    }
}

#[tokio::test]
async fn a_kept_name_is_hinted_once_and_its_end_is_told_to_the_first_client() {
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
    assert_eq!(hint(&*notices).await, Notice::Freed(name("a")));
    let remaining = hinted_as_next(&*notices).await;
    assert!(
        remaining <= LONG / 2 && remaining > LONG / 4,
        "{remaining:?}"
    );
    // Whatever else is written, those who only wait are left alone.
    for other in ["b", "c"] {
        granted(&store, &claim(other, LONG)).await;
        hinted_as_next(&*notices).await;
    }
}

#[tokio::test]
async fn a_client_that_comes_after_an_offer_is_told_what_is_left_of_it() {
    let (_folder, store) = bench().await;
    let (first, one, two) = (claim("a", LONG), queued("a", LONG), queued("a", LONG));
    granted(&store, &first).await;
    held(&store, &one).await;
    held(&store, &two).await;
    let notices = following(&store, &two).await;
    assert_eq!(released(&store, &first).await, Release::Released);
    let early = hinted_as_next(&*notices).await;
    assert!(early <= Queued::OFFER);
    let began = Monotonic.now();
    let late = Duration::from_millis(500);
    Monotonic.sleep_until(began.after(late)).await;
    granted(&store, &claim("b", LONG)).await;
    assert!(hinted_as_next(&*notices).await <= early - late);
}
