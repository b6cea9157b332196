//! One session over one connection, and the few requests that a call sends through it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot};
use tokio::time::{sleep, timeout};
use tokio_util::bytes::BytesMut;

use super::super::failure::Failure;
use super::super::protocol::wire::{Aborted, Change, Frame, Mode, Reader, Stat, code};
use super::super::{Shared, Zookeeper};
use super::silence::SilenceLimit;
use super::{LOST, NodeWatch, WireRequest};
use crate::clock::{Boottime, Clock};
use crate::future::shielded;
use crate::store::kit::budget::Budget;

/// The longest pause before the third read of a name that other clients change, and the longest of all: twice as long
/// each time.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// A session, over its current connection. The next connection of the session gets its own value, and requests through
/// this one then fail.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) id: i64,
    /// Time that the servers keep the session without hearing from it, as negotiated with them.
    pub(super) timeout: Duration,
    /// Closed when the connection has ended.
    pub(super) requests: mpsc::Sender<WireRequest>,
    pub(crate) silence_limit: SilenceLimit,
    /// Has a permit for each claim or release that may be under way.
    pub(super) in_flight: Semaphore,
}

/// One call of the store, with the session through which its requests go; all of them end with its budget. The outcome
/// of a request that was cut off is unknown. The clock learns from its writes.
pub(crate) struct SessionCall<'a> {
    pub(crate) store: &'a Zookeeper,
    pub(crate) shared: &'a Shared,
    pub(crate) line: Arc<Line>,
    pub(crate) budget: Budget,
    /// Whether the call has asked the leader for its time.
    pub(crate) has_stamp: AtomicBool,
}

/// The watches of nodes, by their paths. Each ends when the children of its node change, the node is deleted or the
/// connection ends.
pub(crate) type Watches = HashMap<String, oneshot::Receiver<()>>;

impl SessionCall<'_> {
    /// Returns how the node of a lease is made. It ends with the session only if the ttl ends first: the servers can
    /// hear of a session up to half a tick late, and a tick is at most half of its time-out.
    pub(crate) fn mode(&self, ttl: Duration) -> Mode {
        if ttl <= self.line.timeout * 3 / 4 {
            Mode::Ephemeral
        } else {
            Mode::Persistent
        }
    }

    /// Waits until few enough claims and releases are under way.
    pub(crate) async fn permit(&self) -> Result<SemaphorePermit<'_>, Failure> {
        let permit = timeout(self.budget.left(), self.line.in_flight.acquire()).await;
        let permit = permit.map_err(|_| Failure::Busy)?;
        Ok(permit.expect("it is never closed"))
    }

    async fn ask(&self, frame: Frame, watch: Option<NodeWatch>) -> Result<BytesMut, Failure> {
        let (reply, answer) = oneshot::channel();
        let request = WireRequest {
            frame,
            reply,
            watch,
        };
        let answered = async {
            let sent = self.line.requests.send(request).await;
            sent.map_err(|_| LOST)?;
            answer.await.map_err(|_| LOST)?
        };
        let answered = timeout(self.budget.left(), shielded(answered)).await;
        answered.unwrap_or(Err(Failure::Silent))
    }

    /// Returns the children of a node. Watches them from then on if there is room for the watch.
    pub(crate) async fn children(
        &self,
        path: &str,
        watches: Option<&mut Watches>,
    ) -> Result<(Vec<String>, Stat), Failure> {
        let (alarm, changed) = oneshot::channel();
        let watch = watches.is_some().then(|| NodeWatch {
            path: path.to_owned(),
            alarm,
        });
        let frame = Frame::request(code::CHILDREN).text(path);
        let reply = self.ask(frame.flag(watch.is_some()), watch).await?;
        if let Some(watches) = watches {
            watches.insert(path.to_owned(), changed);
        }
        read(Reader::new(&reply).children())
    }

    pub(crate) async fn data(&self, path: &str) -> Result<(Vec<u8>, Stat), Failure> {
        let frame = Frame::request(code::DATA).text(path).flag(false);
        let reply = self.ask(frame, None).await?;
        read(Reader::new(&reply).data())
    }

    /// Makes the server catch up with its leader before it answers later requests.
    pub(crate) async fn sync(&self, path: &str) -> Result<(), Failure> {
        let frame = Frame::request(code::SYNC).text(path);
        self.ask(frame, None).await.map(drop)
    }

    /// Makes a node, unless it exists.
    pub(crate) async fn ensure(&self, path: &str) -> Result<(), Failure> {
        let made = Change::Create(path.to_owned(), Vec::new(), Mode::Persistent);
        match self.transact(&[made]).await.map_err(Failure::from) {
            Ok(_) | Err(Failure::Changed) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Carries out all steps or none. Returns the stat of the node that each `Set` wrote; the stats of other steps are
    /// of no use, because the server fills them with arbitrary values.
    pub(crate) async fn transact(&self, steps: &[Change]) -> Result<Vec<Stat>, Aborted> {
        let whole = |failure| Aborted {
            step: None,
            failure,
        };
        // Nodes belong to the user of the login.
        let is_owned = self.shared.address.login.is_some();
        let frame = steps.iter();
        let frame = frame.fold(Frame::request(code::TRANSACTION), |frame, step| {
            frame.step(step, is_owned)
        });
        let reply = self.ask(frame.end_of_steps(), None).await.map_err(whole)?;
        let stats = match read(Reader::new(&reply).steps()).map_err(whole)? {
            Err(Aborted {
                failure: Failure::Expired,
                ..
            }) if steps.iter().any(Change::is_ephemeral) && self.is_alive().await => {
                return Err(whole(Failure::local_session()));
            }
            stats => stats?,
        };
        let mut remembered = self.shared.remembered.lock();
        for stat in &stats {
            remembered.clock.hear(stat.stamp, Boottime.now());
        }
        Ok(stats)
    }

    /// Returns whether the session lives although a transaction was told that it has ended: then only the leader does
    /// not know it.
    async fn is_alive(&self) -> bool {
        self.sync(self.shared.tree.root()).await.is_ok()
    }

    /// Like that, and returns the stat of the first node that a `Set` wrote.
    pub(crate) async fn write(&self, steps: &[Change]) -> Result<Stat, Failure> {
        let stats = self.transact(steps).await?;
        let stat = stats.first().copied();
        stat.ok_or_else(|| Failure::Odd("write without a stamp"))
    }

    pub(crate) async fn set(&self, path: &str, data: Vec<u8>) -> Result<Stat, Failure> {
        self.write(&[Change::Set(path.to_owned(), data, None)])
            .await
    }

    /// Repeats an attempt until no other client changes the name during it. From the third attempt on the server first
    /// catches up with its leader: until then a server that lags behind shows the same state.
    pub(crate) async fn until_unchanged<T, F>(&self, attempt: impl Fn() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let mut pause = Duration::ZERO;
        loop {
            match attempt().await {
                Err(failure) if failure.is_stale() && !self.budget.left().is_zero() => {}
                done => return done,
            }
            if !pause.is_zero() {
                sleep(pause.mul_f64(fastrand::f64()).min(self.budget.left())).await;
                self.sync(self.shared.tree.root()).await?;
            }
            pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        }
    }
}

fn read<T>(reply: Option<T>) -> Result<T, Failure> {
    reply.ok_or_else(|| Failure::Odd("reply"))
}
