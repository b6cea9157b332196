//! Leases for programs without async: a client whose calls block. It has its own runtime, in its own thread.
//!
//! ```
//! # fn main() -> Result<(), leasehold::Error> {
//! use leasehold::{blocking, store::memory::Memory, Client};
//!
//! let client = blocking::Client::build(Client::builder().store(Memory::new()))?;
//! let lease = client.acquire(client.request("nightly-report"))?;
//! // ... work, with `lease.check()?` before each step, or a blocking fence such as that of rusqlite
//! lease.release();
//! # Ok(())
//! # }
//! ```
//!
//! The lease is renewed in the background, and can be lost, like any other; a caller that blocks learns of a loss
//! through [`check`](crate::Lease::check), and by its fence. Both types dereference to their counterparts in the
//! crate's root, whose async methods run on any runtime, and in [`Client::wait`].

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::client::{self, Attempt, ClientBuilder, LeaseRequest};
use crate::error::{Error, ErrorKind};
use crate::fence::{Bearer, Pass, Refusal};
use crate::lease::{self, ReleaseOutcome};

/// A client whose calls block. Cloning is cheap; clones are one client.
#[derive(Debug, Clone)]
pub struct Client {
    client: client::Client,
    runtime: Arc<Background>,
}

/// The guard of a held lease. It dereferences to [`crate::Lease`], and dropping it releases the lease.
#[derive(Debug)]
#[must_use = "a lease that is dropped is released at once"]
pub struct Lease {
    lease: lease::Lease,
    runtime: Arc<Background>,
}

/// The thread that drives connections and timers.
#[derive(Debug)]
struct Background {
    handle: Handle,
    /// Dropped with the last client and lease: then the thread ends.
    _stop: oneshot::Sender<()>,
}

impl Client {
    /// Opens a client of the store at this URL, with the default settings.
    ///
    /// # Errors
    /// The errors of [`crate::Client::open`]; `Unavailable` if the thread does not start.
    pub fn open(url: impl AsRef<str>) -> Result<Self, Error> {
        Self::build(client::Client::builder().store_url(url.as_ref()))
    }

    /// Builds a client with these settings.
    ///
    /// # Errors
    /// The errors of [`ClientBuilder::build`]; `Unavailable` if the thread does not start.
    pub fn build(builder: ClientBuilder) -> Result<Self, Error> {
        let runtime = Arc::new(Background::start()?);
        let client = runtime.wait(builder.build())??;
        Ok(Self { client, runtime })
    }

    /// Acquires what the request asks for. Waits for as long as another holder has it.
    ///
    /// # Errors
    /// The errors of [`LeaseRequest::acquire`]; `Invalid` in async code, which must not block.
    pub fn acquire(&self, request: LeaseRequest) -> Result<Lease, Error> {
        self.wait(request.acquire())?.map(|lease| self.guard(lease))
    }

    /// Acquires what the request asks for. Waits for at most `limit`.
    ///
    /// # Errors
    /// The errors of [`LeaseRequest::acquire_within`]; `Invalid` in async code.
    pub fn acquire_within(&self, request: LeaseRequest, limit: Duration) -> Result<Lease, Error> {
        let lease = self.wait(request.acquire_within(limit))?;
        lease.map(|lease| self.guard(lease))
    }

    /// Acquires what the request asks for if it is free; `None` if another holder has it.
    ///
    /// # Errors
    /// The errors of [`LeaseRequest::try_acquire`]; `Invalid` in async code.
    pub fn try_acquire(&self, request: LeaseRequest) -> Result<Option<Lease>, Error> {
        Ok(match self.wait(request.try_acquire())?? {
            Attempt::Acquired(lease) => Some(self.guard(lease)),
            Attempt::Held(_) => None,
        })
    }

    /// Shuts the client down, as [`crate::Client::shutdown`] does.
    ///
    /// # Errors
    /// `Invalid` in async code.
    pub fn shutdown(&self, limit: Duration) -> Result<bool, Error> {
        self.wait(self.client.shutdown(limit))
    }

    /// Blocks until the future is done. For methods of [`crate::Client`] without a counterpart here.
    ///
    /// # Errors
    /// `Invalid` in async code.
    pub fn wait<T>(&self, future: impl Future<Output = T>) -> Result<T, Error> {
        self.runtime.wait(future)
    }

    fn guard(&self, lease: lease::Lease) -> Lease {
        Lease {
            lease,
            runtime: self.runtime.clone(),
        }
    }
}

impl Deref for Client {
    type Target = client::Client;

    fn deref(&self) -> &client::Client {
        &self.client
    }
}

impl Lease {
    /// Releases the lease and waits for the store's answer, as [`crate::Lease::release`] does. In async code it does
    /// not wait, and the outcome is `Unknown`.
    pub fn release(self) -> ReleaseOutcome {
        let released = self.runtime.wait(self.lease.release());
        released.unwrap_or(ReleaseOutcome::Unknown)
    }
}

impl Deref for Lease {
    type Target = lease::Lease;

    fn deref(&self) -> &lease::Lease {
        &self.lease
    }
}

impl Bearer for Lease {
    fn pass(&self) -> Result<Pass, Error> {
        self.lease.pass()
    }

    fn refused(&self, refusal: &Refusal) {
        self.lease.refused(refusal);
    }

    fn group(&self) -> Option<&str> {
        self.lease.group()
    }
}

impl Background {
    fn start() -> Result<Self, Error> {
        let failed = |source| {
            let what = "open failed: the thread of the blocking client did not start";
            Error::new(ErrorKind::Unavailable, what).with_source(source)
        };
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        std::thread::Builder::new()
            .name("leasehold-blocking".into())
            .spawn(move || runtime.block_on(stopped))
            .map_err(failed)?;
        Ok(Self {
            handle,
            _stop: stop,
        })
    }

    /// Blocks until the future is done. The thread drives its connections and timers.
    fn wait<T>(&self, future: impl Future<Output = T>) -> Result<T, Error> {
        if Handle::try_current().is_ok() {
            return Err(Error::invalid(
                "blocking call refused: it would block a thread of a runtime (also in spawn_blocking); use leasehold::Client in async code",
            ));
        }
        Ok(self.handle.block_on(future))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::Memory;

    #[tokio::test]
    async fn a_call_that_is_refused_inside_spawn_blocking_says_so() {
        let build = || Client::build(client::Client::builder().store(Memory::new()));
        let built = tokio::task::spawn_blocking(build).await.expect("no panic");
        let error = built.expect_err("it is a thread of a runtime");
        assert!(error.to_string().contains("spawn_blocking"), "{error}");
    }
}
