//! A bounded queue to a thread that does one slow thing: prints, writes a file, or notifies a service manager.
//!
//! The loop that has to end a job in time puts its items here and never waits for the thread. An item is dropped and
//! counted if the mailbox is full. The thread ends when the mailbox is dropped and every item in it was handled.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The sending side.
pub struct Mailbox<T> {
    letters: SyncSender<Letter<T>>,
    dropped: AtomicU64,
}

enum Letter<T> {
    Item(T),
    /// Dropped when every item before it was handled.
    Flush(SyncSender<Infallible>),
}

impl<T: Send + 'static> Mailbox<T> {
    /// Starts the thread, which handles the items one after the other.
    pub fn start(
        thread: &str,
        capacity: usize,
        mut handle: impl FnMut(T) + Send + 'static,
    ) -> io::Result<Self> {
        let (letters, received) = sync_channel(capacity);
        let thread = std::thread::Builder::new().name(thread.into());
        thread.spawn(move || {
            for letter in received {
                match letter {
                    Letter::Item(item) => handle(item),
                    Letter::Flush(done) => drop(done),
                }
            }
        })?;
        let dropped = AtomicU64::new(0);
        Ok(Self { letters, dropped })
    }
}

impl<T> Mailbox<T> {
    /// Puts an item into the mailbox. If the mailbox is full, the item is dropped and counted.
    pub fn send(&self, item: T) {
        if self.letters.try_send(Letter::Item(item)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of items dropped since the last call.
    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }

    /// Waits until every item was handled, for `limit` at most. It does not wait if the mailbox is full, because then
    /// the thread is stuck.
    pub fn flush(&self, limit: Duration) {
        let (flush, flushed) = sync_channel(0);
        if self.letters.try_send(Letter::Flush(flush)).is_ok() {
            let _ = flushed.recv_timeout(limit);
        }
    }
}

impl<T> fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

/// A mailbox with room for one item: the newest, which has everything that an older one has.
#[derive(Debug)]
pub struct Slot<T> {
    newest: Arc<Mutex<Option<T>>>,
    wakes: Mailbox<()>,
}

impl<T: Send + 'static> Slot<T> {
    /// Starts the thread.
    pub fn start(thread: &str, mut handle: impl FnMut(T) + Send + 'static) -> io::Result<Self> {
        let newest = Arc::new(Mutex::new(None));
        let filled = newest.clone();
        let wakes = Mailbox::start(thread, 1, move |()| {
            let item = taken(&filled);
            item.into_iter().for_each(&mut handle);
        })?;
        Ok(Self { newest, wakes })
    }

    /// Puts an item in place of the one that waits.
    pub fn put(&self, item: T) {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(item);
        // If there is no room for it, an earlier one still comes, and finds the newest item.
        self.wakes.send(());
    }
}

fn taken<T>(slot: &Mutex<Option<T>>) -> Option<T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

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
        let (go_on, may_go_on) = sync_channel::<()>(0);
        let (handled, seen) = sync_channel(8);
        let slot = Slot::start("test", move |item| {
            handled.send(item).expect("the test listens");
            let _ = may_go_on.recv();
        });
        let slot = slot.expect("a thread");
        slot.put(0);
        assert_eq!(seen.recv_timeout(SOON), Ok(0));
        slot.put(1);
        slot.put(2);
        drop((go_on, slot));
        assert_eq!(seen.iter().collect::<Vec<_>>(), [2]);
    }
}
