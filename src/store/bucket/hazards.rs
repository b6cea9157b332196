//! What weakens leases in a bucket: a server that was not tried out, and a clock that is off.

use std::time::Duration;

use ::object_store::ObjectStoreExt as _;

use super::object::failed;
use super::{Bucket, trial};
use crate::clock::wall_clock_us;
use crate::store::record::{Failure, Register as _};
use crate::store::{Hazard, Severity};

/// The least difference of clocks that is reported: times are in whole seconds, and an answer may be slow.
const APART: Duration = Duration::from_secs(3);

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
    let before = Duration::from_micros(wall_clock_us());
    if let Some(time) = bucket.time().await? {
        let after = Duration::from_micros(wall_clock_us());
        let apart = time.abs_diff(before).min(time.abs_diff(after));
        found.extend((apart > APART).then(|| clocks_apart(apart)));
    }
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

fn clocks_apart(apart: Duration) -> Hazard {
    Hazard::new(
        "bucket-clock",
        Severity::Warning,
        format!(
            "the clock of the bucket's server is {} s from ours",
            apart.as_secs()
        ),
        "Tokens can fall when an object is lost, or its name moves to another store",
        "Run a time daemon on the server and on this machine",
    )
}
