//! Wakes a waiting task.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::Notify;

/// A waiting task, as it is woken. Clones wake the same task, and a wake that comes before the task waits is not lost.
pub(super) type Sleeper = Arc<Notify>;

/// A task that is to be woken, once no mutex is held any more.
#[derive(Debug)]
#[must_use = "a waiter that is not woken sleeps on"]
pub(super) struct Wake(Option<Sleeper>);

impl Wake {
    /// Wakes no task.
    pub(super) const NONE: Self = Self(None);

    /// Wakes this task, if there is one.
    pub(super) fn of(waiter: Option<&Sleeper>) -> Self {
        Self(waiter.cloned())
    }

    /// Returns whether there is a task to wake.
    pub(super) fn has_waiter(&self) -> bool {
        self.0.is_some()
    }

    /// Wakes the task.
    pub(super) fn now(self) {
        if let Some(waiter) = self.0 {
            // A waker is code of the caller and may panic, which must not end the thread that wakes all waiters. The
            // panic hook has reported it.
            let _ = catch_unwind(AssertUnwindSafe(|| waiter.notify_one()));
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
        let mut woken = pin!(sleeper.notified());
        let polled = woken.as_mut().poll(&mut Context::from_waker(&gone));
        assert!(polled.is_pending());
        Wake::of(Some(&sleeper)).now();
    }

    impl Wake {
        pub(in super::super) fn wakes(&self, waiter: &Sleeper) -> bool {
            let woken = self.0.as_ref();
            woken.is_some_and(|woken| Arc::ptr_eq(woken, waiter))
        }
    }
}
