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

use std::io;

use parking_lot::Mutex;
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

use super::Unconnected;

/// The thread, started for the first task. When this is dropped, the thread ends and its tasks end with it.
#[derive(Debug, Default)]
pub(crate) struct Driver {
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    handle: Handle,
    /// The thread ends when this is dropped.
    _stop: oneshot::Sender<()>,
}

impl Driver {
    /// Returns the thread's runtime. Its tasks can be awaited on any runtime.
    ///
    /// # Errors
    /// `NoThread` if the thread could not be started. The next call tries again.
    pub(crate) fn handle(&self) -> Result<Handle, Unconnected> {
        let mut running = self.running.lock();
        let running = match &mut *running {
            Some(running) => running,
            none => none.insert(Running::start().map_err(|_| Unconnected::NoThread)?),
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
            // An error means that the store was dropped: the awaited event.
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
        let word = async { rx.await.expect("a word") };
        let task = on_a_runtime(async { driver.handle().map(|thread| thread.spawn(word)) });
        tx.send(7).expect("it listens");
        let answer = on_a_runtime(task.expect("a thread"));
        assert_eq!(answer.expect("no panic"), 7);
    }

    #[test]
    fn its_tasks_end_with_it() {
        let driver = Driver::default();
        let thread = driver.handle().expect("a thread");
        let task = thread.spawn(std::future::pending::<()>());
        drop(driver);
        let ended = on_a_runtime(task);
        assert!(ended.expect_err("it never returns").is_cancelled());
    }
}
