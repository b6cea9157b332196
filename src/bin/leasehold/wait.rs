//! `leasehold wait`: until a name is free, without taking it.

use std::time::Duration;

use leasehold::Name;
use leasehold::clock::{Clock, Monotonic};

use crate::args;
use crate::exit::{Exit, Failure};
use crate::say;
use crate::store::{Choice, first_contact};

/// How long the store may take to answer once it was reached.
const LIMIT: Duration = Duration::from_secs(10);

/// How often to look, since a holder may release at any moment.
const PAUSE: Duration = Duration::from_millis(500);

/// Waits.
pub fn main(arguments: args::Wait) -> Result<Exit, Failure> {
    let name = Name::new(&arguments.name)?;
    let store = Choice::of(&arguments.store)?;
    let began = Monotonic.now();
    crate::block_on(async {
        let contact = arguments.store.connect_timeout;
        let client = store.connect(contact, |builder| builder).await?;
        let mut is_said = false;
        let mut limit = contact;
        while let Some(held) = first_contact(limit, client.store().inspect(&name, limit)).await? {
            limit = LIMIT;
            if !is_said {
                is_said = true;
                say::note("waiting", format_args!("waiting for name={name}: {held}"));
            }
            let left = match arguments.wait {
                Some(limit) => limit.saturating_sub(Monotonic.now().since(began)),
                None => PAUSE,
            };
            if left.is_zero() {
                let message = format!("still taken: {held} name={name}");
                return Err(Failure::new(Exit::NotAcquired, message));
            }
            let pause = left.min(PAUSE).min(held.remaining.unwrap_or(PAUSE));
            // Never nothing: what has run out may be shown for a moment yet.
            let pause = pause.max(Duration::from_millis(5));
            Monotonic.sleep_until(Monotonic.now().after(pause)).await;
        }
        Ok(Exit::Success)
    })
}
