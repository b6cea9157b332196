//! Whether the server compares versions: tried once for a prefix, and noted beside the leases.

use ::object_store::{ObjectStoreExt as _, PutPayload};
use uuid::Uuid;

use super::Bucket;
use super::object::failed;
use crate::conditional_puts::{ROUNDS, try_out_at};
use crate::error::Error;
use crate::store::kit::backend::Failing as _;

/// The object that records the trial of the server.
pub(super) const NOTE: &str = "conditions";
/// Its content after a trial of each extent.
pub(super) const WHOLE: &[u8] = br#"{"v":1,"compares":true}"#;
const FIRST: &[u8] = br#"{"v":1,"compares":true,"by":"a claim"}"#;

/// How much is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// Finds, within the limit of a claim, a server that compares nothing or never two puts at once.
    First,
    /// Also finds one that lets several puts win now and then.
    Whole,
}

impl Extent {
    const fn note(self) -> &'static [u8] {
        match self {
            Self::First => FIRST,
            Self::Whole => WHOLE,
        }
    }

    /// Number of races of puts on one version.
    const fn rounds(self) -> usize {
        match self {
            Self::First => 2,
            Self::Whole => ROUNDS,
        }
    }
}

impl Bucket {
    /// Tries the server out, and notes that it compares.
    pub(super) async fn try_out(&self, extent: Extent) -> Result<(), Error> {
        let object = format!("try-out-{}", Uuid::new_v4().simple());
        try_out_at(&*self.store, &self.path(&object), extent.rounds()).await?;
        let note = PutPayload::from_static(extent.note());
        let noted = self.store.put(&self.path(NOTE), note).await;
        noted.map(drop).map_err(|error| {
            let facts = format_args!("store={}", self.location);
            failed(error).during("note the trial", facts)
        })
    }
}
