//! A boxed future, and a future whose waker cannot harm the thread that wakes it.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

/// A boxed future that can be moved to any thread. The methods of a store and of a fence return it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Awaits a future that a foreign thread or task wakes, such as one attempt that many callers wait for.
///
/// A waker is user code and may panic, as that of an event loop that has ended. The panic would end the task or thread
/// that wakes it: the task of a shared connection, or the watchdog's thread. Here it ends only the wake-up.
pub(crate) async fn shielded<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    // Kept from poll to poll: a caller mostly comes with the same waker.
    let mut shield: Option<(Waker, Waker)> = None;
    poll_fn(|context| {
        let shield = match shield.take() {
            Some(kept) if kept.0.will_wake(context.waker()) => shield.insert(kept),
            _ => {
                let waker = context.waker().clone();
                shield.insert((waker.clone(), Waker::from(Arc::new(Shield(waker)))))
            }
        };
        future.as_mut().poll(&mut Context::from_waker(&shield.1))
    })
    .await
}

struct Shield(Waker);

impl Wake for Shield {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The panic hook has reported it. The future is not polled again, which is a matter for its owner.
        let _ = catch_unwind(AssertUnwindSafe(|| self.0.wake_by_ref()));
    }
}
