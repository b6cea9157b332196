//! `leasehold run`: acquires the lease, runs the job under it, and releases it.

mod acquire;
mod announcer;
mod foreground;
mod job;
mod outcome;
mod plan;
mod report;
pub mod service;
mod signals;
mod supervise;

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::clock::{Clock, Monotonic, wall_clock};
use leasehold::{Lease, ReleaseOutcome};

use crate::args;
use crate::exit::{Exit, Failure};
use crate::export::JobMetrics;
use crate::progress::Reports;
use crate::say::{self, Loudness};
use crate::status_file::StatusFile;
use crate::store::Contact;
use crate::waiting;

use announcer::{Announcer, first_status};
use job::Job;
use outcome::Outcome;
use plan::Plan;
use report::Reporter;
use service::Service;
use signals::Signals;
use supervise::Supervisor;

/// Limit for the release. After that the lease expires by itself: what follows the job waits for the tool, and not
/// for a store that does not answer. Together with the limit below it is two seconds.
const RELEASE_LIMIT: Duration = Duration::from_millis(1_700);

/// Limit for giving back a claim of unknown outcome. After that it expires by itself; the user waits for
/// the end of a run that was not granted its name.
const GIVE_BACK_LIMIT: Duration = Duration::from_millis(300);

/// Runs the command under the lease.
pub fn main(arguments: args::RunOptions) -> Result<Exit, Failure> {
    say::set_loudness(match (arguments.verbose, arguments.quiet) {
        (true, _) => Loudness::Verbose,
        (_, true) => Loudness::Quiet,
        _ => Loudness::Normal,
    });
    if arguments.json {
        say::as_json(&arguments.name);
    }
    let plan = Plan::new(arguments)?;
    let mut reporter = Reporter::begin(&plan)?;
    let result = crate::block_on(run(&plan, &mut reporter));
    if let Err(error) = reporter.finish(&result) {
        let message = format_args!("the report was not written: {error}");
        say::fault("failed", message);
    }
    result
}

async fn run(plan: &Plan, reporter: &mut Reporter) -> Result<Exit, Failure> {
    let mut signals = Signals::new()?;
    // Before there is a client, so that nothing is missed.
    let mut metrics = JobMetrics::start(&plan.options)?;
    let mut watchers = Watchers {
        reporter,
        metrics: metrics.as_mut(),
    };
    let result = hold(plan, &mut signals, &mut watchers).await;
    if let Some(metrics) = metrics {
        metrics.finish(&result);
    }
    result
}

/// The recorders of a run.
struct Watchers<'a> {
    reporter: &'a mut Reporter,
    metrics: Option<&'a mut JobMetrics>,
}

async fn hold(
    plan: &Plan,
    signals: &mut Signals,
    watchers: &mut Watchers<'_>,
) -> Result<Exit, Failure> {
    let mut contact = acquire::connect(plan, signals).await?;
    let service = Service::start();
    let (mut result, limit) = loop {
        let (result, limit) = once(&contact, plan, signals, watchers, &service).await;
        if !(plan.options.again && !signals.is_told_to_end() && is_repeated(&result)) {
            break (result, limit);
        }
        let message = format_args!(
            "the command is run again, under a new lease name={}",
            plan.name
        );
        say::note("again", message);
        if let Err(ended) = acquire::pause(signals).await {
            break (Err(ended), GIVE_BACK_LIMIT);
        }
        contact.begin_again();
    };
    // A usage error is printed later, with the file that it may come from.
    if let Err(failure) = &mut result
        && failure.exit != Exit::Usage
    {
        failure.say();
    }
    service.stopping();
    let _ = tokio::time::timeout(limit, contact.client.shutdown(limit)).await;
    service.end();
    result
}

/// Acquires the lease and runs the command under it. Also returns how long it may take to give back what is left.
async fn once(
    contact: &Contact,
    plan: &Plan,
    signals: &mut Signals,
    watchers: &mut Watchers<'_>,
    service: &Service,
) -> (Result<Exit, Failure>, Duration) {
    service.status(format_args!("waiting for name={}", plan.name));
    let places = waiting::Places {
        service: Some(service),
        metrics: watchers.metrics.as_deref(),
        is_outage: Cell::default(),
    };
    match acquire::acquire(contact, plan, signals, places).await {
        Ok(lease) => under(lease, plan, signals, watchers, service).await,
        Err(failure) => (Err(failure), GIVE_BACK_LIMIT),
    }
}

