//! Every store keeps the contract.

use std::sync::Arc;

use leasehold::store::conformance;
use leasehold::store::memory::Memory;

#[tokio::test]
async fn memory_keeps_the_contract() {
    conformance::check(Arc::new(Memory::new())).await;
}
