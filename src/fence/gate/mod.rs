//! A durable gate: the fence for a service without a database that could compare.
//!
//! A handler enters the gate with the pass that came with its request, and writes while it is inside. Entries under one
//! pass run side by side. A newer pass waits until all entries under the older pass have ended, is made durable, and
//! only then gets its first entry.
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
//! 1. A pass is durable before the first entry under it: after a restart the gate still knows every pass that has
//!    written.
//! 2. While an entry under a newer pass is open, no entry under an older pass is.
//! 3. Resources wait for each other only for the write of the journal itself.
//!
//! # Assumptions
//! All writes to the resource go through this one gate, and what a handler starts ends before its [`Entry`] does. The
//! disk keeps what it reported as written. There is a limited set of resources, because the row of a raised resource is
//! kept for ever.
//!
//! # Errors
//! `Stale` with the [`Refusal`](super::Refusal); `TimedOut` with [`Blocked`] if an older entry did not end in time;
//! `Unavailable` if the journal cannot be written, `Misconfigured` if its file is no longer at its path: then nothing
//! was admitted.
//!
//! # Cancel safety
//! Dropping the future of [`enter`](Gate::enter) while it waits gives up the entry. A raise whose journal is being
//! written is still finished.

mod file;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tokio::time::timeout;

pub use self::file::File;
use super::{Admission, Bearer, Blocked, Pass, Shown, checked_resource, judge};
use crate::error::{Error, ErrorKind};
use crate::future::BoxFuture;
use crate::telemetry::FenceKind;

/// How long a raise waits for older entries to end by default: as long as in Postgres.
const PATIENCE: Duration = Duration::from_secs(2);

/// The row of one resource, locked for reading by its entries and for writing by a raise.
type Row = Arc<RwLock<Option<Pass>>>;

/// The rows of all resources. Rows of raised resources are kept; a row without a pass is kept while a task uses it.
type Rows = Arc<Mutex<HashMap<String, Row>>>;

/// A row in use.
struct InUse {
    rows: Rows,
    resource: String,
    row: Row,
}

/// A fence for many resources of one service. The [module](self) has its guarantees. All clones are the same gate.
#[derive(Clone)]
pub struct Gate {
    journal: Arc<dyn Journal>,
    rows: Rows,
    patience: Duration,
}

/// The durable storage for a gate's rows.
pub trait Journal: fmt::Debug + Send + Sync + 'static {
    /// Returns every pass that was kept, with its resource, oldest first.
    fn load(&self) -> BoxFuture<'_, Result<Vec<(String, Pass)>, Error>>;

    /// Keeps the row of a resource, instead of an older row. It completes only when the row would survive a loss of
    /// power.
    fn keep<'a>(&'a self, resource: &'a str, pass: &'a Pass) -> BoxFuture<'a, Result<(), Error>>;
}

/// A write that was admitted. While it lives no newer pass is admitted. A task that has an entry must not enter the
/// same resource again: a raise that waits in between would block both.
#[must_use = "the write is over when this is dropped"]
pub struct Entry {
    row: OwnedRwLockReadGuard<Option<Pass>>,
}

impl Gate {
    /// Opens a gate whose rows are kept in this file, which is made if it is missing. Only one gate at a time can have
    /// it open. A hard link to it is another file once the gate has written the file anew.
    ///
    /// # Errors
    /// `Misconfigured` for a file that is damaged, or that another process has open; `Unavailable` if it cannot be
    /// read.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        Self::with_journal(File::open(path).await?).await
    }

    /// Opens a gate whose rows are kept in a journal of the caller's.
    ///
    /// # Errors
    /// The errors of [`Journal::load`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
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

    /// Sets how long a raise waits for older entries to end (default: 2 s).
    #[must_use = "returns the gate with its limit"]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Raises the fence to the bearer's pass and admits its write, unless the pass is superseded.
    ///
    /// # Errors
    /// See the [module](self). `Lost` if the lease's own deadline has passed.
    ///
    /// # Cancel safety
    /// See the [module](self).
    pub async fn enter(&self, resource: &str, bearer: &dyn Bearer) -> Result<Entry, Error> {
        checked_resource(resource)?;
        let shown = Shown::of(bearer)?;
        let entry = self.enter_with(resource, &shown);
        shown.checked(FenceKind::Gate, entry).await
    }

    #[expect(
        clippy::await_holding_invalid_type,
        reason = "the guard is the write that was admitted: no newer pass may be admitted while it lives"
    )]
    async fn enter_with(&self, resource: &str, shown: &Shown<'_>) -> Result<Entry, Error> {
        let used = InUse::of(&self.rows, resource);
        let reading = self.wait(resource, used.row.clone().read_owned()).await?;
        match shown.judge(resource, reading.as_ref())? {
            Admission::Again => return Ok(Entry { row: reading }),
            Admission::Raise => drop(reading),
        }
        let writing = self.wait(resource, used.row.clone().write_owned()).await?;
        // Other tasks may have raised the row in between.
        match shown.judge(resource, writing.as_ref())? {
            Admission::Again => Ok(Entry {
                row: writing.downgrade(),
            }),
            Admission::Raise => self.keep(used, shown.pass.clone(), writing).await,
        }
    }

    /// Raises the fence, so that no older pass is admitted from then on. Call it before the first read.
    ///
    /// # Errors
    /// The same as those of [`enter`](Self::enter).
    ///
    /// # Cancel safety
    /// The same as for [`enter`](Self::enter).
    pub async fn raise(&self, resource: &str, bearer: &dyn Bearer) -> Result<(), Error> {
        self.enter(resource, bearer).await.map(drop)
    }

    /// Returns the pass that the gate has for this resource, if any.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn row(&self, resource: &str) -> Option<Pass> {
        let row = self.rows.lock().get(resource).cloned()?;
        row.read().await.clone()
    }

    /// Keeps the row in a task of its own, so that a dropped future cannot leave the journal ahead of the memory.
    #[expect(
        clippy::await_holding_invalid_type,
        reason = "the task holds it, which goes on although no caller polls"
    )]
    async fn keep(
        &self,
        used: InUse,
        pass: Pass,
        row: OwnedRwLockWriteGuard<Option<Pass>>,
    ) -> Result<Entry, Error> {
        let journal = self.journal.clone();
        let keeping = tokio::spawn(async move {
            // Moved in, so that the lock is released before the row is.
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
}

impl InUse {
    fn of(rows: &Rows, resource: &str) -> Self {
        let mut known = rows.lock();
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
    /// A resource that was never raised leaves nothing behind, so that clients that invent resources cannot fill the
    /// memory.
    fn drop(&mut self) {
        let mut known = self.rows.lock();
        // Dropped under the lock, so that if two entries end at once, the second finds that it is the last.
        let row = std::mem::take(&mut self.row);
        // One reference is ours, the other is the map's; a lock on the row would be a third.
        let is_last = Arc::strong_count(&row) == 2;
        if is_last && row.try_read().is_ok_and(|row| row.is_none()) {
            known.remove(&self.resource);
        }
        drop(row);
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("journal", &self.journal)
            .field("resources", &self.rows.lock().len())
            .finish_non_exhaustive()
    }
}

impl Entry {
    /// Returns the pass under which this entry was admitted.
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
