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
        &format!("ALTER DATABASE {name} SET idle_session_timeout = '30s'"),
    ] {
        administrator.batch_execute(sql).await.expect(sql);
    }
    // Settings of a database hold for connections that are made afterwards.
    let told = told(&*open(&database.url())).await;
    for word in ["UNLOGGED", "timeline", "idle_session_timeout is 30 s"] {
        assert!(told.contains(word), "{word}: {told}");
    }
}

#[tokio::test]
async fn a_role_that_does_not_see_other_transactions_is_told_so() {
    let (database, store) = store().await;
    let ids = async |store: &dyn Store| {
        let hazards = store.hazards(LIMIT).await.expect("answered").into_iter();
        hazards.map(|hazard| hazard.id).collect::<Vec<_>>()
    };
    let unseen = "postgres-transactions-unseen";
    assert!(!ids(&*store).await.contains(&unseen));
    let role = format!("blind_{}", database.name());
    let rights = format!(
        "CREATE ROLE {role} LOGIN;
        GRANT USAGE ON SCHEMA leasehold TO {role};
        GRANT SELECT ON ALL TABLES IN SCHEMA leasehold TO {role}"
    );
    let administrator = database.connect().await;
    administrator.batch_execute(&rights).await.expect("granted");
    let blind = open(&database.url_as(&role));
    assert!(ids(&*blind).await.contains(&unseen));
    let grant = format!("GRANT pg_read_all_stats TO {role}");
    administrator.batch_execute(&grant).await.expect("granted");
    assert!(!ids(&*blind).await.contains(&unseen));
}
