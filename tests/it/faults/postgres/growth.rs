//! The tables do not grow with renewals.

use std::time::Duration;

use leasehold::store::Outcome;

use crate::harness::asking::{claim, granted, renewal};
use crate::harness::postgres_server::PostgresServer;
use crate::harness::times::{LIMIT, LONG};
use crate::postgres::{open, set_up};

const LEASES: usize = 5_120;
const ROUNDS: usize = 30;

#[tokio::test]
async fn thousands_of_renewals_leave_the_table_as_large_as_it_was() {
    let server = PostgresServer::start(&["fsync=off", "autovacuum_naptime=1s"]).await;
    let database = server.database_named("postgres");
    set_up(&database.url()).await;
    let store = open(&database.url());
    let mut claims: Vec<_> = (0..LEASES)
        .map(|index| claim(&format!("n{index}"), LONG * 10))
        .collect();
    for claim in &claims {
        granted(&*store, claim).await;
    }
    let client = database.connect().await;
    let number = async |sql: &str| {
        client
            .query_one(sql, &[])
            .await
            .expect(sql)
            .get::<_, i64>(0)
    };
    let size = "SELECT pg_relation_size('leasehold.lease')";
    let before = number(size).await;
    for round in 0..ROUNDS {
        fastrand::shuffle(&mut claims);
        for batch in claims.chunks(256) {
            let renewals: Vec<_> = batch.iter().map(renewal).collect();
            let outcomes = store.renew(&renewals, LIMIT).await.outcomes;
            let renewed = outcomes
                .iter()
                .filter(|outcome| matches!(outcome, Outcome::Renewed));
            assert_eq!(renewed.count(), batch.len());
        }
        println!("round={round} bytes={}", number(size).await);
    }
    let after = number(size).await;
    // Were no room used again, it would be thirty times as large. On a busy machine some pages are added before the room
    // in others is free again.
    assert!(after <= before * 2, "{before} bytes grew to {after}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let share = number(
        "SELECT 100 * n_tup_hot_upd / n_tup_upd FROM pg_stat_user_tables WHERE relid = 'leasehold.lease'::regclass",
    )
    .await;
    assert!(share >= 95, "{share} % of the updates were HOT");
    println!("bytes before={before} after={after} hot_percent={share}");
}
