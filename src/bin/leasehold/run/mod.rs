//! `leasehold run`: takes the lease, has the job run under it, gives it back.

mod acquire;
mod foreground;
mod hold;
mod job;
mod plan;
mod signals;

use std::time::Duration;

use leasehold::{Ending, Lease};

use crate::args;
use crate::exit::{Exit, Failure};
use crate::say::{self, Loudness};
use crate::status_file::StatusFile;

use hold::Hold;
use job::Job;
use plan::Plan;
use signals::Signals;

/// How long giving back may take. After it the lease runs out by itself.
const GOODBYE: Duration = Duration::from_secs(5);

/// Runs the command under the lease.
pub fn main(arguments: args::Run) -> Result<Exit, Failure> {
    say::set_loudness(match (arguments.verbose, arguments.quiet) {
        (true, _) => Loudness::Verbose,
        (_, true) => Loudness::Quiet,
        _ => Loudness::Normal,
    });
    let plan = Plan::new(arguments)?;
    crate::block_on(run(plan))
}

async fn run(plan: Plan) -> Result<Exit, Failure> {
    let mut signals = Signals::new()?;
    let client = acquire::connect(&plan, &mut signals).await?;
    let result = match acquire::acquire(&client, &plan, &mut signals).await {
        Ok(lease) => under(lease, &plan, &mut signals).await,
        Err(failure) => Err(failure),
    };
    let _ = tokio::time::timeout(GOODBYE, client.shutdown(GOODBYE)).await;
    result
}

/// Runs the job while the lease is held.
async fn under(lease: Lease, plan: &Plan, signals: &mut Signals) -> Result<Exit, Failure> {
    say::detail(format_args!(
        "acquired name={} token={} holder={}",
        lease.name(),
        lease.token(),
        lease.holder()
    ));
    say::detail(format_args!(
        "an outage of the store of {:.1?} is survived",
        plan.pace.outage(&plan.timing)
    ));
    let result = work(&lease, plan, signals).await;
    match tokio::time::timeout(GOODBYE, lease.release()).await {
        Ok(Ending::Released) => say::detail(format_args!("released name={}", plan.name)),
        Ok(Ending::AlreadyLost) => {}
        _ => say::note(format_args!(
            "release unanswered: the lease runs out by itself within its ttl name={} ttl={:?}",
            plan.name,
            plan.timing.ttl()
        )),
    }
    result
}

async fn work(lease: &Lease, plan: &Plan, signals: &mut Signals) -> Result<Exit, Failure> {
    let Some(term) = lease.term() else {
        return Err(Failure::new(
            Exit::Lost,
            format!(
                "lease lost before the command was started name={}",
                plan.name
            ),
        ));
    };
    let status = hold::status(lease, &term, plan)?;
    let file = StatusFile::create(status.clone())
        .map_err(|error| Failure::internal("cannot write the status file", &error))?;
    let result = match Job::start(lease, &term, plan, file.path()) {
        Ok(job) => Ok(Hold::new(lease, term, plan, job, &file, status)
            .run(signals)
            .await),
        Err(error) => Err(Failure::internal("cannot start the guardian", &error)),
    };
    file.remove();
    result?
}
