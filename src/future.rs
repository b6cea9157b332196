//! The one shape of a future behind a trait object, and one whose waker cannot harm those who wake it.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

/// A boxed future that can be moved to any thread: what the methods of a store and of a fence return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Awaits a future that is woken by a thread or a task of others, such as one attempt that many callers wait for.
///
/// A waker is code of the caller's and may panic, as that of an event loop that has ended. The panic would end what wakes
/// it: the task of a connection that all share, or the thread by which all leases live. Here it ends nothing but the wake.
pub(crate) async fn shielded<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let waker = Waker::from(Arc::new(Shield(context.waker().clone())));
        future.as_mut().poll(&mut Context::from_waker(&waker))
    })
    .await
}

struct Shield(Waker);

impl Wake for Shield {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The panic hook has told of it. The future it belongs to is not polled again, which is its owner's affair.
        let _ = catch_unwind(AssertUnwindSafe(|| self.0.wake_by_ref()));
    }
}
