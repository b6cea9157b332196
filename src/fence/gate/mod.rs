//! A durable gate: the fence for a service that has no database to compare in.
//!
//! A handler enters the gate with the pass that came with its request, and writes while it is inside. Entries under one
//! pass run side by side; a newer pass waits until those of the older have left, is made durable, and only then lets
//! its first entry in.
//!
//! ```
//! # use leasehold::{Holder, Name, Token, fence::Pass};
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold::fence::gate::Gate;
//! # let folder = tempfile::tempdir()?;
//! # let pass = Pass::new(Name::new("nightly")?, Holder::draw(leasehold::ClientId::draw())?, Token::new(41)?);
//! let gate = Gate::open(folder.path().join("fences")).await?;
//!
//! let entry = gate.enter("device/7", &pass).await?; // a lease, or a pass
//! // ... write to the device ...
//! drop(entry);
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//! 1. A pass is durable before the first entry under it: no restart forgets one that has written.
//! 2. No entry under an older pass is open while one under a newer pass is.
//! 3. Resources do not wait for each other, except for the journal's own write.
//!
//! # Assumptions
//! All writes to the resource go through this one gate, and what a handler starts ends before its [`Entry`] does. The
//! disk keeps what it said it had written. Resources are a limited set: the row of one that was raised is kept for ever.
//!
//! # Errors
//! `Stale` with the [`Refusal`](super::Refusal); `TimedOut` with [`Blocked`] where an older entry did not leave in time;
//! `Unavailable` where the journal cannot be written: then nothing was let in.
//!
//! # Cancel safety
//! Dropped while it waits, an entry is given up. A raise whose journal was being written is finished all the same.

mod file;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tokio::time::timeout;

pub use self::file::File;
use super::{Admission, Bearer, Blocked, Pass, checked_resource, judge, refused};
use crate::error::{Error, ErrorKind};
use crate::future::BoxFuture;

/// How long a raise waits for older entries to leave, where the user says nothing: as long as in Postgres.
const PATIENCE: Duration = Duration::from_secs(2);

/// The row of one resource, locked for reading by its entries and for writing by a raise.
type Row = Arc<RwLock<Option<Pass>>>;

/// The rows of all resources. Those that were raised stay; a row without a pass stays while a task uses it.
type Rows = Arc<Mutex<HashMap<String, Row>>>;

/// A row in use.
struct InUse {
    rows: Rows,
    resource: String,
    row: Row,
}

/// A fence around many resources of one service. The [module](self) says what it promises. Clones are one gate.
#[derive(Clone)]
pub struct Gate {
    journal: Arc<dyn Journal>,
    rows: Rows,
    patience: Duration,
}

/// Where a gate keeps its rows.
pub trait Journal: fmt::Debug + Send + Sync + 'static {
    /// Everything that was kept, as resource and pass, in the order in which it was kept.
    fn load(&self) -> BoxFuture<'_, Result<Vec<(String, Pass)>, Error>>;

    /// Keeps the row of a resource, in place of an older one. It answers only once the row would survive a loss of power.
    fn keep<'a>(&'a self, resource: &'a str, pass: &'a Pass) -> BoxFuture<'a, Result<(), Error>>;
}

/// A write that has been let in. While it lives no newer pass is. A task that has one must not enter the same resource again:
/// a raise that waits in between would block both.
#[must_use = "the write is over when this is dropped"]
pub struct Entry {
    row: OwnedRwLockReadGuard<Option<Pass>>,
}

