//! The hints of a subscription that wait to be read: a bounded queue from the tasks that listen to the one caller.
//!
//! When the queue is full, hints are dropped, and the next one read is `Reconnected`, because it asks for the same:
//! check every name.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc;

use super::Notice;

/// The number of hints that may wait to be read. With more, a reconnect is as good: a reader that is this far behind
/// checks every name.
const QUEUE: usize = 1_024;

/// The reading end.
#[derive(Debug)]
pub(super) struct Hints {
    queue: Mutex<mpsc::Receiver<Notice>>,
    has_overflowed: Arc<AtomicBool>,
}

/// The end of those that listen.
#[derive(Debug, Clone)]
pub(super) struct Teller {
    queue: mpsc::Sender<Notice>,
    has_overflowed: Arc<AtomicBool>,
}

/// Makes a queue.
pub(super) fn hints() -> (Teller, Hints) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let has_overflowed = Arc::<AtomicBool>::default();
    let hints = Hints {
        queue: Mutex::new(receiver),
        has_overflowed: has_overflowed.clone(),
    };
    let teller = Teller {
        queue: sender,
        has_overflowed,
    };
    (teller, hints)
}

impl Hints {
    /// Returns the next hint. Dropping the future loses none.
    pub(super) async fn next(&self) -> Notice {
        if self.has_overflowed.swap(false, Ordering::Relaxed) {
            while self.queue().try_recv().is_ok() {}
            return Notice::Reconnected;
        }
        match poll_fn(|context| self.queue().poll_recv(context)).await {
            Some(notice) => notice,
            // The listener's runtime has ended. Waiting clients check again after some time.
            None => std::future::pending().await,
        }
    }

    fn queue(&self) -> MutexGuard<'_, mpsc::Receiver<Notice>> {
        self.queue.lock()
    }
}

impl Teller {
    /// Gives a hint to the reader.
    pub(super) fn tell(&self, notice: Notice) {
        if self.queue.try_send(notice).is_err() {
            self.has_overflowed.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;

    fn freed(index: usize) -> Notice {
        Notice::Freed(Name::new(format!("n{index}")).expect("a name"))
    }

    #[tokio::test]
    async fn hints_are_read_in_order_and_too_many_become_one_to_check_everything() {
        let (teller, hints) = hints();
        (0..2).for_each(|index| teller.tell(freed(index)));
        assert_eq!(
            [hints.next().await, hints.next().await],
            [freed(0), freed(1)]
        );
        (0..=QUEUE).for_each(|index| teller.tell(freed(index)));
        assert_eq!(hints.next().await, Notice::Reconnected);
        teller.tell(freed(7));
        assert_eq!(hints.next().await, freed(7));
    }
}
