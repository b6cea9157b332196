//! Behind PgBouncer in transaction mode, where every statement may meet another server connection.

use leasehold::store::conformance;

use super::{open, set_up};
use crate::harness::asking::{claim, granted, renewed};
use crate::harness::pgbouncer::PgBouncer;
use crate::harness::postgres_server::PostgresServer;
use crate::harness::times::LONG;

#[tokio::test]
async fn a_transaction_pooler_keeps_the_contract_and_its_silence_about_notices_is_found_out() {
    let database = PostgresServer::database().await;
    let pooler = PgBouncer::before(&database, 3).await;
    set_up(&pooler.url()).await;
    let store = open(&pooler.url());
    // It swallows LISTEN.
    conformance::check_without_notices(store).await;
}

#[tokio::test]
async fn a_lease_outlives_its_pooler() {
    let database = PostgresServer::database().await;
    let pooler = PgBouncer::before(&database, 1).await;
    set_up(&pooler.url()).await;
    let store = open(&pooler.url());
    let claim = claim("a", LONG);
    granted(&*store, &claim).await;
    let pooler = pooler.again(&database).await;
    assert!(matches!(
        renewed(&*store, &claim).await,
        leasehold::store::Outcome::Renewed
    ));
    drop(pooler);
}
