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
        let (event, what) = match (contact.answer(evicting).await?, how) {
            (false, _) => {
                let what = format!("no holder to evict; a permit has its own name, such as {name}#1");
                ("free", what)
            }
            (true, Eviction::Now) => (
                "evicted",
                "evicted, and free at once: the holder may continue its work until its next renewal, a third of its ttl".into(),
            ),
            (true, _) => (
                "evicted",
                "evicted: the holder is told at its next renewal, and the name is free when its ttl is over".into(),
            ),
        };
        say::note(event, format_args!("{what} name={name}"));
        Ok(Exit::Success)
    })
}
