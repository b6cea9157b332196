#![doc = include_str!("README.md")]

mod object;
mod parts;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::object_store::path::Path;
use ::object_store::{ObjectStore, ObjectStoreExt, PutMode, PutResult, UpdateVersion};
use bytes::Bytes;
use parking_lot::Mutex;
use uuid::Uuid;

pub use self::object::Object;
use super::{Admission, Bearer, Blocked, Pass, Shown};
use crate::clock::{Clock, Monotonic};
use crate::conditional_puts::{ROUNDS, failed, is_refusal, try_out_at};
use crate::error::{Error, ErrorKind};
use crate::telemetry::FenceKind;

/// The crate whose types this module takes, in the version with which leasehold was built.
#[doc(no_inline)]
pub use ::object_store;

/// How long a raise or a commit retries after conflicts. Long enough to outlast writers whose lease has just ended, and
/// far below a ttl, so that retries do not use up the next lease.
const RETRY_FOR: Duration = Duration::from_secs(5);
/// Minimum number of tries, however slow the store is.
const LEAST_TRIES: u32 = 16;
/// The longest pause before the next try.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// After each version whose number is a multiple of this, writers that already hold the pass pause, so that a
/// successor's raise can win the race: it needs a round trip between its read and its put, while the writer of the last
/// version can replace it without a read.
const WRITES_IN_A_ROW: u64 = 16;
/// Length of that pause, in round trips.
const GIVEN_WAY: u32 = 2;
/// Maximum length of that pause: the last request may have taken minutes, with the retries of the crate.
const LONGEST_GIVEN_WAY: Duration = Duration::from_secs(1);

/// The fence of one object in an object store. The [module](self) has its guarantees.
///
/// A clone shares what the first one remembers.
#[derive(Clone)]
pub struct Fence {
    store: Arc<dyn ObjectStore>,
    path: Path,
    memory: Arc<Mutex<Recollection>>,
}

/// The last known state of the object.
#[derive(Debug, Default)]
struct Recollection {
    /// The object after the last write of this process: the next commit under the same pass need not read it.
    last: Option<Object>,
    /// Duration of the last request.
    took: Duration,
    /// True if the store was seen to refuse a put with an outdated version.
    is_proven: bool,
}

