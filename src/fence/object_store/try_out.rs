//! The check of a store that claims to have conditional puts.

use ::object_store::path::Path;
use ::object_store::{ObjectStore, ObjectStoreExt, PutMode, PutResult};
use bytes::Bytes;
use futures_util::future::{join, join_all};
use uuid::Uuid;

use super::{Fence, failed, is_refusal};
use crate::error::{Error, ErrorKind};

/// Number of races, and of puts in each: a server that lets several win lets some in one of these.
const ROUNDS: usize = 20;
const RACERS: usize = 16;

impl Fence {
    /// Checks that a store compares versions as a fence needs it: races puts on one version, of which exactly one must
    /// win. Run it once against a server that is not one of the [known ones](super#stores); it takes about 700
    /// requests, writes to an object under `leasehold-try-out`, and deletes it.
    ///
    /// A store can refuse each outdated version correctly and still let several puts win that arrive at once, so a
    /// raise alone, which sends its own check, does not find out.
    ///
    /// # Errors
    /// `Misconfigured` if the store does not compare versions, or not at once with the write; otherwise as in the
    /// [module](super).
    ///
    /// # Cancel safety
    /// Dropping the future can leave the object.
    pub async fn try_out(store: &dyn ObjectStore) -> Result<(), Error> {
        let path = Path::from(format!("leasehold-try-out/{}", Uuid::new_v4().simple()));
        try_out_at(store, &path, ROUNDS).await
    }
}

/// The same with this object, which it deletes, and so many races.
pub(crate) async fn try_out_at(
    store: &dyn ObjectStore,
    path: &Path,
    rounds: usize,
) -> Result<(), Error> {
    let tried = tried(store, path, rounds).await;
    let deleted = store.delete(path).await;
    tried?;
    match deleted {
        Ok(()) | Err(::object_store::Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(failed("delete", path, error)),
    }
}

async fn tried(store: &dyn ObjectStore, path: &Path, rounds: usize) -> Result<(), Error> {
    let last = race(store, path, rounds).await?;
    let deleted = store.delete(path).await;
    deleted.map_err(|error| failed("delete", path, error))?;
    match store.put_opts(path, "late".into(), last.into()).await {
        Ok(_) => Err(unfit("a put on a version was carried out after a delete")),
        Err(error) if is_refusal(&error) => Ok(()),
        Err(error) => Err(failed("try out", path, error)),
    }
}

/// Returns the condition of the next put.
async fn race(store: &dyn ObjectStore, path: &Path, rounds: usize) -> Result<PutMode, Error> {
    let mut mode = PutMode::Create;
    for round in 0..rounds {
        let puts = (0..RACERS).map(|racer| {
            let text = format!("{round} {racer}");
            store.put_opts(path, text.into(), mode.clone().into())
        });
        let reads = (0..RACERS).map(|_| read(store, path));
        let (answers, reads) = join(join_all(puts), join_all(reads)).await;
        let (racer, answer) = winner(path, answers)?;
        let text = format!("{round} {racer}");
        for seen in reads {
            // An old version with new bytes does no harm: a put on it is refused.
            if seen?.is_some_and(|(version, bytes)| version == answer.e_tag && bytes != text) {
                return Err(unfit(
                    "a read beside a put has its version with older bytes",
                ));
            }
        }
        match read(store, path).await? {
            None => return Err(unfit("a put is not there for the next read")),
            Some((version, _)) if version != answer.e_tag => {
                return Err(unfit("a read has another version than the put before it"));
            }
            Some((_, bytes)) if bytes != text => {
                return Err(unfit("a put that was refused was carried out"));
            }
            Some(_) => {}
        }
        mode = PutMode::Update(answer.into());
    }
    Ok(mode)
}

/// Returns the one put of these that was carried out, by its place among them.
fn winner(
    path: &Path,
    answers: Vec<::object_store::Result<PutResult>>,
) -> Result<(usize, PutResult), Error> {
    let mut winners = Vec::new();
    for (racer, answer) in answers.into_iter().enumerate() {
        match answer {
            Ok(answer) => winners.push((racer, answer)),
            Err(error) if is_refusal(&error) => {}
            Err(error) => return Err(failed("try out", path, error)),
        }
    }
    let [winner] = <[_; 1]>::try_from(winners).map_err(|winners| {
        let won = winners.len();
        unfit(&format!(
            "of {RACERS} puts at once on one version {won} were carried out, expected 1"
        ))
    })?;
    let (_, answer) = &winner;
    match answer.e_tag.is_none() && answer.version.is_none() {
        true => Err(unfit("its answers have no version")),
        false => Ok(winner),
    }
}

/// Returns the version and the bytes.
async fn read(
    store: &dyn ObjectStore,
    path: &Path,
) -> Result<Option<(Option<String>, Bytes)>, Error> {
    let read = async {
        let answer = store.get(path).await?;
        Ok((answer.meta.e_tag.clone(), answer.bytes().await?))
    };
    match read.await {
        Ok(read) => Ok(Some(read)),
        Err(::object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(failed("try out", path, error)),
    }
}

fn unfit(why: &str) -> Error {
    let text = format!("store refused: it cannot be fenced: {why}");
    Error::new(ErrorKind::Misconfigured, text)
}
