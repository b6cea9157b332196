#![doc = include_str!("README.md")]

mod object;
mod parts;
mod try_out;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::object_store::path::Path;
use ::object_store::{
    Error as DriverError, ObjectStore, ObjectStoreExt, PutMode, PutResult, UpdateVersion,
};
use bytes::Bytes;
use parking_lot::Mutex;
use uuid::Uuid;

pub use self::object::Object;
use super::{Admission, Bearer, Blocked, Pass, checked, judge, refuse};
use crate::clock::{Clock, Instant, Monotonic};
use crate::error::{Error, ErrorKind};
use crate::telemetry::{FenceCheck, FenceKind};

/// The crate whose types this module takes, in the version with which leasehold was built.
#[doc(no_inline)]
pub use ::object_store;

/// How long a raise or a commit tries while other writers come between: longer than a lease that ended is still written
/// under, and much shorter than a ttl, so that the tries do not use up the next lease.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it tries at least, however slow the store is.
const LEAST_TRIES: u32 = 8;
/// The longest pause before the next try, in milliseconds. Short, because a writer that remembers its last version
/// needs no pause at all between two commits.
const LONGEST_PAUSE_MS: u64 = 16;

/// How many commits in a row need no read. Before the next one a writer gives way for some round trips, because a raise
/// of a successor needs one between its read and its put, in which such a writer would always come first.
const COMMITS_IN_A_ROW: u32 = 16;
/// For how many round trips.
const GIVEN_WAY: u32 = 2;

/// The fence of one object in an object store. The [module](self) has its guarantees.
///
/// A clone shares what the first one remembers.
#[derive(Clone)]
pub struct Fence {
    store: Arc<dyn ObjectStore>,
    path: Path,
    memory: Arc<Mutex<Recollection>>,
}

/// What this process knows of the object.
#[derive(Debug, Default)]
struct Recollection {
    /// The object after the last write of this process: the next commit under the same pass need not read it.
    last: Option<Object>,
    /// How many commits have gone on from it.
    in_a_row: u32,
    /// Whether the store was seen to refuse a put with an outdated version.
    is_proven: bool,
}

/// What became of a conditional put.
enum Put {
    Done(UpdateVersion),
    /// The object has another version, or is there already.
    Refused,
    /// The answer was lost, or does not say.
    Unknown(Error),
}

impl Fence {
    /// Makes the fence of the object at this path, which need not be there.
    ///
    /// # Errors
    /// `Invalid` for an empty path.
    pub fn new(store: Arc<dyn ObjectStore>, path: impl Into<Path>) -> Result<Self, Error> {
        let path = path.into();
        if path.is_root() {
            return Err(Error::invalid(
                "path \"\" refused: expected that of an object",
            ));
        }
        Ok(Self {
            store,
            path,
            memory: Arc::default(),
        })
    }

    /// Returns the path of the fenced object.
    pub const fn path(&self) -> &Path {
        &self.path
    }

    /// Raises the fence, so that no older holder can write from then on, and returns the object, whose content stays as
    /// it was: empty if there was no object. Call it before the first read.
    ///
    /// # Errors
    /// See the [module](self). `Lost` if the lease's own deadline has passed.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the outcome unknown. The call is idempotent: repeat it.
    pub async fn raise(&self, bearer: &dyn Bearer) -> Result<Object, Error> {
        let pass = bearer.pass()?;
        let check = FenceCheck::begin(FenceKind::ObjectStore);
        let raised = self.raise_pass(bearer, &pass).await;
        checked(check, bearer, &pass, raised)
    }

    /// Replaces the content by what `next` makes of the current one, and returns the object as written. If another task
    /// with the same pass wrote in between, `next` is called again, with that content.
    ///
    /// # Errors
    /// See the [module](self). `Lost` if the lease's own deadline has passed.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the outcome unknown.
    pub async fn commit<T: Into<Bytes>>(
        &self,
        bearer: &dyn Bearer,
        mut next: impl FnMut(&[u8]) -> T + Send,
    ) -> Result<Object, Error> {
        let pass = bearer.pass()?;
        let check = FenceCheck::begin(FenceKind::ObjectStore);
        let next = |current: &Bytes| next(current).into();
        let committed = self.commit_pass(bearer, &pass, next).await;
        checked(check, bearer, &pass, committed)
    }

