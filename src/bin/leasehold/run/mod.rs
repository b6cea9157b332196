//! `leasehold run`: acquires the lease, runs the job under it, and releases it.

pub mod acquire;
mod announcer;
mod foreground;
mod job;
mod outcome;
pub mod plan;
pub mod release;
mod report;
pub mod service;
pub mod signals;
pub mod supervise;

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::clock::{Boottime, Clock, Monotonic, Term};
use leasehold::{Attempt, Lease};

use crate::args;
use crate::channel::End;
use crate::choice::Contact;
use crate::exit::{Exit, Failure};
use crate::export::JobMetrics;
use crate::progress::Reports;
use crate::say;
use crate::span::milliseconds;
use crate::status_file::{self, Status, StatusFile};
use crate::waiting::Outputs;

use acquire::Asking;
use announcer::{Announcer, first_status};
use job::Standby;
use outcome::Outcome;
use plan::Plan;
use release::{RELEASE_LIMIT, release};
pub use report::Report;
use service::Service;
use signals::Signals;
use supervise::Supervisor;

/// Time limit for releasing a claim of unknown outcome, because the user waits for the end of the run. After that the
/// claim expires by itself.
pub const GIVE_BACK_LIMIT: Duration = Duration::from_millis(300);

/// Runs the command under the lease.
pub fn main(arguments: args::RunOptions) -> Result<Exit, Failure> {
    say::set_loudness(arguments.lease.loudness());
    if arguments.job.json {
        say::as_json(&arguments.lease.name);
    }
    let plan = Plan::new(arguments)?;
    // Before the wait for the name, which may be long.
    if plan.wanted.options.progress_within.is_some()
        && let Some(error) = status_file::no_folder()
    {
        return Err(unheard(&error));
    }
    let mut report = Report::begin(&plan)?;
    let result = crate::block_on(run(&plan, &mut report));
    if let Err(error) = report.finish(&result) {
        let message = format_args!("the report was not written: {error}");
        say::fault("failed", message);
    }
    result
}

/// A run, and where its events are recorded.
struct Run<'a> {
    plan: &'a Plan,
    report: &'a mut Report,
    signals: Signals,
    metrics: Option<JobMetrics>,
    service: Service,
    /// Time limit for closing the client: a release that failed at once is repeated within the rest of its own limit.
    closing: Duration,
}

async fn run(plan: &Plan, report: &mut Report) -> Result<Exit, Failure> {
    let mut run = Run {
        plan,
        report,
        signals: Signals::new()?,
        // Before there is a client, so that nothing is missed.
        metrics: JobMetrics::start(&plan.wanted.options, &plan.options.metrics).await?,
        service: Service::start(),
        closing: GIVE_BACK_LIMIT,
    };
    let result = run.hold().await;
    run.service.end().await;
    if let Some(metrics) = run.metrics {
        metrics.finish(&result).await;
    }
    result
}

