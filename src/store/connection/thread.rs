//! A thread that drives the connections of a store.
//!
//! ```text
//!   caller on any runtime --(request)--> connection's task on this thread <--> server
//! ```
//!
//! A connection is a task of the runtime on which it was made: while that runtime is blocked, or once it has ended, no
//! task reads the server's answers. But a client can be used from several runtimes, one after the other or at the same
//! time. So a store makes the connections that its callers share on this thread, which has a runtime of its own.
//!
//! The watchdog and the subscription of waiting clients have threads of their own, and their connections are made
//! there.

use std::future::Future;
use std::io;

use parking_lot::Mutex;
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The thread, started for the first task. When this is dropped, the thread ends and its tasks end with it.
#[derive(Debug, Default)]
pub(in crate::store) struct Driver {
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    handle: Handle,
    /// The thread ends when this is dropped.
    _stop: oneshot::Sender<()>,
}

impl Driver {
    /// Runs this future on the thread. It keeps running when the handle is dropped; the handle can be awaited on any
    /// runtime.
    ///
    /// # Errors
    /// The error of the operating system if the thread could not be started. The next call tries again.
    pub(super) fn spawn<F>(&self, future: F) -> io::Result<JoinHandle<F::Output>>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        Ok(self.handle()?.spawn(future))
    }

    /// Returns the thread's runtime.
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    pub(in crate::store) fn handle(&self) -> io::Result<Handle> {
        let mut running = self.running.lock();
        let running = match &mut *running {
            Some(running) => running,
            none => none.insert(Running::start()?),
        };
        Ok(running.handle.clone())
    }
}

impl Running {
    fn start() -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let drive = move || {
            // An error says that the store was dropped, which is what this waits for.
            let _ = runtime.block_on(stopped);
            // A look-up of a host name may hang in a thread of its own; nothing waits for it.
            runtime.shutdown_background();
        };
        let name = "leasehold-store".into();
        std::thread::Builder::new().name(name).spawn(drive)?;
        Ok(Self {
            handle,
            _stop: stop,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_a_runtime<T>(future: impl Future<Output = T>) -> T {
        let runtime = runtime::Builder::new_current_thread().build();
        runtime.expect("a runtime").block_on(future)
    }

    #[test]
    fn a_task_outlives_the_runtime_of_its_caller() {
        let driver = Driver::default();
        let (tx, rx) = oneshot::channel();
        let task = on_a_runtime(async { driver.spawn(async { rx.await.expect("a word") }) });
        tx.send(7).expect("it listens");
        let answer = on_a_runtime(task.expect("a thread"));
        assert_eq!(answer.expect("no panic"), 7);
    }

    #[test]
    fn its_tasks_end_with_it() {
        let driver = Driver::default();
        let task = driver.spawn(std::future::pending::<()>());
        drop(driver);
        let ended = on_a_runtime(task.expect("a thread"));
        assert!(ended.expect_err("it never returns").is_cancelled());
    }
}