    /// Reads the object; `None` if there is none. It needs no lease: any reader can call it.
    ///
    /// # Errors
    /// See the [module](self).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn read(&self) -> Result<Option<Object>, Error> {
        let answer = match self.store.get(&self.path).await {
            Ok(answer) => answer,
            Err(DriverError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(self.failed("read", error)),
        };
        let (e_tag, version) = (answer.meta.e_tag.clone(), answer.meta.version.clone());
        let version = self.version(UpdateVersion { e_tag, version })?;
        let bytes = answer.bytes().await;
        let bytes = bytes.map_err(|error| self.failed("read", error))?;
        let object = Object::parse(bytes, version);
        object.map(Some).map_err(|what| {
            self.misconfigured("the object is not a fenced one")
                .with_source(what)
        })
    }

    async fn raise_pass(&self, bearer: &dyn Bearer, pass: &Pass) -> Result<Object, Error> {
        let (mut unknown, mut tries) = (None, Tries::begin());
        let mut seen = self.read().await?;
        loop {
            let admission = self.judged(bearer, seen.as_ref(), pass)?;
            if admission == Admission::Again
                && self.memory.lock().is_proven
                && let Some(seen) = seen
            {
                return Ok(self.remember(seen));
            }
            let raised = Object::raised(seen.as_ref(), pass);
            match self.put(seen.as_ref(), &raised).await? {
                Put::Done(version) => {
                    self.prove(seen.as_ref(), &raised).await?;
                    seen = Some(Object { version, ..raised });
                    continue;
                }
                Put::Refused => {}
                Put::Unknown(error) => unknown = Some(error),
            }
            if !tries.again().await {
                return Err(unknown.unwrap_or_else(|| Blocked::error(self.path.as_ref())));
            }
            seen = self.read().await?;
        }
    }

    async fn commit_pass(
        &self,
        bearer: &dyn Bearer,
        pass: &Pass,
        mut next: impl FnMut(&Bytes) -> Bytes,
    ) -> Result<Object, Error> {
        let write = Uuid::new_v4().simple().to_string();
        let (mut unknown, mut tries) = (None, Tries::begin());
        let mut current = match self.remembered(pass) {
            Some(current) => current,
            None => self.raise_pass(bearer, pass).await?,
        };
        let began_at = Monotonic.now();
        loop {
            let written = current.followed(pass, &write, next(&current.content));
            match self.put(Some(&current), &written).await? {
                Put::Done(version) => {
                    let written = self.remember(Object { version, ..written });
                    self.give_way(Monotonic.now().since(began_at)).await;
                    return Ok(written);
                }
                Put::Refused => {}
                Put::Unknown(error) => unknown = Some(error),
            }
            self.memory.lock().last = None;
            let seen = self.seen_after(unknown.as_ref()).await?;
            match (seen.has(&write, current.number), unknown) {
                (Some(true), _) => return Ok(seen),
                (None, Some(error)) => return Err(error),
                (_, still) => unknown = still,
            }
            self.judged(bearer, Some(&seen), pass)?;
            if !tries.again().await {
                return Err(unknown.unwrap_or_else(|| Blocked::error(self.path.as_ref())));
            }
            current = seen;
        }
    }

    /// Reads the object after a put that was not acknowledged. If the put's own answer was lost and the object cannot
    /// be read either, the error is that of the put.
    async fn seen_after(&self, unknown: Option<&Error>) -> Result<Object, Error> {
        match (self.read().await, unknown) {
            (Ok(Some(seen)), _) => Ok(seen),
            (Ok(None), _) => {
                Err(self.misconfigured("the object was deleted, and its fence with it"))
            }
            (Err(_), Some(unknown)) => Err(unknown.clone()),
            (Err(error), None) => Err(error),
        }
    }

    fn judged(
        &self,
        bearer: &dyn Bearer,
        seen: Option<&Object>,
        pass: &Pass,
    ) -> Result<Admission, Error> {
        judge(seen.map(|seen| &seen.pass), pass)
            .map_err(|refusal| refuse(bearer, self.path.as_ref(), pass, refusal))
    }