/// Returns the next content, from the current one.
type Next<'a> = dyn FnMut(&Bytes) -> Bytes + Send + 'a;

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

    /// Checks that a store compares versions as a fence needs it: races puts on one version, exactly one of which must
    /// win. Run it once against a server that is not one of the [known ones](self#stores); it takes about 700 requests,
    /// writes to an object under `leasehold-try-out`, and deletes it.
    ///
    /// A store can refuse each outdated version correctly and still let several puts win that arrive at once, so a
    /// raise alone, which sends its own check, does not find out.
    ///
    /// # Errors
    /// `Misconfigured` if the store does not compare versions, or not at once with the write; otherwise as in the
    /// [module](self).
    ///
    /// # Cancel safety
    /// Dropping the future can leave the object.
    pub async fn try_out(store: &dyn ObjectStore) -> Result<(), Error> {
        let path = Path::from(format!("leasehold-try-out/{}", Uuid::new_v4().simple()));
        try_out_at(store, &path, ROUNDS).await
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
        self.write(bearer, None).await
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
        let mut next = |current: &Bytes| next(current).into();
        self.write(bearer, Some(&mut next)).await
    }

    /// Reads the object; `None` if there is none. It needs no lease: any reader can call it.
    ///
    /// # Errors
    /// See the [module](self).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn read(&self) -> Result<Option<Object>, Error> {
        let answer = self.timed(self.store.get(&self.path)).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(::object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(failed("read", &self.path, error)),
        };
        let (e_tag, version) = (answer.meta.e_tag.clone(), answer.meta.version.clone());
        let version = self.version(UpdateVersion { e_tag, version })?;
        let bytes = answer.bytes().await;
        let bytes = bytes.map_err(|error| failed("read", &self.path, error))?;
        let object = Object::parse(bytes, version);
        object.map(Some).map_err(|what| {
            self.misconfigured("the object is not a fenced one")
                .with_source(what)
        })
    }

    /// Raises, and with `next` commits.
    async fn write(
        &self,
        bearer: &dyn Bearer,
        next: Option<&mut Next<'_>>,
    ) -> Result<Object, Error> {
        let shown = Shown::of(bearer)?;
        let write = self.write_under(&shown, next);
        shown.checked(FenceKind::ObjectStore, write).await
    }

    async fn write_under(
        &self,
        shown: &Shown<'_>,
        mut next: Option<&mut Next<'_>>,
    ) -> Result<Object, Error> {
        let (pass, path) = (&shown.pass, self.path.as_ref());
        let id = Uuid::new_v4().simple().to_string();
        let (mut unknown, end) = (None, Monotonic.now().after(RETRY_FOR));
        let mut seen = match self.remembered(pass).filter(|_| next.is_some()) {
            Some(last) => Some(last),
            None => self.read().await?,
        };
        for tries in 1_u32.. {
            let admission = shown.judge(path, seen.as_ref().map(|seen| &seen.pass))?;
            let object = match (&seen, &mut next) {
                (Some(seen), Some(next)) => seen.followed(pass, &id, next(&seen.content)),
                (Some(seen), None) if admission == Admission::Again && self.is_proven() => {
                    return Ok(self.remember(seen.clone()));
                }
                (seen, _) => Object::raised(seen.as_ref(), pass),
            };
            self.give_way(admission, &object).await;
            let replaced = object.number - 1;
            let now = self.put_or_read(seen.as_ref(), object, &mut unknown);
            let now = now.await?;
            match (
                now.as_ref().and_then(|now| now.has(&id, replaced)),
                &unknown,
            ) {
                (Some(true), _) => return Ok(self.remember(now.expect("it has the write"))),
                (None, Some(error)) if next.is_some() => return Err(error.clone()),
                _ => seen = now,
            }
            if tries > LEAST_TRIES && Monotonic.now() >= end {
                break;
            }
            self.pause(admission, tries).await;
        }
        Err(unknown.unwrap_or_else(|| Blocked::error(path)))
    }

    /// Puts the object, or finds out what is there instead. That is nothing, if a store that was busy with the path
    /// refused to create the object (Amazon S3 answers 409 then, and asks for another try). Records the error of a put
    /// without an answer.
    async fn put_or_read(
        &self,
        replaced: Option<&Object>,
        object: Object,
        unknown: &mut Option<Error>,
    ) -> Result<Option<Object>, Error> {
        let seen = match self.put(replaced, &object).await {
            Ok(Some(version)) => {
                self.prove(replaced, &object).await?;
                return Ok(Some(Object { version, ..object }));
            }
            Ok(None) => self.seen_after(&object, None).await,
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                let seen = self.seen_after(&object, Some(&error)).await;
                *unknown = Some(error);
                seen
            }
            Err(error) => Err(error),
        };
        match (seen?, replaced) {
            (None, Some(_)) => {
                Err(self.misconfigured("the object was deleted, and its fence with it"))
            }
            (seen, _) => Ok(seen),
        }
    }

    /// Returns the object after a put that was not acknowledged: what another task of this process wrote since, or what
    /// is read, if there is one. If the put's own answer was lost and the object cannot be read either, the error is
    /// that of the put.
    async fn seen_after(
        &self,
        put: &Object,
        unknown: Option<&Error>,
    ) -> Result<Option<Object>, Error> {
        let last = self.memory.lock().last.clone();
        if let Some(last) = last.filter(|last| unknown.is_none() && last.number >= put.number) {
            return Ok(Some(last));
        }
        match (self.read().await, unknown) {
            (Ok(seen), _) => Ok(seen),
            (Err(_), Some(unknown)) => Err(unknown.clone()),
            (Err(error), None) => Err(error),
        }
    }

    /// Pauses before the version is replaced, if it is one that successors may take.
    async fn give_way(&self, admission: Admission, put: &Object) {
        let is_due = (put.number - 1).is_multiple_of(WRITES_IN_A_ROW);
        if is_due && admission == Admission::Again {
            let took = self.memory.lock().took;
            tokio::time::sleep((took * GIVEN_WAY).min(LONGEST_GIVEN_WAY)).await;
        }
    }

    /// Sends the last put once more, which must be refused. A store that does not compare carries it out again, with
    /// the same bytes.
    async fn prove(&self, replaced: Option<&Object>, written: &Object) -> Result<(), Error> {
        if self.is_proven() {
            return Ok(());
        }
        if self.put(replaced, written).await?.is_some() {
            return Err(self.misconfigured(
                "the store does not compare versions: a put with an outdated one was carried out",
            ));
        }
        self.memory.lock().is_proven = replaced.is_some();
        Ok(())
    }

    /// Writes the object if it is still the one to be replaced, or still absent; otherwise returns `None`. After
    /// `Unavailable` the outcome is unknown: the answer was lost, or does not tell.
    async fn put(
        &self,
        replaced: Option<&Object>,
        object: &Object,
    ) -> Result<Option<UpdateVersion>, Error> {
        let mode = match replaced {
            Some(replaced) => PutMode::Update(replaced.version.clone()),
            None => PutMode::Create,
        };
        let answer = self
            .store
            .put_opts(&self.path, object.payload(), mode.into());
        match self.timed(answer).await.map(PutResult::into) {
            Ok(version) => self.version(version).map(Some),
            Err(error) if is_refusal(&error) => Ok(None),
            Err(error) => Err(failed("write", &self.path, error)),
        }
    }

    fn version(&self, version: UpdateVersion) -> Result<UpdateVersion, Error> {
        if version.e_tag.is_none() && version.version.is_none() {
            return Err(self.misconfigured("the store's answers have no version"));
        }
        Ok(version)
    }

    /// Gives other writers under the same pass time, so that they do not all put at once and one of them wins. A raise
    /// does not wait: its put has to come while they do.
    async fn pause(&self, admission: Admission, tries: u32) {
        if admission == Admission::Again {
            let longest = (self.memory.lock().took * tries).min(LONGEST_PAUSE);
            tokio::time::sleep(longest.mul_f64(fastrand::f64())).await;
        }
    }

    async fn timed<T>(&self, request: impl Future<Output = T>) -> T {
        let began_at = Monotonic.now();
        let answer = request.await;
        self.memory.lock().took = Monotonic.now().since(began_at);
        answer
    }

    fn is_proven(&self) -> bool {
        self.memory.lock().is_proven
    }

    fn remembered(&self, pass: &Pass) -> Option<Object> {
        let last = self.memory.lock().last.clone();
        last.filter(|last| last.pass == *pass)
    }

    fn remember(&self, object: Object) -> Object {
        self.memory.lock().last = Some(object.clone());
        object
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
