//! Tests whether stores of the crate `object_store` compare versions in conditional puts, and interprets their answers.
//! The fence of an object and the leases in a bucket depend on it.

use ::object_store::path::Path;
use ::object_store::{ObjectStore, ObjectStoreExt, PutMode, PutResult};
use bytes::Bytes;
use futures_util::future::{join, join_all};

use crate::error::{Error, ErrorKind};

/// Number of races, and of puts in each: a server that lets several win lets some in one of these.
pub(crate) const ROUNDS: usize = 20;
const RACERS: usize = 16;

/// Repeatedly races puts on one version of this object, exactly one of which must win, and then deletes it.
///
/// # Errors
/// `Misconfigured` if the store does not compare versions, or not at once with the write.
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

/// Returns the one put of these that was carried out, by its index.
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
    let text = format!("store refused: it does not compare versions as it must: {why}");
    Error::new(ErrorKind::Misconfigured, text)
}

/// Returns whether a put failed because of its condition.
pub(crate) const fn is_refusal(error: &::object_store::Error) -> bool {
    matches!(
        error,
        ::object_store::Error::Precondition { .. } | ::object_store::Error::AlreadyExists { .. }
    )
}

/// Returns the error of a request that failed for another reason than its condition.
pub(crate) fn failed(action: &str, path: &Path, error: ::object_store::Error) -> Error {
    let (kind, why) = kind_of(&error);
    let path = path.as_ref();
    Error::new(kind, format!("{action} failed{why} path={path:?}")).with_source(error)
}

/// Returns what a caller should do about an answer, and what is wrong, as ": reason", if that is known.
pub(crate) fn kind_of(error: &::object_store::Error) -> (ErrorKind, &'static str) {
    match error {
        ::object_store::Error::NotImplemented { .. }
        | ::object_store::Error::NotSupported { .. } => (
            ErrorKind::Misconfigured,
            ": the store has no conditional puts; for a local folder use the fence in SQLite",
        ),
        ::object_store::Error::NotFound { .. } => {
            (ErrorKind::Misconfigured, ": the bucket is missing")
        }
        ::object_store::Error::PermissionDenied { .. }
        | ::object_store::Error::Unauthenticated { .. } => (ErrorKind::Denied, ""),
        ::object_store::Error::InvalidPath { .. } => (ErrorKind::Invalid, ""),
        ::object_store::Error::UnknownConfigurationKey { .. } => (ErrorKind::Misconfigured, ""),
        error => match lasting(error) {
            Some(why) => (ErrorKind::Misconfigured, why),
            None => (ErrorKind::Unavailable, ""),
        },
    }
}

/// The crate's texts for answers that retrying does not change, and what is wrong. The crate has no kind of its own for
/// these.
const LASTING: &[(&str, &str)] = &[
    (
        "ETag Header missing",
        ": the store's answers have no version",
    ),
    (
        "status code: 400",
        ": the store refused the request; look at the bucket's name and the settings",
    ),
    (
        "redirect without LOCATION",
        ": the bucket is in another region",
    ),
];
/// The codes of an answer 400 to a request that did not arrive whole.
const TORN: &[&str] = &["RequestTimeout", "IncompleteBody"];

/// Returns what is wrong, if the store will give the same answer again.
fn lasting(error: &::object_store::Error) -> Option<&'static str> {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| {
        error.source()
    });
    let texts: Vec<_> = causes.map(ToString::to_string).collect();
    let says = |what: &str| texts.iter().any(|text| text.contains(what));
    let (_, why) = LASTING.iter().find(|(what, _)| says(what))?;
    (!TORN.iter().any(|code| says(code))).then_some(*why)
}
