//! `leasehold wait`: blocks until a name is free, without taking it.

use std::time::Duration;

use leasehold::Name;
use leasehold::clock::{Clock, Instant, Monotonic};
use leasehold::store::{Held, Store};
use tokio::sync::watch::{self, Sender};

use crate::args;
use crate::exit::{Exit, Failure};
use crate::pool::PoolOptions;
use crate::row::in_words;
use crate::span::Span;
use crate::waiting::{self, Outputs, Report};

/// Maximum time for an answer of the store after the first contact.
const LIMIT: Duration = Duration::from_secs(5);

/// Minimum time for an answer if less is left of the wait.
const LEAST_LIMIT: Duration = Duration::from_millis(50);

/// The pause between two requests, because a holder may release at any moment.
const PAUSE: Duration = Duration::from_millis(500);

/// Waits until no holder has the name, or until the limit of the wait.
pub fn main(arguments: args::WaitOptions) -> Result<Exit, Failure> {
    let name = Name::new(&arguments.name)?;
    let limit = arguments.wait.as_ref();
    let began = Monotonic.now();
    crate::block_on(async {
        let contact = arguments.store.connect(Some(&name), limit).await?;
        let store = contact.client.store();
        let wanted = arguments.pool;
        let looking = contact.answer(async |left| wanted.taken(&**store, &name, left).await);
        let Some(held) = looking.await? else {
            return Ok(Exit::Success);
        };
        let (reports, reported) = watch::channel(None);
        let outputs = Outputs::default();
        tokio::select! {
            end = until_free(&**store, &name, &wanted, held.clone(), limit, began, reports) => end?,
            never = waiting::announce(name.as_str(), held, reported, &outputs) => match never {},
        }
        outputs.ended();
        Ok(Exit::Success)
    })
}

/// Polls until the name is free. During an outage the last known holder is assumed to have it still.
async fn until_free(
    store: &dyn Store,
    name: &Name,
    wanted: &PoolOptions,
    mut held: Held,
    limit: Option<&Span>,
    began: Instant,
    reports: Sender<Report>,
) -> Result<(), Failure> {
    let mut outage = None;
    loop {
        let left = limit.map(|limit| limit.time.saturating_sub(Monotonic.now().since(began)));
        let left = left.unwrap_or(LIMIT);
        if left.is_zero() {
            let why = outage.unwrap_or_else(|| in_words(&held));
            let message = format!("{name} is still taken: {why}");
            return Err(Failure::new(Exit::NotAcquired, message));
        }
        let pause = left.min(PAUSE).min(held.remaining.unwrap_or(PAUSE));
        // Never zero: a lease that has run out may still be shown for a moment.
        let pause = pause.max(Duration::from_millis(5));
        Monotonic.sleep_until(Monotonic.now().after(pause)).await;
        let limit = left.saturating_sub(pause).clamp(LEAST_LIMIT, LIMIT);
        let report = match wanted.taken(store, name, limit).await {
            Ok(None) => return Ok(()),
            Ok(Some(now)) => Ok(now),
            Err(error) if error.is_transient() => Err(error),
            Err(error) => return Err(error.into()),
        };
        match &report {
            Ok(now) => (held, outage) = (now.clone(), None),
            Err(error) => {
                held.remaining = None;
                outage = Some(format!("{error:#}"));
            }
        }
        reports.send_replace(Some(report));
    }
}
