//! `leasehold evict`: evicts the holder of a name, for an operator.

use leasehold::Name;
use leasehold::store::Eviction;

use crate::args;
use crate::exit::{Exit, Failure};
use crate::say;

/// Evicts the holder, if there is one.
pub fn main(arguments: args::EvictOptions) -> Result<Exit, Failure> {
    let name = Name::new(&arguments.name)?;
    let how = match arguments.now {
        true => Eviction::Now,
        false => Eviction::Marked,
    };
    crate::block_on(async {
        let contact = arguments.store.connect(Some(&name), None).await?;
        let store = contact.client.store();
        let evicting = contact.answer(async |left| store.evict(&name, how, left).await);
        let is_evicted = evicting.await?;
        let none = format!("no holder to evict; a permit has its own name, such as {name}#1");
        let what = match is_evicted {
            false => &*none,
            true if arguments.now => {
                "evicted, and free at once: the holder may continue its work until its next renewal, a third of its ttl"
            }
            true => {
                "evicted: the holder is told at its next renewal, and the name is free when its ttl is over"
            }
        };
        let event = if is_evicted { "evicted" } else { "free" };
        say::note(event, format_args!("{what} name={name}"));
        Ok(Exit::Success)
    })
}
