//! Once per fire of a schedule: a job that several machines start at the same scheduled time, and one of them runs.

use std::ops::Deref;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use super::acquire::Attempt;
use super::request::{LeaseRequest, check_hold};
use crate::error::Error;
use crate::lease::{Lease, ReleaseOutcome};

/// Default time that a fire is remembered as done: longer than a machine is late, or down over a weekend.
const REMEMBERED: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The right to run one fire of a schedule: a lease on the name `name@time`, with the time in seconds since 1970. It
/// has the methods of [`Lease`]. A fire that is dropped is not done, and another machine may run it.
#[derive(Debug)]
#[must_use = "a fire that is dropped is not done"]
pub struct Fire {
    lease: Lease,
    remembered: Duration,
}

impl LeaseRequest {
    /// Waits for the right to run the job of this name for this time of its schedule. Returns `None` once another
    /// client has [done](Fire::done) it, also to a client that comes late. A run that failed, or whose machine died,
    /// is not done: another client that waits gets the right to run it.
    ///
    /// Give all machines the same time, the one of the schedule and not of their clocks. That a fire was done is
    /// remembered for a week from then on, or for the time of [`hold_at_least`](Self::hold_at_least), each under a name
    /// of its own: a job of every minute leaves 10,080 keys (or rows, or nodes), one of every hour 168. Give a frequent
    /// one the time by which its latest machine is late. A store that
    /// loses its data forgets it, as does a failover to a replica that has not heard of it: a machine that comes late
    /// runs the job again. `max_ttl` keeps out for as long as a lease lasts, not for as long as a fire is remembered.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::builder().store(leasehold::store::memory::Memory::new()).build().await?;
    /// # let two_o_clock = std::time::SystemTime::UNIX_EPOCH;
    /// # let send_the_report = async || Ok::<(), leasehold::Error>(());
    /// if let Some(fire) = client.request("report").once(two_o_clock).await? {
    ///     send_the_report().await?;
    ///     fire.done().await;
    /// }
    /// # assert!(client.request("report").once(two_o_clock).await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`acquire`](Self::acquire); `Invalid` for a time before 1970 or with a fraction of a second, and
    /// for a request for permits, for a share or for the name alone: one client runs a fire.
    ///
    /// # Cancel safety
    /// The same as for [`acquire`](Self::acquire).
    pub async fn once(mut self, fire: SystemTime) -> Result<Option<Fire>, Error> {
        let since = fire.duration_since(UNIX_EPOCH).map_err(|_| {
            Error::invalid(
                "acquire refused: the time of a schedule is before 1970; expected a later one",
            )
        })?;
        if since.subsec_nanos() != 0 {
            return Err(Error::invalid(format!(
                "acquire refused: the time of a schedule has a fraction of a second, {since:?} after 1970; expected whole seconds"
            )));
        }
        if self.access.is_some() {
            return Err(Error::invalid(
                "acquire refused: a job that runs once has one holder; expected no permits, shared or exclusive",
            ));
        }
        check_hold(self.hold)?;
        self.name = format!("{}@{}", self.name, since.as_secs());
        let remembered = match std::mem::take(&mut self.hold.least) {
            Duration::ZERO => REMEMBERED,
            least => least,
        };
        // Waits until the claim that found it has its answer: dropping the wait could leave the next claim in doubt.
        self.options.ends_when_kept = true;
        (self.options.reports).get_or_insert_with(|| watch::channel(None).0);
        match self.send(Some(Duration::MAX)).await? {
            Attempt::Acquired(lease) => Ok(Some(Fire { lease, remembered })),
            Attempt::Held(_) => Ok(None),
        }
    }
}

impl Fire {
    /// Records that the job of this fire is done, and ends the lease. If the lease was lost, nothing is recorded.
    ///
    /// # Cancel safety
    /// The same as for [`Lease::release`].
    pub async fn done(mut self) -> ReleaseOutcome {
        // Counted from the end: the job may take longer than it is remembered.
        self.lease.keep_until = self.lease.clock().now().after(self.remembered);
        self.lease.release().await
    }
}

impl Deref for Fire {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}
