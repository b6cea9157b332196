//! Acquires the lease: a first contact with a short limit, then the wait, which can be long.

use std::time::Duration;

use leasehold::clock::{Clock, Instant, Monotonic};
use leasehold::store::Held;
use leasehold::{
    Attempt, Client, ClientBuilder, Error, ErrorKind, Lease, LeaseRequest, OutagePolicy,
};

use super::plan::{Patience, Plan};
use super::progress;
use super::signals::Signals;
use crate::exit::{Exit, Failure};
use crate::say;
use crate::store::{Choice, first_contact};

/// Connects to the store.
pub async fn connect(plan: &Plan, signals: &mut Signals) -> Result<Client, Failure> {
    let settings = |builder: ClientBuilder| {
        let builder = builder.ttl(plan.timing.ttl()).margin(plan.timing.margin());
        let builder = match &plan.label {
            Some(label) => builder.label(label.as_str()),
            None => builder,
        };
        match &plan.group {
            Some(group) => builder.group(group.as_str()),
            None => builder,
        }
    };
    let connecting = plan
        .store
        .connect(Some(&plan.name), plan.connect_timeout, settings);
    let client = or_signal(signals, connecting).await?;
    if plan.store == Choice::Default {
        say::note(
            "store",
            format_args!(
                "no store named: leases are kept for this user in {}",
                client.store().location()
            ),
        );
    }
    Ok(client)
}

/// Acquires the lease, and waits for it as long as the plan says.
pub async fn acquire(
    client: &Client,
    plan: &Plan,
    signals: &mut Signals,
) -> Result<Lease, Failure> {
    let began = Monotonic.now();
    let first = first_contact(plan.connect_timeout, request(client, plan).try_acquire());
    let held = match or_signal(signals, first).await? {
        Attempt::Acquired(lease) => return Ok(lease),
        Attempt::Held(held) => held,
    };
    if plan.patience == Patience::None {
        return Err(plan.held(held));
    }
    say::note(
        "waiting",
        format_args!("waiting for name={}: {held}", plan.name),
    );
    let waiting = async {
        tokio::select! {
            result = wait(client, plan, began) => result,
            never = progress::show(client, plan) => match never {},
        }
    };
    or_signal(signals, waiting).await
}

fn request(client: &Client, plan: &Plan) -> LeaseRequest {
    let mut request = client.request(plan.name.as_str()).order(plan.order);
    if let Some(floor) = plan.floor {
        request = request.floor(floor);
    }
    if let Some(most) = plan.max_hold {
        request = request.max_hold(most);
    }
    request
}

/// Waits for the lease through outages, within the limit of the plan.
async fn wait(client: &Client, plan: &Plan, began: Instant) -> Result<Lease, Failure> {
    let request = request(client, plan).on_outage(OutagePolicy::WaitOut);
    let result = match left(plan, began) {
        Some(left) => request.acquire_within(left).await,
        None => request.acquire().await,
    };
    result.map_err(|error| match error.kind() {
        ErrorKind::TimedOut if is_held(&error) => plan.held(format!("{error:#}")),
        _ if error.is_transient() => plan.not_acquired(format!("{error:#}")),
        _ => error.into(),
    })
}

/// Returns whether the limit ran out while another holder had the name, and not while the store was unavailable.
fn is_held(error: &Error) -> bool {
    let source = std::error::Error::source(error);
    source.is_some_and(|source| source.is::<Held>())
}

/// Returns the time left of the limit, if there is one.
fn left(plan: &Plan, began: Instant) -> Option<Duration> {
    match plan.patience {
        Patience::None => Some(Duration::ZERO),
        Patience::Limited(limit) => Some(limit.saturating_sub(Monotonic.now().since(began))),
        Patience::Unlimited => None,
    }
}

/// Runs the work, unless a signal ends it first.
async fn or_signal<T>(
    signals: &mut Signals,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        result = work => result,
        signal = signals.ending() => Err(Failure::new(
            Exit::Signal(signal.as_raw()),
            format!("ended while waiting signal={}", signal.as_raw()),
        )),
    }
}
