//! Every store keeps the contract.

use std::sync::Arc;

use leasehold::store::conformance;
use leasehold::store::memory::Memory;
use leasehold::store::sqlite::Sqlite;

#[tokio::test]
async fn memory_keeps_the_contract() {
    conformance::check(Arc::new(Memory::new())).await;
}

#[tokio::test]
async fn sqlite_keeps_the_contract() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Sqlite::open(folder.path().join("leases.sqlite")).await;
    conformance::check(Arc::new(store.expect("it opens"))).await;
}
