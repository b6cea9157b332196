//! The thread for all blocking work of one open store, which so depends on nothing of the user's runtime: neither on a
//! blocking pool that others may have filled, nor on a free executor.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::database::Database;
use super::failure::Failure;
use super::transaction::Caller;
use crate::clock::{Clock, Monotonic};

/// Maximum number of requests that wait for the thread. Each takes some 20 to 50 microseconds, so a full queue is a few
/// milliseconds of work; a caller that finds it full waits, within the limit.
const QUEUE: usize = 128;

/// Extra time after its limit before a request gives up on a thread that does not answer, because the disk hangs.
const GRACE: Duration = Duration::from_millis(20);

/// How long a store that is closed waits for its thread.
const CLOSING: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce(&mut Database) + Send>;

/// The handle on the thread. The thread ends when it is closed or dropped and the queue is empty.
#[derive(Debug)]
pub(super) struct Thread {
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    ended: CancellationToken,
}

impl Thread {
    /// Starts the thread. Returns once the file is open.
    pub(super) async fn start(
        open: impl FnOnce(Caller<'_>) -> Result<Database, Failure> + Send + 'static,
        limit: Duration,
    ) -> Result<Self, Failure> {
        let (jobs, mut queue) = mpsc::channel::<Job>(QUEUE);
        let (opened, is_open) = oneshot::channel();
        let ended = CancellationToken::new();
        let at_end = ended.clone().drop_guard();
        let until = Monotonic.now().after(limit);
        let body = move || {
            let _at_end = at_end;
            match open(Caller::new(until, &|| opened.is_closed())) {
                Err(failure) => drop(opened.send(Err(failure))),
                Ok(mut file) => {
                    // If the caller has given up, the queue has ended.
                    let _ = opened.send(Ok(()));
                    while let Some(job) = queue.blocking_recv() {
                        job(&mut file);
                    }
                }
            }
        };
        let spawned = std::thread::Builder::new()
            .name("leasehold-sqlite".into())
            .spawn(body);
        spawned.map_err(|source| Failure::io("start the thread of the store", source))?;
        let opened = tokio::time::timeout(limit.saturating_add(GRACE), is_open).await;
        opened
            .map_err(|_| Failure::Late)?
            .map_err(|_| Failure::Ended)??;
        Ok(Self {
            jobs: Mutex::new(Some(jobs)),
            ended,
        })
    }

    /// Runs this work on the thread. Returns at the limit, whatever the thread does.
    ///
    /// # Cancel safety
    /// From then on the thread does not begin the work, nor carry it out if it still waits to write.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce(&mut Database, Caller<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let jobs = self.jobs.lock().clone().ok_or(Failure::Closed)?;
        let until = Monotonic.now().after(limit);
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |file| {
            let is_gone = || reply.is_closed();
            let caller = Caller::new(until, &is_gone);
            if caller.is_gone() {
                return;
            }
            let done = if caller.waits() {
                work(file, caller)
            } else {
                Err(Failure::Late)
            };
            // Fails if the caller has given up. It then repeats or releases, as after a lost reply.
            drop(reply.send(done));
        });
        let answered = async {
            jobs.send(job).await.map_err(|_| Failure::Ended)?;
            answer.await.map_err(|_| Failure::Ended)?
        };
        match tokio::time::timeout(limit.saturating_add(GRACE), answered).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::Late),
        }
    }

    /// Gives the thread to this work, after which it ends.
    pub(super) async fn devote(&self, work: impl FnOnce(&mut Database) + Send + 'static) {
        let jobs = self.jobs.lock().take();
        if let Some(jobs) = jobs {
            // Fails if the thread has ended.
            let _ = jobs.send(Box::new(work)).await;
        }
    }

    /// Returns whether it was closed.
    pub(super) fn is_closed(&self) -> bool {
        self.jobs.lock().is_none()
    }

    /// Takes no more requests. Returns once the earlier ones are done and the file is closed.
    pub(super) async fn close(&self) {
        drop(self.jobs.lock().take());
        // A disk that hangs may keep the thread; no caller has to wait for that.
        let _ = tokio::time::timeout(CLOSING, self.ended.cancelled()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::boot::Boot;

    #[tokio::test]
    async fn a_request_ends_by_its_limit_though_the_thread_hangs() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("leases.sqlite");
        let open = move |caller: Caller<'_>| {
            let boot = Boot::new("b".into(), 0);
            Database::open(&file, boot, caller)
        };
        let thread = Thread::start(open, CLOSING).await.expect("it opens");
        let (disk, hung) = std::sync::mpsc::sync_channel::<()>(0);
        let limit = Duration::from_millis(100);
        let until = Monotonic.now().after(limit);
        let hang = thread.ask(limit, move |_, _| Ok(hung.recv().is_ok()));
        let behind = thread.ask(limit, |_, _| Ok(true));
        let (hang, behind) = tokio::join!(hang, behind);
        assert!(matches!(hang, Err(Failure::Late)) && matches!(behind, Err(Failure::Late)));
        let over = Monotonic.now().since(until);
        assert!(over < Duration::from_millis(200), "ended {over:?} late");
        disk.send(()).expect("the thread waits");
        assert!(matches!(thread.ask(CLOSING, |_, _| Ok(7)).await, Ok(7)));
    }
}
