//! The hazards of leases in a bucket: a server that was not tried out, and a clock that is off.

use ::object_store::ObjectStoreExt as _;

use super::object::failed;
use super::{Bucket, trial};
use crate::store::record::{Failure, clock_apart};
use crate::store::{Hazard, Severity};

pub(super) async fn all(bucket: &Bucket) -> Result<Vec<Hazard>, Failure> {
    let mut found = Vec::new();
    match bucket.store.get(&bucket.path(trial::NOTE)).await {
        Ok(note) => {
            let note = note.bytes().await.map_err(failed)?;
            found.extend((note != trial::WHOLE).then(untried));
        }
        Err(::object_store::Error::NotFound { .. }) => found.push(untried()),
        Err(error) => return Err(failed(error)),
    }
    found.extend(clock_apart(bucket, "bucket-clock").await?);
    Ok(found)
}

fn untried() -> Hazard {
    Hazard::new(
        "bucket-untried",
        Severity::Warning,
        "the bucket's server was tried out by a claim alone, or not at all",
        "A server that lets several puts win now and then grants a name twice",
        "Run `leasehold init` once",
    )
}
