//! Leaders: work that one client at a time does while it holds a name; and the followers' view.

use std::pin::pin;
use std::time::Duration;

use super::Client;
use super::request::{LeaseRequest, under};
use crate::error::{Error, ErrorKind};
use crate::holder::Holder;
use crate::lease::Lease;
use crate::name::Name;
use crate::store::{Held, HeldState};
use crate::term::{self, Instant};
use crate::token::Token;

/// The longest pause after an attempt that failed; the first is a thirty-second of it. Half of each pause is random,
/// so that candidates that lost one store together do not all return together.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Longest pause between two polls of a follower.
const POLL_EVERY: Duration = Duration::from_secs(1);

impl LeaseRequest {
    /// Leads for as long as `work` takes: waits for the lease, runs the work while it is held, drops the work when the
    /// lease is lost, and becomes a candidate again. Returns what the work returns when it ends by itself. After an
    /// error that may pass, such as an outage of the store, it tries again after a pause with jitter.
    ///
    /// A leader that was paused may still believe that it leads when the next one has begun. Its writes must go
    /// through a [fence](crate::fence).
    ///
    /// A task that is spawned gives the work what it uses by `async move`. The compiler refuses a closure that borrows
    /// from the task, as the work may begin several times (`implementation of Send is not general enough`). The work
    /// of [`run`](Self::run) may borrow.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use leasehold::{Client, Lease, store::memory::Memory};
    /// # let client = Client::builder().store(Memory::new()).build().await?;
    /// let (jobs, mut accepted) = tokio::sync::mpsc::channel(8);
    /// let leading = tokio::spawn(async move {
    ///     let work = async move |lease: &Lease| match accepted.recv().await {
    ///         Some(job) => lease.check().map(|()| job),
    ///         None => lease.check().map(|()| 0),
    ///     };
    ///     client.request("leader").lead(work).await
    /// });
    /// jobs.send(7).await?;
    /// assert_eq!(leading.await???, 7);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`acquire`](Self::acquire) that do not pass by themselves.
    ///
    /// # Cancel safety
    /// If the future is dropped, the work is dropped and the lease is released in the background.
    pub async fn lead<T>(self, work: impl AsyncFnMut(&Lease) -> T) -> Result<T, Error> {
        let led = self.lead_until(std::future::pending(), work).await?;
        Ok(led.expect("it is never stopped"))
    }

    /// Leads as [`lead`](Self::lead) does, until `stop` completes. Then it drops the work, releases the lease at once,
    /// and returns `None`. A leader that has to finish what it began handles the stop inside its work instead, as in
    /// `examples/draining_leader.rs`.
    ///
    /// # Errors
    /// The errors of [`lead`](Self::lead).
    ///
    /// # Cancel safety
    /// The same as for [`lead`](Self::lead).
    pub async fn lead_until<T>(
        self,
        stop: impl Future<Output = ()>,
        mut work: impl AsyncFnMut(&Lease) -> T,
    ) -> Result<Option<T>, Error> {
        let mut stop = pin!(stop);
        let clock = self.client.inner.store.clock();
        let mut failures = 0;
        loop {
            let error = tokio::select! {
                biased;
                () = &mut stop => return Ok(None),
                lease = self.clone().acquire() => match lease {
                    Ok(lease) => {
                        failures = 0;
                        match under(lease, &mut work, &mut stop).await {
                            Ok(done) => return Ok(done),
                            Err(error) => error,
                        }
                    }
                    Err(error) => error,
                },
            };
            match error.kind() {
                ErrorKind::Lost => {}
                _ if error.is_transient() => {
                    let again_at = clock.now().after(pause(failures, fastrand::f64()));
                    failures += 1;
                    tokio::select! {
                        () = &mut stop => return Ok(None),
                        () = clock.nap_until(again_at) => {}
                    }
                }
                _ => return Err(error),
            }
        }
    }
}

/// The pause after this many failures in a row.
fn pause(failures: u32, roll: f64) -> Duration {
    let full = (LONGEST_PAUSE / 32) * (1 << failures.min(5));
    full.mul_f64(0.5 + roll / 2.0)
}

/// The holders of a name, one after the other, for clients that follow a leader. Made by [`Client::holders`].
#[derive(Debug)]
pub struct Holders {
    client: Client,
    name: Name,
    /// The leader that was returned last.
    last: Option<Option<Grant>>,
    /// When it polled last, in vain or not.
    polled_at: Option<Instant>,
}

/// The facts that identify a grant.
type Grant = (Option<Holder>, Option<Token>);

impl Client {
    /// Follows who holds this name: the holder's label, host and token, and since when.
    ///
    /// # Errors
    /// `Invalid` for a name that breaks the rules of [`Name`].
    pub fn holders(&self, name: impl AsRef<str>) -> Result<Holders, Error> {
        Ok(Holders {
            client: self.clone(),
            name: Name::new(name)?,
            last: None,
            polled_at: None,
        })
    }
}

impl Holders {
    /// Returns who holds the name, `None` for no holder: at once at the first call, then whenever that has changed. It
    /// polls the name once a second, so it may miss a holder that had the name for less, and is up to a second
    /// late.
    ///
    /// # Errors
    /// The errors of the store. The next call polls again, a second after the poll that failed.
    ///
    /// # Cancel safety
    /// Dropping the future loses no change.
    pub async fn next(&mut self) -> Result<Option<Held>, Error> {
        let (store, timing) = (self.client.store(), self.client.inner.timing);
        let clock = store.clock();
        loop {
            if let Some(polled_at) = self.polled_at {
                clock.nap_until(polled_at.after(POLL_EVERY)).await;
            }
            self.polled_at = Some(clock.now());
            let limit = term::request_limit(timing.ttl());
            let seen = store.inspect(&self.name, limit).await?;
            // A name may also be taken without a holder.
            let is_held =
                |held: &Held| matches!(held.state, HeldState::Leased | HeldState::Evicted);
            let held = seen.filter(is_held);
            let grant = held.as_ref().map(|held| (held.by, held.token));
            if self.last != Some(grant) {
                self.last = Some(grant);
                return Ok(held);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pauses_after_failures_grow_up_to_the_longest_and_differ() {
        assert!(pause(0, 0.0) < pause(0, 1.0));
        assert!(pause(0, 1.0) <= pause(1, 0.0));
        assert_eq!(pause(40, 1.0), LONGEST_PAUSE);
        assert!(pause(0, 0.0) > Duration::from_millis(50));
    }
}
