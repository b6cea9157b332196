//! Tables that an `init` of the version before made, and its clients beside those of this one: leases exclude each other,
//! turns do not hold between the two.

use std::sync::Arc;

use leasehold::store::{Outcome, Release, Store};

use super::functions::{Functions, LONG_MS};
use super::{open, set_up};
use crate::harness::asking::{ahead, asked, claim, granted, held, queued, released, renewed};
use crate::harness::postgres_server::{Database, PostgresServer};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::until;

/// The calls of a client of the version before.
struct Before(Functions);

impl Before {
    /// The outcome of a claim, and the holder that it names. With a client, it waits.
    async fn acquire(&self, holder: &str, client: Option<&str>) -> (String, Option<String>) {
        let client = client.map_or("NULL".into(), |client| format!("'{client}'"));
        let sql = format!(
            "SELECT outcome, holder FROM leasehold.acquire_1('a', '{holder}', {LONG_MS}, '{{}}', 0, {client}, 0, 9000, 2000)"
        );
        let row = self.0.run(&sql).await.expect("answered").remove(0);
        (row.get(0), row.get(1))
    }

    async fn release(&self, holder: &str) -> String {
        let sql = format!("SELECT outcome FROM leasehold.release_1('a', '{holder}', 0, 2000)");
        self.0.run(&sql).await.expect("answered")[0].get(0)
    }
}

/// A database with the tables of before, its client, and a store of today, which finds none of its functions.
async fn before() -> (Database, Before, Arc<dyn Store>) {
    let database = PostgresServer::database().await;
    let made = database.connect().await;
    let made = made.batch_execute(include_str!("before.sql")).await;
    made.expect("made");
    let before = Before(Functions::of(&database, "leasehold").await);
    let store = open(&database.url());
    (database, before, store)
}

#[tokio::test]
async fn an_init_over_the_tables_of_before_keeps_leases_and_those_who_wait() {
    let (database, before, store) = before().await;
    assert_eq!(before.acquire("h", None).await.0, "granted");
    assert_eq!(before.acquire("c-1", Some("c")).await.0, "held");
    let refused = asked(&*store, &claim("a", LONG), LIMIT).await;
    let refused = refused.expect_err("a function of today");
    assert!(refused.to_string().contains("leasehold init"), "{refused}");
    for _ in 0..2 {
        set_up(&database.url()).await;
    }
    // A place without a claim is passed over.
    let waits = queued("a", LONG);
    assert_eq!(ahead(&*store, &waits).await, Some(0));
    assert_eq!(before.0.renew(&[("a", "h")]).await, "y");
    assert_eq!(before.0.release("a", "h").await.0, "released");
    let row = before.0.row("a").await;
    assert_eq!(row, Some((0, waits.holder.to_string())));
    released(&*store, &waits).await;
    assert_eq!(before.acquire("c-1", Some("c")).await.0, "granted");
    held(&*store, &waits).await;
}

#[tokio::test]
async fn clients_of_before_and_of_today_exclude_each_other() {
    let (database, before, store) = before().await;
    set_up(&database.url()).await;
    let (mine, waits) = (claim("a", LONG), queued("a", LONG));
    granted(&*store, &mine).await;
    assert_eq!(before.acquire("h", None).await.0, "held");
    assert_eq!(before.acquire("h", Some("c")).await.0, "held");
    held(&*store, &waits).await;
    assert!(matches!(renewed(&*store, &mine).await, Outcome::Renewed));
    assert_eq!(before.release("h").await, "not_held");
    assert_eq!(released(&*store, &mine).await, Release::Released);
    // The one that joined first is passed over.
    let by = Some(waits.holder.to_string());
    assert_eq!(before.acquire("h", Some("c")).await, ("held".into(), by));
    assert_eq!(released(&*store, &waits).await, Release::Released);
    assert_eq!(before.acquire("h", Some("c")).await.0, "granted");
    held(&*store, &waits).await;
    // It keeps the name for the first client for a moment, which is no grant.
    assert_eq!(before.release("h").await, "released");
    assert_eq!(before.acquire("h", Some("c")).await.0, "held");
    until("the end of what it was offered", async || {
        let answer = asked(&*store, &waits, LIMIT).await.expect("answered");
        matches!(answer, leasehold::store::Answer::Granted(_)).then_some(())
    })
    .await;
    assert_eq!(before.acquire("h", None).await.0, "held");
}
