//! Acquires the lease: a first contact with a short limit, then the wait, which can be long.

use std::cell::Cell;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::clock::{Clock, Instant, Monotonic};
use leasehold::store::Held;
use leasehold::{
    Attempt, Client, ClientBuilder, Error, ErrorKind, Lease, LeaseRequest, OutagePolicy,
};
use tokio::sync::watch;

use super::plan::Wanted;
use super::signals::Signals;
use crate::choice::{Choice, Contact};
use crate::exit::{Exit, Failure};
use crate::process;
use crate::row;
use crate::say;
use crate::status_file::{self, Outer};
use crate::waiting::{self, Outputs};

/// The longest pause before the command is run again; up to half of it is random.
const AGAIN: Duration = Duration::from_secs(1);

/// Connects to the store.
pub async fn connect(wanted: &Wanted, signals: &mut Signals) -> Result<Contact, Failure> {
    let settings = |builder: ClientBuilder| {
        let builder = builder
            .ttl(wanted.timing.ttl())
            .margin(wanted.timing.margin());
        let (label, group) = (&wanted.options.label, &wanted.options.group);
        let builder = match label {
            Some(label) => builder.label(label.as_str()),
            None => builder,
        };
        match group {
            Some(group) => builder.group(group.as_str()),
            None => builder,
        }
    };
    let limit = wanted.options.store.contact(wanted.options.wait.as_ref());
    let connecting = wanted.store.connect(Some(&wanted.name), limit, settings);
    let contact = or_signal(signals, connecting).await?;
    if wanted.store == Choice::Default {
        let message = format!(
            "no store named: this excludes only other runs of this user on this machine, by leases in {}",
            contact.client.store().location()
        );
        // In a crontab or a unit this is usually a mistake, so `--quiet` does not hide it there.
        match say::width() {
            Some(_) => say::note("store", message),
            None => say::fault("store", message),
        }
    }
    Ok(contact)
}

/// A requested lease.
pub struct Asking<'a> {
    pub contact: &'a Contact,
    pub wanted: &'a Wanted,
    pub outputs: Outputs<'a>,
    pub began: Instant,
}

impl Asking<'_> {
    /// Asks once, and repeats while the store cannot answer, also with `--nonblock`: that option is about a held name,
    /// not about a store that restarts.
    pub async fn once(&self, signals: &mut Signals) -> Result<Attempt, Failure> {
        let has_failed = Cell::new(false);
        let first = self.contact.answer(async |_| {
            let answer = request(&self.contact.client, self.wanted)
                .try_acquire()
                .await;
            if let Ok(Attempt::Held(held)) = &answer
                && has_failed.get()
                && is_of_this_process(held)
            {
                let what = "acquire failed: an earlier request was granted, and is given back";
                return Err(Error::new(ErrorKind::Unavailable, what));
            }
            has_failed.set(answer.is_err());
            answer
        });
        or_signal(signals, first).await
    }

    /// Waits for a lease that another holder has, as long as the plan says.
    pub async fn wait(self, signals: &mut Signals, held: Held) -> Result<Lease, Failure> {
        let Self {
            wanted, outputs, ..
        } = self;
        if wanted.options.nonblock {
            return Err(wanted.held(&held));
        }
        refuse_own(&held, wanted)?;
        let (reports, reported) = watch::channel(None);
        let request = request(&self.contact.client, wanted).report_to(reports);
        let waiting = async {
            let announcing = waiting::announce(wanted.name.as_str(), held, reported, &outputs);
            tokio::select! {
                result = wait(request, wanted, self.began) => result,
                never = announcing => match never {},
            }
        };
        let result = or_signal(signals, waiting).await;
        if result.is_ok() {
            outputs.ended();
        }
        result
    }
}

