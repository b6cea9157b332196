//! What weakens the promises is told of a real server.

use leasehold::store::Store;

use super::{open, store};
use crate::harness::times::LIMIT;

#[tokio::test]
async fn a_server_that_does_not_flush_and_a_table_that_a_crash_empties_are_told() {
    let (database, store) = store().await;
    let told = async |store: &dyn Store| {
        let hazards = store.hazards(LIMIT).await.expect("answered");
        format!("{hazards:?}")
    };
    assert!(
        told(&*store).await.contains("fsync is off"),
        "{}",
        told(&*store).await
    );
    assert!(
        !told(&*store).await.contains("UNLOGGED"),
        "{}",
        told(&*store).await
    );
    let administrator = database.connect().await;
    let name = database.name();
    for sql in [
        "ALTER TABLE leasehold.lease SET UNLOGGED",
        "UPDATE leasehold.lineage SET origin = NULL",
        &format!("ALTER DATABASE {name} SET synchronous_commit = off"),
        &format!("ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'"),
    ] {
        administrator.batch_execute(sql).await.expect(sql);
    }
    // Settings of a database hold for connections that are made afterwards.
    let told = told(&*open(&database.url())).await;
    for word in ["UNLOGGED", "timeline", "synchronous_commit is off", "40001"] {
        assert!(told.contains(word), "{word}: {told}");
    }
}
