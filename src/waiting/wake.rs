//! Wakes a waiting task, and reports to its caller what a poll found.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::{Notify, watch};

use super::waiters::Found;
use crate::error::Error;
use crate::store::Held;

/// Where a caller reads what the polls at its name find.
pub type Reports = Option<watch::Sender<Option<Result<Held, Error>>>>;

/// A waiting task, and where its caller reads reports. Clones are the same task, and a wake that comes before the task
/// waits is not lost.
#[derive(Debug, Clone, Default)]
pub struct Sleeper {
    task: Arc<Notify>,
    reports: Reports,
}

impl Sleeper {
    /// A task whose caller reads reports here.
    pub fn new(reports: Reports) -> Self {
        let task = Arc::default();
        Self { task, reports }
    }

    /// Waits for a wake.
    pub async fn woken(&self) {
        self.task.notified().await;
    }
}

/// A task that is to be woken, or to have a report, once no mutex is held any more.
#[derive(Debug)]
#[must_use = "a waiter that is not woken sleeps on"]
pub struct Wake {
    waiter: Option<Sleeper>,
    found: Option<Found>,
}

impl Wake {
    /// Wakes no task.
    pub const NONE: Self = Self {
        waiter: None,
        found: None,
    };

    /// Wakes this task, if there is one.
    pub fn of(waiter: Option<&Sleeper>) -> Self {
        Self {
            waiter: waiter.cloned(),
            found: None,
        }
    }

    /// Reports to the caller of this task what a poll found; a failure also wakes the task.
    pub fn reporting(waiter: &Sleeper, found: &Found) -> Self {
        if waiter.reports.is_none() && found.is_ok() {
            return Self::NONE;
        }
        Self {
            waiter: Some(waiter.clone()),
            found: Some(found.clone()),
        }
    }

    /// Returns whether there is a task to wake.
    pub fn has_waiter(&self) -> bool {
        self.waiter.is_some()
    }

    /// Wakes the task, or reports to its caller.
    pub fn now(self) {
        let Some(Sleeper { task, reports }) = self.waiter else {
            return;
        };
        let is_woken = !matches!(self.found, Some(Ok(_)));
        let told = reports.zip(self.found);
        // A waker is code of the caller and may panic, which must not end the thread that wakes all waiters. The panic
        // hook has reported it.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            if let Some((reports, found)) = told {
                reports.send_replace(Some(found.map(|held| Held::clone(&held))));
            }
        }));
        if is_woken {
            let _ = catch_unwind(AssertUnwindSafe(|| task.notify_one()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{self, Context, Waker};

    use super::*;

    /// Panics, as the waker of an event loop that has ended may.
    struct Gone;

    impl task::Wake for Gone {
        fn wake(self: Arc<Self>) {
            panic!("the event loop is gone, as it was told");
        }
    }

    #[test]
    fn a_waker_that_panics_harms_nothing_but_its_own_waiter() {
        let sleeper = Sleeper::default();
        let gone = Waker::from(Arc::new(Gone));
        let mut woken = pin!(sleeper.woken());
        let polled = woken.as_mut().poll(&mut Context::from_waker(&gone));
        assert!(polled.is_pending());
        Wake::of(Some(&sleeper)).now();
    }

    impl Wake {
        pub(crate) fn wakes(&self, waiter: &Sleeper) -> bool {
            let woken = self.waiter.as_ref();
            woken.is_some_and(|woken| Arc::ptr_eq(&woken.task, &waiter.task))
        }
    }
}