/// Refuses names that this run could only wait for until its own end: one that an outer run holds; one that an outer
/// run shares, if this run waits for a writer; and a pool whose permits are all held by outer runs.
fn refuse_own(held: &Held, wanted: &Wanted) -> Result<(), Failure> {
    let is_in_job = std::env::var_os(status_file::VARIABLE).is_some();
    let (pid, pool) = (held.info.pid, &wanted.options.pool);
    let name = wanted.name.as_str();
    let is_of_pool =
        |run: &&Outer| [Some(&*run.name), row::pool(&run.name, run.permit)].contains(&Some(name));
    let mut own = wanted.outer.iter().filter(is_of_pool);
    let is_kept_out = match pool.permits {
        Some(count) => own.clone().count() >= count.into(),
        None => pool.exclusive || pool.shared && held.name == wanted.name,
    };
    let refused = |name: &str, pid| {
        Err(wanted.not_acquired(format!(
            "this run is part of the job that has {name} (pid {pid}), and could only wait for its own end"
        )))
    };
    if let Some(run) = own.next().filter(|_| is_kept_out) {
        return refused(&run.name, run.pid);
    }
    // Another run's permit may be free sooner.
    let is_alone = pool.permits.is_none_or(|count| count == 1);
    if is_alone && is_in_job && process::is_this_host(&held.info.host) && process::is_ancestor(pid)
    {
        return refused("it", pid);
    }
    Ok(())
}

/// Returns whether this process already holds the name, by a request whose answer was lost.
fn is_of_this_process(held: &Held) -> bool {
    held.info.pid == std::process::id() && process::is_this_host(&held.info.host)
}

fn request(client: &Client, wanted: &Wanted) -> LeaseRequest {
    let options = &wanted.options;
    let mut request = options.pool.of(client.request(wanted.name.as_str()));
    // The tool ends a job some time before the deadline, so a job begins with a whole ttl.
    request = request.confirmed().on_outage(options.on_outage);
    if let Some(least) = &options.hold_at_least {
        request = request.hold_at_least(least.time);
    }
    if let Some(least) = options.min_token {
        request = request.min_token(least);
    }
    if let Some(most) = &options.max_hold {
        request = request.max_hold(most.time);
    }
    if let Some(most) = &options.progress_within {
        request = request.progress_within(most.time);
    }
    request
}

/// Waits for the lease, within the limit of the request.
async fn wait(request: LeaseRequest, wanted: &Wanted, began: Instant) -> Result<Lease, Failure> {
    let result = match &wanted.options.wait {
        Some(limit) => {
            let waited = Monotonic.now().since(began);
            let left = limit.time.saturating_sub(waited);
            request.acquire_within(left).await
        }
        None => request.acquire().await,
    };
    result.map_err(|error| match held(&error) {
        Some(held) => wanted.held(held),
        None if error.is_transient() && wanted.options.on_outage == OutagePolicy::WaitOut => {
            wanted.not_acquired(format!("{error:#}"))
        }
        None if error.is_transient() => Failure::new(Exit::Unreachable, format!("{error:#}")),
        None => error.into(),
    })
}

/// Returns who had the name when the limit ran out, if it was held then and the store not unavailable.
fn held(error: &Error) -> Option<&Held> {
    let source = std::error::Error::source(error).filter(|_| error.kind() == ErrorKind::TimedOut);
    source?.downcast_ref()
}

/// Waits before the command is run again, so that one that fails at once does not keep the store busy.
pub async fn pause(signals: &mut Signals) -> Result<(), Failure> {
    let pause = AGAIN.mul_f64(0.5 + fastrand::f64() / 2.0);
    let paused = Monotonic.sleep_until(Monotonic.now().after(pause));
    or_signal(signals, paused.map(Ok)).await
}

/// Runs the work, unless a signal ends it first.
async fn or_signal<T>(
    signals: &mut Signals,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        result = work => result,
        signal = signals.ending() => Err(Failure::new(
            Exit::Told(signal.as_raw()),
            format!("ended while waiting signal={}", signal.as_raw()),
        )),
    }
}
