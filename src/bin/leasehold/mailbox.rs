//! A bounded queue to a thread that does one slow thing: prints, writes a file, or notifies a service manager.
//!
//! The loop that has to end a job in time puts its items here and never waits for the thread. An item is dropped and
//! counted if the mailbox is full. The thread ends when the mailbox is dropped and every item in it was handled.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The sending side.
pub struct Mailbox<T>(Arc<Shared<T>>);

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    capacity: usize,
}

struct State<T> {
    waiting: VecDeque<T>,
    /// The thread is handling an item.
    is_busy: bool,
    is_closed: bool,
    dropped: u64,
}

impl<T: Send + 'static> Mailbox<T> {
    /// Starts the thread, which handles the items one after the other.
    pub fn start(
        thread: &str,
        capacity: usize,
        mut handle: impl FnMut(T) + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                is_busy: false,
                is_closed: false,
                dropped: 0,
            }),
            changed: Condvar::new(),
            capacity,
        });
        let mailbox = Self(shared.clone());
        let thread = std::thread::Builder::new().name(thread.into());
        thread.spawn(move || {
            while let Some(item) = shared.next() {
                handle(item);
            }
        })?;
        Ok(mailbox)
    }
}

impl<T> Mailbox<T> {
    /// Puts an item into the mailbox. If the mailbox is full, the item is dropped and counted.
    pub fn send(&self, item: T) {
        let mut state = self.0.state();
        if state.waiting.len() < self.0.capacity {
            state.waiting.push_back(item);
            self.0.changed.notify_all();
        } else {
            state.dropped += 1;
        }
    }

    /// Puts an item into the mailbox in place of all waiting items, because it has everything that they have.
    pub fn replace(&self, item: T) {
        let mut state = self.0.state();
        state.waiting.clear();
        state.waiting.push_back(item);
        self.0.changed.notify_all();
    }

    /// Returns the number of items dropped since the last call.
    pub fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.0.state().dropped)
    }

    /// Waits until every item was handled, for `limit` at most. It does not wait if the mailbox is full, because then
    /// the thread is stuck.
    pub fn flush(&self, limit: Duration) {
        if self.0.state().waiting.len() < self.0.capacity {
            self.0.wait_until_idle(limit);
        }
    }

    /// Waits until every item was handled, for `limit` at most, and ends the thread.
    pub fn close(self, limit: Duration) {
        self.0.wait_until_idle(limit);
    }
}

impl<T> Drop for Mailbox<T> {
    fn drop(&mut self) {
        self.0.state().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next item. Returns `None` at the end.
    fn next(&self) -> Option<T> {
        let mut state = self.state();
        state.is_busy = false;
        self.changed.notify_all();
        let is_idle = |state: &mut State<T>| state.waiting.is_empty() && !state.is_closed;
        let state = self.changed.wait_while(state, is_idle);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let item = state.waiting.pop_front();
        state.is_busy = item.is_some();
        item
    }

    fn wait_until_idle(&self, limit: Duration) {
        let has_work = |state: &mut State<T>| state.is_busy || !state.waiting.is_empty();
        let waited = self
            .changed
            .wait_timeout_while(self.state(), limit, has_work);
        drop(waited);
    }
}

impl<T> fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    /// Makes a mailbox whose thread handles an item only when the test lets it.
    fn held_up(capacity: usize) -> (Mailbox<u32>, SyncSender<()>, Receiver<u32>) {
        let (go_on, may_go_on) = sync_channel(0);
        let (handled, seen) = sync_channel(8);
        let mailbox = Mailbox::start("test", capacity, move |item| {
            handled.send(item).expect("the test listens");
            let _ = may_go_on.recv();
        });
        (mailbox.expect("a thread"), go_on, seen)
    }

    #[test]
    fn items_are_handled_in_order_and_a_flush_waits_for_all() {
        let (mailbox, go_on, seen) = held_up(8);
        drop(go_on);
        for item in 0..5 {
            mailbox.send(item);
        }
        mailbox.flush(SOON);
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_full_mailbox_drops_and_counts_and_is_not_waited_for() {
        let (mailbox, _go_on, seen) = held_up(1);
        mailbox.send(0);
        assert_eq!(seen.recv_timeout(SOON), Ok(0));
        for item in 1..4 {
            mailbox.send(item);
        }
        assert_eq!((mailbox.take_dropped(), mailbox.take_dropped()), (2, 0));
        mailbox.flush(Duration::MAX);
    }

    #[test]
    fn a_newer_item_takes_the_place_of_those_that_wait() {
        let (mailbox, go_on, seen) = held_up(1);
        mailbox.send(0);
        assert_eq!(seen.recv_timeout(SOON), Ok(0));
        mailbox.replace(1);
        mailbox.replace(2);
        drop(go_on);
        mailbox.close(SOON);
        assert_eq!(seen.iter().collect::<Vec<_>>(), [2]);
    }
}
