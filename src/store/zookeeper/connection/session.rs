//! One session over one connection, and the few requests that this store sends.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::super::failure::Failure;
use super::super::protocol::stamp::Stamp;
use super::super::protocol::wire::{Frame, Reader, code};
use super::silence::SilenceLimit;
use super::{LOST, NodeWatch, WireRequest};
use crate::future::shielded;
use crate::store::budget::Budget;

/// Where the servers of an ensemble are written down.
const ENSEMBLE: &str = "/zookeeper/config";

/// A session, over the connection that it has now. The next connection of the same session is another one of these, and
/// what is asked of this one then fails.
#[derive(Debug)]
pub(in super::super) struct Line {
    pub(super) id: i64,
    /// Time that the servers keep the session without hearing from it, as negotiated with them.
    pub(super) timeout: Duration,
    /// Says whether nodes belong to the user of the login.
    pub(super) is_owned: bool,
    pub(super) requests: mpsc::Sender<WireRequest>,
    pub(super) patience: SilenceLimit,
    /// Cancelled when the connection has ended.
    pub(super) ended: CancellationToken,
}

/// A session for the requests of one call, which all end with its budget. The outcome of a request that was cut off is
/// unknown.
#[derive(Debug)]
pub(in super::super) struct Session {
    pub(super) line: Arc<Line>,
    pub(in super::super) budget: Budget,
}

/// The server's report about a node.
#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct Stat {
    /// The stamp of the last change of its data.
    pub(in super::super) stamp: Stamp,
    /// The number of the last change of its data or its children.
    pub(in super::super) zxid: i64,
    pub(in super::super) created_ms: u64,
    pub(in super::super) version: i32,
    /// Number of children it ever had, which is the number of its next one.
    pub(in super::super) children_made: u32,
    /// Number of children that it got and that it lost.
    pub(in super::super) children_changes: i32,
    /// The session with which the node ends; 0 if it ends with none.
    pub(in super::super) owner: i64,
}

/// The kind of a node that is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Mode {
    Persistent,
    /// Ends with our session.
    Ephemeral,
    /// Ends with our session; the server adds a number to its path.
    Numbered,
    /// Removed by the server some time after its last child.
    Container,
}

/// One step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Change {
    Create(String, Vec<u8>, Mode),
    /// Writes the data; with a version, only if the node has it.
    Set(String, Vec<u8>, Option<i32>),
    Delete(String, Option<i32>),
}

/// A transaction was not carried out.
#[derive(Debug)]
pub(in super::super) struct Aborted {
    /// The step that failed, if the server names it.
    pub(in super::super) step: Option<usize>,
    pub(in super::super) failure: Failure,
}

impl From<Aborted> for Failure {
    fn from(aborted: Aborted) -> Self {
        aborted.failure
    }
}

impl Session {
    pub(in super::super) fn id(&self) -> i64 {
        self.line.id
    }

    /// Returns for how long the servers keep the session without hearing from it.
    pub(in super::super) fn timeout(&self) -> Duration {
        self.line.timeout
    }

    /// Returns how the node of a lease is made. It ends with the session only if the ttl ends first: the servers can
    /// hear of a session up to half a tick late, and a tick is at most half of its time-out.
    pub(in super::super) fn mode(&self, ttl: Duration) -> Mode {
        if ttl <= self.timeout() * 3 / 4 {
            Mode::Ephemeral
        } else {
            Mode::Persistent
        }
    }

    /// Has a silent server left in time for a lease with this ttl.
    pub(in super::super) fn hurry(&self, ttl: Duration) {
        self.line.patience.limit_for(ttl);
    }

    async fn ask(&self, frame: Frame, watch: Option<NodeWatch>) -> Result<Vec<u8>, Failure> {
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

    /// Returns the children of a node, and watches them if it is told how.
    pub(in super::super) async fn children(
        &self,
        path: &str,
        watch: Option<NodeWatch>,
    ) -> Result<(Vec<String>, Stat), Failure> {
        let frame = Frame::request(code::CHILDREN).text(path);
        let reply = self.ask(frame.flag(watch.is_some()), watch).await?;
        read(Reader::new(&reply).children())
    }

    pub(in super::super) async fn data(&self, path: &str) -> Result<(Vec<u8>, Stat), Failure> {
        let frame = Frame::request(code::DATA).text(path).flag(false);
        let reply = self.ask(frame, None).await?;
        read(Reader::new(&reply).data())
    }

    pub(in super::super) async fn is_there(&self, path: &str) -> Result<bool, Failure> {
        let frame = Frame::request(code::EXISTS).text(path).flag(false);
        match self.ask(frame, None).await {
            Err(Failure::NoNode) => Ok(false),
            reply => reply.map(|_| true),
        }
    }

    /// Makes the server catch up with its leader before it answers later requests.
    pub(in super::super) async fn sync(&self, path: &str) -> Result<(), Failure> {
        let frame = Frame::request(code::SYNC).text(path);
        self.ask(frame, None).await.map(drop)
    }

    pub(in super::super) async fn set(&self, path: &str, data: &[u8]) -> Result<Stat, Failure> {
        let frame = Frame::request(code::SET).text(path).bytes(data).int(-1);
        let reply = self.ask(frame, None).await?;
        read(Reader::new(&reply).stat())
    }

    /// Makes a node, unless it exists.
    pub(in super::super) async fn ensure(&self, path: &str) -> Result<(), Failure> {
        let frame = Frame::request(code::CREATE).text(path).bytes(b"");
        let frame = frame.access(self.line.is_owned).int(0);
        match self.ask(frame, None).await {
            Ok(_) | Err(Failure::Changed) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Does all steps or none. Returns the stat of the node that each `Set` wrote; the stats of other steps are of no
    /// use, because the server fills them with arbitrary values.
    pub(in super::super) async fn transact(&self, steps: &[Change]) -> Result<Vec<Stat>, Aborted> {
        let whole = |failure| Aborted {
            step: None,
            failure,
        };
        let frame = steps.iter();
        let frame = frame.fold(Frame::request(code::TRANSACTION), |frame, step| {
            frame.step(step, self.line.is_owned)
        });
        let reply = self.ask(frame.end_of_steps(), None).await.map_err(whole)?;
        let outcome = read(Reader::new(&reply).steps()).map_err(whole)?;
        outcome.map_err(|(step, error)| Aborted {
            step: Some(step),
            failure: Failure::of(error),
        })
    }

    /// Returns the configured servers of the ensemble; an empty text if it is one server without a configuration.
    pub(in super::super) async fn ensemble(&self) -> Result<String, Failure> {
        let (data, _) = self.data(ENSEMBLE).await?;
        Ok(String::from_utf8_lossy(&data).into_owned())
    }
}

fn read<T>(reply: Option<T>) -> Result<T, Failure> {
    reply.ok_or_else(|| Failure::Odd("reply"))
}
