//! A request for a lease: its options, and the methods that send it.

use std::error::Error as _;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::watch;

use super::Client;
use super::acquire::{Acquiring, Attempt, Options};
use super::permits::{Taker, permit_name};
use super::taking::{Access, MAX_PERMITS};
use crate::error::{Error, ErrorKind};
use crate::lease::{Hold, Lease};
use crate::name::Name;
use crate::store::{Facts, Held, Info, MAX_KEEP};
use crate::telemetry::AcquireTimer;
use crate::term::Timing;
use crate::token::Token;
use crate::waiting::OutagePolicy;

/// A request for a lease, with options of its own. All values are checked when the request is sent.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), leasehold::Error> {
/// # use leasehold::{Client, store::memory::Memory};
/// # let client = Client::builder().store(Memory::new()).build().await?;
/// use std::time::Duration;
///
/// use leasehold::OutagePolicy;
///
/// let request = client.request("nightly").ttl(Duration::from_secs(60)).label("report 7");
/// let request = request.on_outage(OutagePolicy::WaitOut);
/// let lease = request.acquire_within(Duration::from_secs(5)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a request does nothing until it is sent by one of its acquiring methods"]
pub struct LeaseRequest {
    pub(super) client: Client,
    pub(super) name: String,
    pub(super) ttl: Option<Duration>,
    pub(super) margin: Option<Duration>,
    pub(super) label: Option<String>,
    pub(super) hold: Hold,
    pub(super) access: Option<Access>,
    pub(super) options: Options,
}

impl LeaseRequest {
    pub(super) fn new(client: Client, name: &str) -> Self {
        Self {
            client,
            name: name.into(),
            ttl: None,
            margin: None,
            label: None,
            hold: Hold::default(),
            access: None,
            options: Options::default(),
        }
    }

    /// Acquires the lease if the name is free, in one round trip. It does not wait.
    ///
    /// # Errors
    /// `Invalid` for a bad value of the request; `Unavailable`, `TimedOut`, `Denied` and `Misconfigured` from the
    /// store; `Closed` after a shutdown. That another holder has the name is not an error, but the value
    /// [`Attempt::Held`].
    ///
    /// # Cancel safety
    /// If the future is dropped, a lease that the store may have granted is released in the background.
    pub async fn try_acquire(self) -> Result<Attempt, Error> {
        self.send(None).await
    }

    /// Acquires the lease. Waits for as long as another holder has the name.
    ///
    /// Where the store [keeps a queue](crate::store::spi::Facts::has_queue), waiting clients take turns in the order of
    /// joining, and no claim overtakes a live one, not even one that does not wait: with one caller per client that is
    /// plain first come, first served. A client with more callers joins the end again when the one before was served. A
    /// client is live while it asks, which it does every second; a dead one at its turn costs at most 3 s. A flush, a
    /// failover or a step of the server's clock can cost the order, and nothing else. Where there is no queue, the
    /// client that asks first after the name was freed is served.
    ///
    /// The waiting callers of one name in one client are served first come, first served, and only the first of them
    /// asks the store. So keep polling this future: while it is held and not polled, as in a branch of a `select!` that
    /// awaits something else, the callers behind it in this client wait too. Drop it to give up its place.
    ///
    /// # Errors
    /// The errors of [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    /// The same as for [`try_acquire`](Self::try_acquire).
    pub async fn acquire(self) -> Result<Lease, Error> {
        // The latest moment of all is no limit.
        self.acquire_within(Duration::MAX).await
    }

    /// Acquires the lease. Waits for at most `limit` while another holder has the name.
    ///
    /// # Errors
    /// The errors of [`try_acquire`](Self::try_acquire); and `TimedOut` when the limit runs out while another holder
    /// has the name, with the [`Held`] that was last seen as its source.
    ///
    /// # Cancel safety
    /// The same as for [`try_acquire`](Self::try_acquire).
    pub async fn acquire_within(self, limit: Duration) -> Result<Lease, Error> {
        match self.send(Some(limit)).await? {
            Attempt::Acquired(lease) => Ok(lease),
            Attempt::Held(_) => unreachable!("a caller that waits is not refused"),
        }
    }

    /// Runs `work` while the lease is held: waits for the lease, runs the work, and releases the lease. A panic of the
    /// work is passed on after the release. What the work returns, an error of its own included, is passed through.
    ///
    /// When the lease is lost, the work is dropped at its next await. Work that blocks its thread cannot be dropped:
    /// if it ends before the loss is seen, its value is returned although the lease was lost meanwhile, because its
    /// effects remain. Work to which that matters calls [`Lease::check`] as its last step, or writes through a fence.
    ///
    /// # Errors
    /// The errors of [`acquire`](Self::acquire); and `Lost` when the work was dropped because the lease was lost.
    ///
    /// # Cancel safety
    /// If the future is dropped, the work is dropped and the lease is released in the background.
    pub async fn run<T>(self, work: impl AsyncFnOnce(&Lease) -> T) -> Result<T, Error> {
        let lease = self.acquire().await?;
        let done = under(lease, work, std::future::pending()).await?;
        Ok(done.expect("it is never stopped"))
    }