    /// Sends a put that must be refused: the one that was just carried out, once more. A store that does not compare
    /// carries it out again, and the bytes are the same.
    async fn prove(&self, replaced: Option<&Object>, written: &Object) -> Result<(), Error> {
        if self.memory.lock().is_proven {
            return Ok(());
        }
        match self.put(replaced, written).await? {
            Put::Refused => {
                self.memory.lock().is_proven = replaced.is_some();
                Ok(())
            }
            Put::Done(_) => Err(self.misconfigured(
                "the store does not compare versions: a put with an outdated one was carried out",
            )),
            Put::Unknown(error) => Err(error),
        }
    }

    /// Writes the object if it still is the one that is to be replaced, or still is absent.
    async fn put(&self, replaced: Option<&Object>, object: &Object) -> Result<Put, Error> {
        let mode = match replaced {
            Some(replaced) => PutMode::Update(replaced.version.clone()),
            None => PutMode::Create,
        };
        let answer = self
            .store
            .put_opts(&self.path, object.payload(), mode.into());
        match answer.await.map(PutResult::into) {
            Ok(version) => self.version(version).map(Put::Done),
            Err(DriverError::Precondition { .. } | DriverError::AlreadyExists { .. }) => {
                Ok(Put::Refused)
            }
            Err(error) => match self.failed("write", error) {
                error if error.kind() == ErrorKind::Unavailable => Ok(Put::Unknown(error)),
                error => Err(error),
            },
        }
    }

    fn version(&self, version: UpdateVersion) -> Result<UpdateVersion, Error> {
        if version.e_tag.is_none() && version.version.is_none() {
            return Err(self.misconfigured("the store's answers have no version"));
        }
        Ok(version)
    }

    /// Pauses after many commits in a row, of which the last one took this long.
    async fn give_way(&self, took: Duration) {
        let is_due = {
            let mut memory = self.memory.lock();
            memory.in_a_row = (memory.in_a_row + 1) % COMMITS_IN_A_ROW;
            memory.in_a_row == 0
        };
        if is_due {
            tokio::time::sleep(took * GIVEN_WAY).await;
        }
    }

    fn remembered(&self, pass: &Pass) -> Option<Object> {
        let last = self.memory.lock().last.clone();
        last.filter(|last| last.pass == *pass)
    }

    fn remember(&self, object: Object) -> Object {
        self.memory.lock().last = Some(object.clone());
        object
    }

    fn failed(&self, action: &str, error: DriverError) -> Error {
        failed(action, &self.path, error)
    }

    fn misconfigured(&self, why: &str) -> Error {
        let text = format!("fence failed: {why} path={:?}", self.path.as_ref());
        Error::new(ErrorKind::Misconfigured, text)
    }
}

/// Without the settings of the store, which may show secrets, and without the content.
impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence")
            .field("store", &format_args!("{}", self.store))
            .field("path", &self.path.as_ref())
            .finish_non_exhaustive()
    }
}

/// The tries of one call, while other writers come between.
struct Tries {
    end: Instant,
    count: u32,
}

impl Tries {
    fn begin() -> Self {
        Self {
            end: Monotonic.now().after(PATIENCE),
            count: 0,
        }
    }

    /// Gives the other writers time. Returns whether there is to be another try.
    async fn again(&mut self) -> bool {
        if self.count >= LEAST_TRIES && Monotonic.now() >= self.end {
            return false;
        }
        self.count += 1;
        let pause = fastrand::u64(..=LONGEST_PAUSE_MS.min(u64::from(self.count)));
        tokio::time::sleep(Duration::from_millis(pause)).await;
        true
    }
}

/// Returns the error of a request that failed for another reason than its condition.
fn failed(action: &str, path: &Path, error: DriverError) -> Error {
    let (kind, why) = match &error {
        DriverError::NotImplemented { .. } | DriverError::NotSupported { .. } => (
            ErrorKind::Misconfigured,
            ": the store has no conditional puts; for a local folder use the fence in SQLite",
        ),
        DriverError::NotFound { .. } => (ErrorKind::Misconfigured, ": the bucket is missing"),
        DriverError::PermissionDenied { .. } | DriverError::Unauthenticated { .. } => {
            (ErrorKind::Denied, "")
        }
        DriverError::InvalidPath { .. } => (ErrorKind::Invalid, ""),
        DriverError::UnknownConfigurationKey { .. } => (ErrorKind::Misconfigured, ""),
        _ => (ErrorKind::Unavailable, ""),
    };
    let path = path.as_ref();
    Error::new(kind, format!("{action} failed{why} path={path:?}")).with_source(error)
}