impl Gate {
    /// A gate whose rows are kept in this file, which is made if it is not there. One process at a time has it.
    ///
    /// # Errors
    /// `Misconfigured` for a file that is damaged, or that another process has; `Unavailable` where it cannot be read.
    ///
    /// # Cancel safety
    /// Dropping it leaves nothing behind.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        Self::with_journal(File::open(path).await?).await
    }

    /// A gate whose rows are kept where the user likes.
    ///
    /// # Errors
    /// What the journal says to being read.
    ///
    /// # Cancel safety
    /// Dropping it leaves nothing behind.
    pub async fn with_journal(journal: impl Journal) -> Result<Self, Error> {
        let mut rows = HashMap::<String, Pass>::new();
        for (resource, pass) in journal.load().await? {
            if judge(rows.get(&resource), &pass).is_ok() {
                rows.insert(resource, pass);
            }
        }
        let rows = rows.into_iter();
        let rows = rows.map(|(resource, pass)| (resource, Arc::new(RwLock::new(Some(pass)))));
        Ok(Self {
            journal: Arc::new(journal),
            rows: Arc::new(Mutex::new(rows.collect())),
            patience: PATIENCE,
        })
    }

    /// The same gate with another limit for a raise that waits for older entries to leave; 2 s where none is given.
    #[must_use = "returns the gate with its limit"]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Lets a write in if the bearer's pass is good, and raises the fence to it first.
    ///
    /// # Errors
    /// As the [module](self) says; `Lost` where a lease knows itself that its time is up.
    ///
    /// # Cancel safety
    /// As the [module](self) says.
    pub async fn enter(&self, resource: &str, bearer: &dyn Bearer) -> Result<Entry, Error> {
        checked_resource(resource)?;
        let pass = bearer.pass()?;
        let used = InUse::of(&self.rows, resource);
        let reading = self.wait(resource, used.row.clone().read_owned()).await?;
        let admission = match judge(reading.as_ref(), &pass) {
            Ok(Admission::Again) => return Ok(Entry { row: reading }),
            admission => admission,
        };
        drop(reading);
        admission.map_err(|refusal| refused(bearer, resource, &pass, refusal))?;
        let writing = self.wait(resource, used.row.clone().write_owned()).await?;
        // Others may have come in between.
        match judge(writing.as_ref(), &pass) {
            Ok(Admission::Again) => Ok(Entry {
                row: writing.downgrade(),
            }),
            Ok(Admission::Raise) => self.keep(used, pass, writing).await,
            Err(refusal) => Err(refused(bearer, resource, &pass, refusal)),
        }
    }

    /// Raises the fence, so that no older pass is let in from here on. Call it before the first read.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    ///
    /// # Cancel safety
    /// As [`enter`](Self::enter).
    pub async fn raise(&self, resource: &str, bearer: &dyn Bearer) -> Result<(), Error> {
        self.enter(resource, bearer).await.map(drop)
    }

    /// The pass that the gate knows of this resource, if any.
    ///
    /// # Cancel safety
    /// Dropping it leaves nothing behind.
    pub async fn row(&self, resource: &str) -> Option<Pass> {
        let row = self.rows().get(resource).cloned()?;
        row.read().await.clone()
    }

    /// In a task of its own, so that no dropped future leaves the journal ahead of the memory.
    async fn keep(
        &self,
        used: InUse,
        pass: Pass,
        row: OwnedRwLockWriteGuard<Option<Pass>>,
    ) -> Result<Entry, Error> {
        let journal = self.journal.clone();
        let keeping = tokio::spawn(async move {
            // Taken over, so that it is let go before the row is left.
            let mut row = row;
            journal.keep(&used.resource, &pass).await?;
            *row = Some(pass);
            Ok(Entry {
                row: row.downgrade(),
            })
        });
        keeping.await.unwrap_or_else(|error| {
            let text = "raise failed: the journal panicked, or the runtime is being shut down";
            Err(Error::new(ErrorKind::Unavailable, text).with_source(error))
        })
    }

    async fn wait<T>(&self, resource: &str, turn: impl Future<Output = T>) -> Result<T, Error> {
        let turn = timeout(self.patience, turn).await;
        turn.map_err(|_| Blocked::error(resource))
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<String, Row>> {
        locked(&self.rows)
    }
}

impl InUse {
    fn of(rows: &Rows, resource: &str) -> Self {
        let mut known = locked(rows);
        let row = match known.get(resource) {
            Some(row) => row.clone(),
            None => known.entry(resource.to_owned()).or_default().clone(),
        };
        drop(known);
        Self {
            rows: rows.clone(),
            resource: resource.to_owned(),
            row,
        }
    }
}

impl Drop for InUse {
    /// A resource that was never raised leaves nothing behind, or clients that invent resources would fill the memory.
    fn drop(&mut self) {
        let mut known = locked(&self.rows);
        // Let go of under the lock, so that of two who leave at once the second finds itself the last.
        let row = std::mem::take(&mut self.row);
        // One is ours, the other the map's; a lock on it would be a third.
        let is_last = Arc::strong_count(&row) == 2;
        if is_last && row.try_read().is_ok_and(|row| row.is_none()) {
            known.remove(&self.resource);
        }
        drop(row);
    }
}

fn locked(rows: &Rows) -> MutexGuard<'_, HashMap<String, Row>> {
    rows.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("journal", &self.journal)
            .field("resources", &self.rows().len())
            .finish_non_exhaustive()
    }
}

impl Entry {
    /// Under which pass.
    pub fn pass(&self) -> &Pass {
        self.row.as_ref().expect("an entry is under a pass")
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("pass", self.pass())
            .finish_non_exhaustive()
    }
}
