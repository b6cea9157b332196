//! `leasehold hold`: holds a lease for the program that started it, in any language, and reports each change to it.
//!
//! It is a run without a job: the same options, the same way to the lease, the same exit codes. There is no guardian,
//! because nothing here could end the work of the parent: it compares the last deadline with the boot clock itself.

mod events;
mod input;

use leasehold::clock::{Boottime, Clock, Monotonic, Timing};
use leasehold::{Attempt, Lease};

#[cfg(all(test, feature = "export"))]
pub use events::Event;
use events::{Events, Kind};
use input::{Command, Input};

use crate::args;
use crate::choice::Contact;
use crate::exit::{Exit, Failure};
use crate::export::JobMetrics;
use crate::row::in_words;
use crate::run::acquire::{self, Asking};
use crate::run::plan::Wanted;
use crate::run::release::{RELEASE_LIMIT, release};
use crate::run::signals::Signals;
use crate::run::supervise::due;
use crate::run::{GIVE_BACK_LIMIT, or_exit};
use crate::say;
use crate::waiting::Outputs;

/// Holds the lease until it is lost, or the parent or a signal says so.
pub fn main(arguments: args::HoldOptions) -> Result<Exit, Failure> {
    // First: a parent that ends from now on is seen.
    let input = Input::listen()?;
    say::set_loudness(arguments.lease.loudness());
    let wanted = Wanted::new(arguments.lease)?;
    let mut events = Events::start(&wanted)?;
    let result = crate::block_on(async {
        // Before there is a client, so that nothing is missed.
        let metrics = JobMetrics::start(&wanted.options, &arguments.metrics).await?;
        let result = hold(&wanted, &mut events, input, metrics.as_ref()).await;
        if let Some(metrics) = metrics {
            metrics.finish(&result).await;
        }
        result
    });
    if let Err(failure) = &result {
        events.failed(failure);
    }
    events.flush();
    result
}

async fn hold(
    wanted: &Wanted,
    events: &mut Events,
    mut input: Input,
    metrics: Option<&JobMetrics>,
) -> Result<Exit, Failure> {
    let mut signals = Signals::new()?;
    let contact = tokio::select! {
        contact = acquire::connect(wanted, &mut signals) => contact?,
        why = input.end() => return Err(wanted.not_acquired(why)),
    };
    let acquired = tokio::select! {
        acquired = acquire(wanted, &contact, events, &mut signals, metrics) => acquired,
        why = input.end() => Err(wanted.not_acquired(why)),
    };
    let mut closing = GIVE_BACK_LIMIT;
    let result = match acquired {
        Ok(lease) => {
            let began = Boottime.now();
            if let Some(metrics) = metrics {
                metrics.acquired();
            }
            let result = until_its_end(&lease, wanted, events, &mut input, &mut signals);
            let result = or_exit(result).await;
            let ended = Boottime.now();
            let held_for = ended.since(began);
            if let Some(metrics) = metrics {
                metrics.ended(held_for);
            }
            let is_released = release(lease, wanted, held_for, &contact, &mut signals).await;
            match is_released {
                _ if result == Exit::Lost => {}
                true => events.tell(Kind::Released),
                false => events.tell(Kind::ReleaseUnanswered),
            }
            let left = RELEASE_LIMIT.saturating_sub(Boottime.now().since(ended));
            closing = left.max(GIVE_BACK_LIMIT);
            Ok(result)
        }
        Err(failure) => Err(failure),
    };
    let _ = tokio::time::timeout(closing, contact.client.shutdown(closing)).await;
    result
}

/// Acquires the lease, as a run does.
async fn acquire(
    wanted: &Wanted,
    contact: &Contact,
    events: &mut Events,
    signals: &mut Signals,
    metrics: Option<&JobMetrics>,
) -> Result<Lease, Failure> {
    let asking = Asking {
        contact,
        wanted,
        outputs: Outputs {
            metrics,
            ..Outputs::default()
        },
        began: Monotonic.now(),
    };
    match asking.once(signals).await? {
        Attempt::Acquired(lease) => Ok(lease),
        Attempt::Held(held) => {
            if !wanted.options.nonblock {
                events.waiting(in_words(&held));
            }
            asking.wait(signals, *held).await
        }
    }
}

/// Renews the lease until it is to be released, and reports each change.
async fn until_its_end(
    lease: &Lease,
    wanted: &Wanted,
    events: &mut Events,
    input: &mut Input,
    signals: &mut Signals,
) -> Exit {
    let clock = lease.clock().clone();
    let late_after = Timing::LATE_AFTER.of(wanted.timing.ttl());
    let Some(mut term) = lease.term() else {
        return lost(lease, events).await;
    };
    events.held(lease, &term);
    // When a missing renewal is late, which is reported once.
    let mut late_at = Some(term.sent_at().after(late_after));
    loop {
        tokio::select! {
            biased;
            renewed = lease.renewed_past(term.deadline()) => match renewed {
                Some(renewed) => {
                    term = renewed;
                    late_at = Some(term.sent_at().after(late_after));
                    events.held(lease, &term);
                }
                None => return lost(lease, events).await,
            },
            signal = signals.ending() => return Exit::Told(signal.as_raw()),
            () = due(&*clock, late_at) => {
                late_at = None;
                events.tell(Kind::AtRisk);
            }
            // Last, because a program may report without end.
            command = input.next() => match command {
                Command::Progress => lease.progress(),
                Command::End(_) => return Exit::Success,
            },
        }
    }
}

/// Reports the loss.
async fn lost(lease: &Lease, events: &mut Events) -> Exit {
    let reason = lease.lost().await;
    events.lost(reason);
    let (name, token) = (lease.name(), lease.token());
    say::fault(
        "lost",
        format_args!("lease lost reason={reason} name={name} token={token}"),
    );
    Exit::Lost
}