    /// Sets how long the store keeps the lease without a renewal (default: the client's; 1 s to 24 h, and from 100 ms
    /// with a [`margin`](Self::margin) of your own).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets the safety margin: how much earlier than the store the client counts the lease as over.
    ///
    /// This is the lock-delay of Consul and Chubby, for storage that cannot compare tokens: with a ttl of 60 s and a
    /// margin of 15 s the holder is told 15 s before another client can be granted the name. A release frees it at
    /// once.
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = Some(margin);
        self
    }

    /// Sets the label that other clients see with the holder (default: the client's).
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Makes the grant carry a token greater than this one, for example the highest that storage has seen.
    pub fn min_token(mut self, token: Token) -> Self {
        self.options.floor = Some(token);
        self
    }

    /// Limits how long the lease is held. After that time the lease is lost and its holder is cancelled. This limit and
    /// the two below begin when the caller receives the lease: a writer that waits for readers waits without limits.
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.hold.limits.max_hold = Some(most);
        self
    }

    /// Keeps the name taken for at least this long from then on, so that a short job does not run twice when the
    /// clocks of two machines differ. Every end of the guard keeps it: release, drop, `?`, a panic and
    /// [`run`](Self::run), also after the client itself ended the lease ([`max_hold`](Self::max_hold),
    /// [`progress_within`](Self::progress_within), [`Client::shutdown`](crate::Client::shutdown)). Until then the name
    /// has no holder, and no client can acquire it. At most [`MAX_KEEP`].
    ///
    /// A name is not kept if the lease was lost before, by an eviction or an outage, if no release reaches the store
    /// within the rest of the ttl, or if the process was killed: then it is free after its ttl. A store that forgets
    /// its leases (a flush, a failover) forgets kept names too; with `max_ttl` it grants nothing for that time after a
    /// failover, which covers leases, but not the rest of a longer keep. In SQLite the time stands still while the
    /// machine is suspended, and a name that was kept before a reboot is kept again for all that was left at its
    /// release.
    pub fn hold_at_least(mut self, least: Duration) -> Self {
        self.hold.least = least;
        self
    }

    /// Limits the time without a call of [`Lease::progress`]. After that time the lease is lost and its holder is
    /// cancelled.
    pub fn progress_within(mut self, most: Duration) -> Self {
        self.hold.limits.progress_within = Some(most);
        self
    }

    /// Asks for one of `count` permits of the name (a semaphore) instead of the name itself: at most `count` holders
    /// at once, 1 to 256. See [`Client::permits`].
    pub fn permits(mut self, count: u16) -> Self {
        self.access = Some(Access::Permit(count));
        self
    }

    /// Asks for a share of the name (a read lock). See [`Client::shared`].
    pub fn shared(mut self) -> Self {
        self.access = Some(Access::Shared);
        self
    }

    /// Asks for a share of the name whose [`pass`](Lease::pass) a fence can compare. Raise the fence once, before the
    /// first read, and read without the guard from then on: a later reader's raise makes this pass `Stale` although the
    /// share is held. See [`Client::shared`].
    pub fn shared_fenced(mut self) -> Self {
        self.access = Some(Access::SharedFenced);
        self
    }

    /// Asks for the name alone, where others [share](Self::shared) it (a write lock). See [`Client::exclusive`].
    pub fn exclusive(mut self) -> Self {
        self.access = Some(Access::Exclusive);
        self
    }

    /// Sets whether a wait fails or retries while the store cannot be reached.
    pub fn on_outage(mut self, outage: OutagePolicy) -> Self {
        self.options.outage = outage;
        self
    }

    /// Counts a grant only from the store's answer to a request of this client, so that the lease begins with its whole
    /// ttl. Otherwise a name that is freed is granted to a waiting client with what is left of the term of its place,
    /// up to 3 s, and the first renewal comes at once; asking first costs one more round trip.
    pub fn confirmed(mut self) -> Self {
        self.options.is_confirmed = true;
        self
    }

    /// Reports to `reports` what each poll of the name finds while the request waits: who has the name, or why the
    /// store did not answer. Of several requests of one client for one name, only the first in line asks the store, and
    /// all of them report.
    pub fn report_to(mut self, reports: watch::Sender<Option<Result<Held, Error>>>) -> Self {
        self.options.reports = Some(reports);
        self
    }

    /// Checks all values of the request.
    fn check(self) -> Result<Acquiring, Error> {
        let client = self.client.inner;
        let timing = match (self.ttl, self.margin) {
            (None, None) => client.timing,
            (ttl, margin) => Timing::new(ttl.unwrap_or(client.timing.ttl()), margin)?,
        };
        let info = match &self.label {
            None => client.info.clone(),
            Some(label) => Arc::new(Info::here(Some(label))?),
        };
        check_hold(self.hold)?;
        check_facts(client.store.facts(), timing.ttl())?;
        let name = Name::new(&self.name)?;
        if let Some(access) = self.access {
            check_access(access, &name)?;
        }
        client.check_open()?;
        Ok(Acquiring {
            known: client.floors.keep(name.clone()),
            name,
            timing,
            info,
            options: self.options,
            clock: client.store.clock(),
            client,
        })
    }

    /// Sends the request. With a limit, waits for that long while another holder has the name.
    pub(super) async fn send(self, limit: Option<Duration>) -> Result<Attempt, Error> {
        let (access, hold) = (self.access, self.hold);
        let acquiring = self.check()?;
        let (sink, name) = (acquiring.client.sink, acquiring.name.as_str());
        let timer = AcquireTimer::begin(sink, name, &*acquiring.clock, limit);
        let mut attempt = match (access, timer.ends_at) {
            (None, None) => acquiring.try_once(None).await,
            (None, Some(ends_at)) => acquiring.wait(ends_at).await,
            (Some(access), ends_at) => {
                Box::pin(Taker::new(&acquiring, access, ends_at).take()).await
            }
        };
        if let Ok(Attempt::Acquired(lease)) = &mut attempt {
            lease.begin(hold);
        }
        timer.ended(outcome_of(&attempt));
        attempt
    }
}