impl Run<'_> {
    /// Runs the command under the lease, again and again with `--again`, and closes the client.
    async fn hold(&mut self) -> Result<Exit, Failure> {
        let mut standby = Some(self.standby()?);
        let mut contact = acquire::connect(&self.plan.wanted, &mut self.signals).await?;
        let mut result = loop {
            let result = self.once(&contact, standby.take()).await;
            let may_repeat = self.plan.options.again && !self.signals.are_told_to_end();
            if !(may_repeat && is_repeated(&result)) {
                break result;
            }
            let message = format_args!(
                "the command is run again, under a new lease name={}",
                self.plan.wanted.name
            );
            say::note("again", message);
            if let Err(ended) = acquire::pause(&mut self.signals).await {
                break Err(ended);
            }
            contact.begin_again();
        };
        // A usage error is printed later, with the file that it may come from.
        if let Err(failure) = &mut result
            && failure.exit != Exit::Usage
        {
            failure.say();
        }
        self.service.tell("STOPPING=1");
        let closing = contact.client.shutdown(self.closing);
        let _ = tokio::time::timeout(self.closing, closing).await;
        result
    }

    /// Acquires the lease, runs the command under it, and releases it.
    async fn once(
        &mut self,
        contact: &Contact,
        mut standby: Option<Standby>,
    ) -> Result<Exit, Failure> {
        let waiting = format_args!("waiting for name={}", self.plan.wanted.name);
        self.service.status(waiting);
        let outputs = Outputs {
            service: Some(&self.service),
            metrics: self.metrics.as_ref(),
            ..Outputs::default()
        };
        self.closing = GIVE_BACK_LIMIT;
        let asking = Asking {
            contact,
            wanted: &self.plan.wanted,
            outputs,
            began: Monotonic.now(),
        };
        let lease = match asking.once(&mut self.signals).await? {
            Attempt::Acquired(lease) => lease,
            Attempt::Held(held) => {
                // A wait may be long, and costs one process.
                standby = None;
                asking.wait(&mut self.signals, *held).await?
            }
        };
        let acquired_at = Boottime.now();
        self.acquired(&lease);
        let result = self.work(&lease, standby).await.map(|mut outcome| {
            if let Some((End::Signal(number), _)) = outcome.end {
                outcome.is_told = self.signals.were_told(number);
            }
            self.report.ended(&outcome);
            outcome.exit()
        });
        let ended_at = Boottime.now();
        let held_for = ended_at.since(acquired_at);
        self.report.held_ms = Some(milliseconds(held_for));
        if let Some(metrics) = &self.metrics {
            metrics.ended(held_for);
        }
        release(
            lease,
            &self.plan.wanted,
            held_for,
            contact,
            &mut self.signals,
        )
        .await;
        let left = RELEASE_LIMIT.saturating_sub(Boottime.now().since(ended_at));
        self.closing = left.max(GIVE_BACK_LIMIT);
        result
    }

    /// Starts the processes that wait for the lease together with this one.
    fn standby(&self) -> Result<Standby, Failure> {
        Standby::start(&self.plan.options.command)
            .map_err(|error| Failure::internal("cannot start the guardian", &error))
    }

    fn acquired(&mut self, lease: &Lease) {
        if let Some(metrics) = &self.metrics {
            metrics.acquired();
        }
        self.report.acquired(lease, lease.permit());
        say::detail(
            "acquired",
            format_args!(
                "acquired name={} token={} holder={}; an outage of the store of {:.1?} is survived",
                lease.name(),
                lease.token(),
                lease.holder(),
                self.plan.distances.outage(&self.plan.wanted.timing)
            ),
        );
    }

    /// Runs the command to its end, with its status file.
    async fn work(&mut self, lease: &Lease, standby: Option<Standby>) -> Result<Outcome, Failure> {
        let Some(term) = lease.term() else {
            let name = &self.plan.wanted.name;
            let message = format!("lease lost before the command was started name={name}");
            return Err(Failure::new(Exit::Lost, message));
        };
        let status = first_status(lease, &term, self.plan)?;
        let (file, why_not) = StatusFile::create(status.clone()).await;
        if let Some(error) = why_not {
            if self.plan.wanted.options.progress_within.is_some() {
                return Err(unheard(&error));
            }
            let message = format_args!(
                "the job has no status file, so `leasehold check` cannot tell it of its lease: {error}"
            );
            say::note("status_file", message);
        }
        let result = self.supervise(lease, term, status, standby, &file).await;
        file.remove().await;
        result
    }

    async fn supervise(
        &mut self,
        lease: &Lease,
        term: Term,
        status: Status,
        standby: Option<Standby>,
        file: &StatusFile,
    ) -> Result<Outcome, Failure> {
        let reports = Reports::listen(&file.path)
            .map_err(|error| Failure::internal("cannot listen for progress", &error))?;
        let standby = standby.map_or_else(|| self.standby(), Ok)?;
        let job = standby
            .begin(lease, &term, self.plan, &file.path)
            .map_err(|error| Failure::internal("cannot start the job", &error))?;
        let announcer = Announcer::new(status, file, &self.service);
        let supervisor = Supervisor::new(lease, term, self.plan, job, reports, announcer);
        or_exit(supervisor.run(&mut self.signals)).await
    }
}

/// Makes the failure of a run whose job could not report its progress, and would be ended for it.
fn unheard(error: &std::io::Error) -> Failure {
    Failure::internal(
        "progress-within refused: no folder for the job's reports can be written to; set XDG_RUNTIME_DIR or TMPDIR",
        error,
    )
}

/// Ends the tool if the work panics. After such a bug the lease is not released, because the guardian needs time to end
/// the job.
pub async fn or_exit<T>(work: impl Future<Output = T>) -> T {
    let worked = AssertUnwindSafe(work).catch_unwind().await;
    worked.unwrap_or_else(|_| std::process::exit(Exit::Internal.code().into()))
}

/// Returns whether `--again` repeats a run with this result: the lease was lost, the command failed, or the store could
/// not be reached when the lease was to be acquired again.
fn is_repeated(result: &Result<Exit, Failure>) -> bool {
    match result {
        Ok(exit) => matches!(
            exit,
            Exit::Lost | Exit::Signal(_) | Exit::Told(_) | Exit::Command(1..)
        ),
        Err(failure) => matches!(failure.exit, Exit::Lost | Exit::Unreachable),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::process::Command;

    use leasehold::{Attempt, Client};

    use super::*;

    /// Names the store to a test that was started by the one below.
    const STORE: &str = "TEST_OF_A_PANIC";

    async fn client(url: &str) -> Client {
        Client::open(url).await.expect("opened")
    }

    /// Panics in the work under a lease, in a process of its own.
    #[test]
    fn panic_where_a_store_is_named() {
        let Ok(url) = std::env::var(STORE) else {
            return;
        };
        let panicking = async {
            let client = client(&url).await;
            let _lease = client.acquire("x").await.expect("granted");
            or_exit(async { panic!("a bug") }).await
        };
        let _: Result<Infallible, _> = crate::block_on(panicking);
    }

    #[tokio::test]
    async fn a_bug_ends_the_tool_with_its_own_code_and_the_lease_is_not_released() {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite:{}", folder.path().join("leases").display());
        let ended = Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", "run::tests::panic_where_a_store_is_named"])
            .env(STORE, &url)
            .output();
        let ended = ended.expect("run");
        assert_eq!(ended.status.code(), Some(125), "{ended:?}");
        let attempt = client(&url).await.try_acquire("x").await;
        assert!(matches!(attempt, Ok(Attempt::Held(_))), "{attempt:?}");
    }
}
