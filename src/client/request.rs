//! A request for a name: its options, and the ways to send it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use super::Client;
use super::acquire::Call;
use crate::error::{Error, ErrorKind};
use crate::lease::Lease;
use crate::store::Held;
use crate::telemetry;
use crate::token::Token;
use crate::waiting::{OutagePolicy, WaitOrder};
use crate::watchdog::schedule::Limits;

/// The answer to a try. It is complete: a `match` on it needs no `_` arm.
#[derive(Debug)]
pub enum Attempt {
    /// The name was free, or its lease had run out: this client holds it now.
    Acquired(Lease),
    /// Another holder has the name. Boxed, since the facts are many.
    Held(Box<Held>),
}

/// A request for a name, with options of its own. Everything is checked when it is sent.
#[derive(Debug, Clone)]
#[must_use = "a request does nothing until it is sent by one of its acquiring methods"]
pub struct LeaseRequest {
    pub(super) client: Client,
    pub(super) name: String,
    pub(super) ttl: Option<Duration>,
    pub(super) margin: Option<Duration>,
    pub(super) label: Option<String>,
    pub(super) floor: Option<Token>,
    pub(super) limits: Limits,
    pub(super) outage: OutagePolicy,
    pub(super) order: WaitOrder,
}

impl LeaseRequest {
    pub(super) fn new(client: Client, name: &str) -> Self {
        Self {
            client,
            name: name.into(),
            ttl: None,
            margin: None,
            label: None,
            floor: None,
            limits: Limits::default(),
            outage: OutagePolicy::default(),
            order: WaitOrder::default(),
        }
    }

    /// How long the store keeps the lease without a renewal; the client's by default.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How much earlier than the store we hold the lease to be over.
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = Some(margin);
        self
    }

    /// What others are told about the holder; the client's by default.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// The token is to be above this one.
    pub fn floor(mut self, floor: Token) -> Self {
        self.floor = Some(floor);
        self
    }

    /// The longest hold; after it the holder is cancelled.
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.limits.max_hold = Some(most);
        self
    }

    /// The longest time without a [`Lease::progress`]; after it the holder is cancelled.
    pub fn progress_within(mut self, most: Duration) -> Self {
        self.limits.progress_within = Some(most);
        self
    }

    /// What to do while the store cannot be reached.
    pub fn on_outage(mut self, outage: OutagePolicy) -> Self {
        self.outage = outage;
        self
    }

    /// In which order to be served among those who wait. A try does not wait, and respects whoever does.
    pub fn order(mut self, order: WaitOrder) -> Self {
        self.order = order;
        self
    }

    /// Takes the name if it is free: one round trip.
    ///
    /// # Errors
    /// `Invalid` for a bad value of the request; `Unavailable`, `TimedOut`, `Denied` and `Misconfigured` from the store;
    /// `Closed` after a shutdown. Being held by somebody else is no error.
    ///
    /// # Cancel safety
    /// Dropped, the claim is released in the background should the store have granted it.
    pub async fn try_acquire(self) -> Result<Attempt, Error> {
        let call = Call::new(self)?;
        let started = call.clock().now();
        let attempt = call.try_once().await;
        let outcome = match &attempt {
            Ok(Attempt::Acquired(_)) => "acquired",
            Ok(Attempt::Held(_)) => "held",
            Err(_) => "error",
        };
        telemetry::acquire_ended(call.group(), outcome, call.clock().now().since(started));
        attempt
    }

    /// Takes the name, however long somebody else has it.
    ///
    /// The waiting callers of one name in one client are served in the order in which they came, and only the first of
    /// them asks the store. So keep polling this future: while it is held and not polled, as in a branch of a `select!`
    /// that awaits something else, the callers behind it in this client wait too. Drop it to give the place up.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    /// As [`try_acquire`](Self::try_acquire).
    pub async fn acquire(self) -> Result<Lease, Error> {
        self.wait(None).await
    }

    /// Takes the name, waiting for it no longer than `limit`.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire); and `TimedOut` when the limit runs out while somebody else has the name,
    /// with the [`Held`] that was last seen as its source.
    ///
    /// # Cancel safety
    /// As [`try_acquire`](Self::try_acquire).
    pub async fn acquire_within(self, limit: Duration) -> Result<Lease, Error> {
        self.wait(Some(limit)).await
    }

    /// Does the work while the name is held: waits for the lease, does the work, releases. A panic of the work is passed on
    /// after the release. What the work returns, an error of its own included, is passed through.
    ///
    /// When the lease is lost, the work is dropped at its next await. Work that blocks its thread cannot be dropped: if it
    /// ends before the loss is seen, its value is returned although the lease was lost meanwhile, because what it did is
    /// done. Work to which that matters calls [`Lease::check`] as its last step, or writes through a fence.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire); and `Lost` when the work was dropped because the lease was lost.
    ///
    /// # Cancel safety
    /// Dropped, the work is dropped and the lease released in the background.
    pub async fn run<T>(self, work: impl AsyncFnOnce(&Lease) -> T) -> Result<T, Error> {
        let lease = self.acquire().await?;
        let ended = {
            let mut work = pin!(work(&lease));
            let work = std::future::poll_fn(|context| {
                match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
                    Ok(Poll::Pending) => Poll::Pending,
                    Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
                    Err(panic) => Poll::Ready(Err(panic)),
                }
            });
            tokio::select! {
                biased;
                _ = lease.lost() => None,
                ended = work => Some(ended),
            }
        };
        match ended {
            None => Err(lease.check().expect_err("the loss was told")),
            Some(ended) => {
                lease.release().await;
                ended.map_err(|panic| resume_unwind(panic))
            }
        }
    }

    async fn wait(self, limit: Option<Duration>) -> Result<Lease, Error> {
        let call = Call::new(self)?;
        let started = call.clock().now();
        let lease = call.wait(limit.map(|limit| started.after(limit))).await;
        let outcome = match &lease {
            Ok(_) => "acquired",
            Err(error) if error.kind() == ErrorKind::TimedOut => "timed_out",
            Err(_) => "error",
        };
        telemetry::acquire_ended(call.group(), outcome, call.clock().now().since(started));
        lease
    }
}
