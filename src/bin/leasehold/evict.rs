//! `leasehold evict`: evicts the holder of a name, for an operator.

use leasehold::Name;
use leasehold::store::{Eviction, HeldState, Store};

use crate::args;
use crate::exit::{Exit, Failure};
use crate::pool::permits_of;
use crate::say;

/// Evicts the holder. Exits 1 if there is none.
pub fn main(arguments: args::EvictOptions) -> Result<Exit, Failure> {
    let name = Name::new(&arguments.name)?;
    let how = match arguments.now {
        true => Eviction::Now,
        false => Eviction::Marked,
    };
    crate::block_on(async {
        let contact = arguments.store.connect(Some(&name), None).await?;
        let store = contact.client.store();
        let before = contact.answer(async |left| store.inspect(&name, left).await);
        let is_kept = before
            .await?
            .is_some_and(|held| held.state == HeldState::Kept);
        let evicting = contact.answer(async |left| store.evict(&name, how, left).await);
        if !evicting.await? {
            let what = match is_kept {
                true => "no holder to evict: its job is done, and the name is kept taken; --now frees it".into(),
                false => no_holder(&**store, &name).await,
            };
            say::note("free", format_args!("{what} name={name}"));
            return Ok(Exit::Free);
        }
        let what = match arguments.now {
            true if is_kept => "free: it was kept taken after its job",
            true => {
                "evicted, and free at once: the holder may continue its work until its next renewal, a third of its ttl"
            }
            false => {
                "evicted: the holder is told at its next renewal, and the name is free when its ttl is over"
            }
        };
        say::note("evicted", format_args!("{what} name={name}"));
        Ok(Exit::Success)
    })
}

/// Reports that no holder has the name itself, and which of its permits are held: each has to be evicted by its own
/// name.
async fn no_holder(store: &dyn Store, name: &Name) -> String {
    let permits = permits_of(store, name).await;
    let names: Vec<_> = permits.iter().map(|held| held.name.as_str()).collect();
    match names.is_empty() {
        true => "no holder to evict".into(),
        false => format!(
            "no holder of the name itself to evict, but of its permits: {}",
            names.join(" ")
        ),
    }
}
