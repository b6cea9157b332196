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
        let evicting = contact.client.store().evict(&name, how, contact.left());
        if !contact.answer(evicting).await? {
            say::note(
                "free",
                format_args!(
                    "no holder to evict name={name}; a permit is evicted by its own name, such as {name}#1"
                ),
            );
        } else if arguments.now {
            say::note(
                "evicted",
                format_args!(
                    "evicted, and free at once: the holder may continue its work until its next renewal, a third of its ttl name={name}"
                ),
            );
        } else {
            say::note(
                "evicted",
                format_args!(
                    "evicted: the holder is told at its next renewal, and the name is free when its ttl is over name={name}"
                ),
            );
        }
        Ok(Exit::Success)
    })
}
