//! A register in a bucket.

use std::sync::Arc;

use leasehold::fence::Bearer;
use leasehold::fence::object_store::Fence;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt};

use crate::harness::bucket_server::bucket;
use crate::history::Phase;
use crate::register::Failed;

/// Writers without a fence have an object of their own: each run has only writers of one kind.
pub(crate) struct InBucket {
    bucket: Arc<dyn ObjectStore>,
    fence: Fence,
    plain: Path,
}

impl InBucket {
    pub(crate) fn new(url: &str, name: &str) -> Self {
        let bucket: Arc<dyn ObjectStore> = bucket(url);
        Self {
            fence: Fence::new(bucket.clone(), format!("fenced/{name}")).expect("a valid path"),
            plain: Path::from(format!("plain/{name}")),
            bucket,
        }
    }

    /// Without a bearer, this is the content of whichever object is there.
    pub(crate) async fn read(&self, bearer: Option<&dyn Bearer>) -> Result<Option<String>, Failed> {
        let fenced = match bearer {
            Some(bearer) => Some(self.fence.raise(bearer).await?),
            None => self.fence.read().await?,
        };
        let bytes = match fenced {
            Some(object) => object.content,
            None => match self.bucket.get(&self.plain).await {
                Ok(object) => object.bytes().await?,
                Err(StoreError::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(error.into()),
            },
        };
        let text = String::from_utf8(bytes.to_vec()).expect("text");
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    pub(crate) async fn write(
        &self,
        value: &str,
        bearer: Option<&dyn Bearer>,
    ) -> Result<(), Failed> {
        match bearer {
            Some(bearer) => {
                let value = value.to_owned();
                self.fence.commit(bearer, |_| value.clone()).await?;
            }
            None => {
                self.bucket
                    .put(&self.plain, value.to_owned().into())
                    .await?;
            }
        }
        Ok(())
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self {
            phase: Phase::Unknown,
            why: error.to_string(),
        }
    }
}
