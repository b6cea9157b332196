//! Starts the watchdog for the first lease. There is one attempt at a time, and all callers that ask meanwhile share
//! its outcome.

use std::fmt;
use std::sync::{Arc, OnceLock};

use futures_util::future::{FutureExt as _, Shared};
use parking_lot::Mutex;

use crate::error::Error;
use crate::future::{BoxFuture, shielded};
use crate::watchdog::Watchdog;

type StartAttempt = Shared<BoxFuture<'static, Result<Arc<Watchdog>, Error>>>;

/// The watchdog, or the attempt to start it.
///
/// The work is done by the watchdog's own thread, so an attempt goes on while no caller polls it, and a caller that
/// gives up, or that is never polled again, delays no other.
#[derive(Default)]
pub(super) struct Start {
    watchdog: OnceLock<Arc<Watchdog>>,
    attempt: Mutex<Option<StartAttempt>>,
}

impl Start {
    /// The watchdog, if it was started.
    pub(super) fn get(&self) -> Option<&Arc<Watchdog>> {
        self.watchdog.get()
    }

    /// Waits for the watchdog, whose start `begin` begins unless one is under way.
    ///
    /// # Errors
    /// Those of the attempt. The next caller begins another.
    ///
    /// # Cancel safety
    /// Dropped, the attempt goes on for the other callers and for the next.
    pub(super) async fn get_or_begin<F>(
        &self,
        begin: impl FnOnce() -> F,
    ) -> Result<Arc<Watchdog>, Error>
    where
        F: Future<Output = Result<Watchdog, Error>> + Send + 'static,
    {
        if let Some(watchdog) = self.get() {
            return Ok(watchdog.clone());
        }
        let outcome = shielded(self.attempt(begin)).await;
        if let Ok(watchdog) = &outcome {
            // Another caller may have stored the same watchdog before.
            let _ = self.watchdog.set(watchdog.clone());
        }
        outcome
    }

    /// The attempt that is under way, or a new one. A failed attempt is not shared with later callers.
    fn attempt<F>(&self, begin: impl FnOnce() -> F) -> StartAttempt
    where
        F: Future<Output = Result<Watchdog, Error>> + Send + 'static,
    {
        let mut current = self.attempt.lock();
        match &*current {
            Some(attempt) if !matches!(attempt.clone().now_or_never(), Some(Err(_))) => {
                attempt.clone()
            }
            _ => {
                let attempt = begin().map(|outcome| outcome.map(Arc::new));
                let attempt = attempt.boxed().shared();
                *current = Some(attempt.clone());
                attempt
            }
        }
    }
}

impl fmt::Debug for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Start")
            .field("watchdog", &self.watchdog)
            .finish_non_exhaustive()
    }
}
