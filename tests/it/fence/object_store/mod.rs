//! The fence in an object store: in memory, and on moto. Other servers are in `faults::object_store`.

mod answers;
pub(crate) mod faulty;
mod in_memory;
mod lost_replies;
mod on_moto;
mod parts;
pub(crate) mod registers;
pub(crate) mod tag_alone;

use std::sync::Arc;

use leasehold::fence::object_store::Fence;
use object_store::ObjectStore;
use object_store::memory::InMemory;

fn fence(store: &Arc<InMemory>) -> Fence {
    let store: Arc<dyn ObjectStore> = store.clone();
    Fence::new(store, "ledger/total").expect("a valid path")
}

/// Adds one to the number that is the content.
fn one_more(total: &[u8]) -> String {
    let total = std::str::from_utf8(total).expect("text");
    let total: u64 = match total {
        "" => 0,
        total => total.parse().expect("a number"),
    };
    (total + 1).to_string()
}
