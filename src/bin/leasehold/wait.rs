//! `leasehold wait`: blocks until a name is free, without taking it.

use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};
use leasehold::store::{Held, Store};
use leasehold::{Error, Name};

use crate::args;
use crate::config::StoreSetting;
use crate::exit::{Exit, Failure};
use crate::row::in_words;
use crate::say;
use crate::store::Choice;

/// How long the store may take to answer after the first contact.
const LIMIT: Duration = Duration::from_secs(10);

/// The least time that the store gets to answer if less is left of the wait.
const LEAST_LIMIT: Duration = Duration::from_millis(50);

/// The pause between two requests, because a holder may release at any moment.
const PAUSE: Duration = Duration::from_millis(500);

/// Waits until no holder has the name, or until the limit of the wait.
pub fn main(
    arguments: args::WaitOptions,
    configured: Option<StoreSetting>,
) -> Result<Exit, Failure> {
    let name = Name::new(&arguments.name)?;
    let store = Choice::of(&arguments.store, configured)?;
    let began = Monotonic.now();
    crate::block_on(async {
        let contact = arguments.store.connect_timeout;
        let contact = store
            .connect(Some(&name), contact, |builder| builder)
            .await?;
        let store = contact.client.store();
        let looking = store.inspect(&name, contact.left());
        let mut holder = contact.answer(looking).await?;
        if let Some(held) = &holder {
            say::note(
                "waiting",
                format_args!("waiting for {name}: {}", in_words(held)),
            );
        }
        while let Some(held) = holder {
            let left = match &arguments.wait {
                Some(limit) => limit.time.saturating_sub(Monotonic.now().since(began)),
                None => LIMIT,
            };
            if left.is_zero() {
                let message = format!("{name} is still taken: {}", in_words(&held));
                return Err(Failure::new(Exit::NotAcquired, message));
            }
            let pause = left.min(PAUSE).min(held.remaining.unwrap_or(PAUSE));
            // Never zero: a lease that has run out may still be shown for a moment.
            let pause = pause.max(Duration::from_millis(5));
            Monotonic.sleep_until(Monotonic.now().after(pause)).await;
            let limit = left.saturating_sub(pause).clamp(LEAST_LIMIT, LIMIT);
            holder = look_again(&**store, held, limit).await?;
        }
        Ok(Exit::Success)
    })
}

/// Returns the current holder of the name. During an outage the last known holder is assumed to have it still.
async fn look_again(store: &dyn Store, last: Held, limit: Duration) -> Result<Option<Held>, Error> {
    match store.inspect(&last.name, limit).await {
        Err(error) if error.is_transient() => {
            let mut held = last;
            held.remaining = None;
            Ok(Some(held))
        }
        answer => answer,
    }
}