/// Runs the work while the lease is held, until `stop`. Returns what the work returned by itself, `None` if it was
/// stopped; the lease is then released. The error of a lost lease means that the work was dropped because of it. A
/// panic of the work is passed on after the release.
pub(super) async fn under<T>(
    lease: Lease,
    work: impl AsyncFnOnce(&Lease) -> T,
    stop: impl Future<Output = ()>,
) -> Result<Option<T>, Error> {
    let ended = tokio::select! {
        biased;
        _ = lease.lost() => Err(lease.check().expect_err("the loss was told")),
        () = stop => Ok(None),
        ended = AssertUnwindSafe(work(&lease)).catch_unwind() => Ok(Some(ended)),
    };
    let ended = ended?;
    lease.release().await;
    Ok(ended.map(|ended| ended.unwrap_or_else(|panic| resume_unwind(panic))))
}

/// Checks the limits of the hold.
pub(super) fn check_hold(Hold { limits, least }: Hold) -> Result<(), Error> {
    for limit in [limits.max_hold, limits.progress_within] {
        if limit.is_some_and(|limit| limit.is_zero()) {
            return Err(Error::invalid(
                "acquire refused: a limit of 0s would end the lease at once; expected more",
            ));
        }
    }
    if least > MAX_KEEP {
        return Err(Error::invalid(format!(
            "acquire refused: hold_at_least of {least:?}; expected at most {MAX_KEEP:?}"
        )));
    }
    Ok(())
}

/// Checks that the store supports the request.
fn check_facts(facts: Facts, ttl: Duration) -> Result<(), Error> {
    let Facts {
        kind,
        least_ttl,
        max_ttl,
        ..
    } = facts;
    let limit = match max_ttl.filter(|most| ttl > *most) {
        Some(most) => format!("at most {most:?}"),
        None if ttl < least_ttl => format!("at least {least_ttl:?}"),
        None => return Ok(()),
    };
    Err(Error::invalid(format!(
        "acquire refused: the store keeps no ttl of {ttl:?}; expected {limit} store={kind}"
    )))
}

/// Checks the number of permits, and that the name leaves room for their suffixes.
fn check_access(access: Access, name: &Name) -> Result<(), Error> {
    let permits = access.permits();
    if !(1..=MAX_PERMITS).contains(&permits) {
        return Err(Error::invalid(format!(
            "acquire refused: {permits} permits; expected 1 to {MAX_PERMITS} name={name}"
        )));
    }
    permit_name(name, permits).map(drop)
}

/// The outcome that metrics count for a call.
fn outcome_of(attempt: &Result<Attempt, Error>) -> &'static str {
    let error = match attempt {
        Ok(Attempt::Acquired(_)) => return "acquired",
        Ok(Attempt::Held(_)) => return "held",
        Err(error) => error,
    };
    let is_held = error.source().is_some_and(|source| source.is::<Held>());
    match error.kind() {
        ErrorKind::TimedOut if is_held => "timed_out",
        _ if error.is_transient() => "failed",
        _ => "refused",
    }
}