/// Returns whether `--again` repeats a run with this result: the lease was lost, the command failed, or the store could
/// not be reached when the lease was to be acquired again.
fn is_repeated(result: &Result<Exit, Failure>) -> bool {
    match result {
        Ok(exit) => matches!(exit, Exit::Lost | Exit::Signal(_) | Exit::Command(1..)),
        Err(failure) => matches!(failure.exit, Exit::Lost | Exit::Unreachable),
    }
}

/// Runs the job while the lease is held, and releases it. Also returns what is left of the time for that.
async fn under(
    lease: Lease,
    plan: &Plan,
    signals: &mut Signals,
    watchers: &mut Watchers<'_>,
    service: &Service,
) -> (Result<Exit, Failure>, Duration) {
    let acquired_at = Monotonic.now();
    if let Some(metrics) = &mut watchers.metrics {
        metrics.acquired();
    }
    let reporter = &mut *watchers.reporter;
    reporter.acquired(&lease, plan.options.pool.number(&lease));
    say::detail(
        "acquired",
        format_args!(
            "acquired name={} token={} holder={}; an outage of the store of {:.1?} is survived",
            lease.name(),
            lease.token(),
            lease.holder(),
            plan.distances.outage(&plan.timing)
        ),
    );
    let result = work(&lease, plan, signals, service).await.map(|outcome| {
        reporter.ended(&outcome);
        outcome.exit()
    });
    if let Some(metrics) = &watchers.metrics {
        metrics.ended();
    }
    let ended_at = Monotonic.now();
    release(lease, plan, ended_at.since(acquired_at)).await;
    let left = RELEASE_LIMIT.saturating_sub(Monotonic.now().since(ended_at));
    (result, left.max(GIVE_BACK_LIMIT))
}

/// Releases the lease, which was held for this long. The name stays taken for the rest of `--hold-at-least`, without
/// a holder.
async fn release(lease: Lease, plan: &Plan, held_for: Duration) {
    match tokio::time::timeout(RELEASE_LIMIT, lease.release()).await {
        Ok(ReleaseOutcome::Released) => {
            say::detail("released", format_args!("released name={}", plan.name));
        }
        Ok(ReleaseOutcome::AlreadyLost) => {}
        Ok(ReleaseOutcome::Unknown) | Err(_) => {
            let least = plan.options.hold_at_least.as_ref();
            let rest = least.map_or(Duration::ZERO, |least| least.time.saturating_sub(held_for));
            let left = plan.timing.ttl().max(rest);
            say::note(
                "release_unanswered",
                format_args!(
                    "the store did not answer the release: unless it still carries it out, the name stays taken until {} name={}",
                    humantime::format_rfc3339_seconds(wall_clock() + left),
                    plan.name
                ),
            );
        }
    }
}

async fn work(
    lease: &Lease,
    plan: &Plan,
    signals: &mut Signals,
    service: &Service,
) -> Result<Outcome, Failure> {
    let Some(term) = lease.term() else {
        let message = format!(
            "lease lost before the command was started name={}",
            plan.name
        );
        return Err(Failure::new(Exit::Lost, message));
    };
    let status = first_status(lease, &term, plan)?;
    let file = StatusFile::create(status.clone())
        .map_err(|error| Failure::internal("cannot write the status file", &error))?;
    let started = Reports::listen(file.path())
        .map_err(|error| Failure::internal("cannot listen for progress", &error))
        .and_then(|reports| {
            let job = Job::start(lease, &term, plan, file.path());
            job.map(|job| (job, reports))
                .map_err(|error| Failure::internal("cannot start the guardian", &error))
        });
    let result = match started {
        Ok(job) => {
            let announcer = Announcer::new(status, &file, service);
            let supervisor = Supervisor::new(lease, term, plan, job, announcer);
            let running = AssertUnwindSafe(supervisor.run(signals)).catch_unwind();
            // After a bug the lease is not released: the guardian needs time to end the job.
            let ended = running.await;
            ended.unwrap_or_else(|_| std::process::exit(Exit::Internal.code().into()))
        }
        Err(failure) => Err(failure),
    };
    file.remove();
    result
}
