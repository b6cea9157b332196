//! Objects besides the fenced one: too large or too many for its content, which names them.

use std::collections::HashSet;
use std::time::Duration;

use ::object_store::ObjectStoreExt;
use ::object_store::path::Path;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::{Fence, failed};
use crate::error::Error;
use crate::fence::Bearer;

impl Fence {
    /// Returns the path under which the bearer may write an object of this name, without a condition: the path carries
    /// the bearer's token and holder, so no other holder writes there. Readers see it once a commit names it.
    ///
    /// # Errors
    /// `Lost` if the lease's own deadline has passed; `Invalid` for an empty name.
    pub fn object(&self, bearer: &dyn Bearer, name: &str) -> Result<Path, Error> {
        let name = Path::from(name);
        if name.is_root() {
            return Err(Error::invalid("object name \"\" refused: expected a path"));
        }
        let pass = bearer.pass()?;
        // Padded to the length of the longest token, so that a listing is in the order of the tokens.
        let folder = self
            .parts()
            .join(format!("{:016}-{}", pass.token, pass.holder));
        Ok(folder.parts().chain(name.parts()).collect())
    }

    /// Removes the objects of earlier holders that the current content does not name, and returns their paths. `named`
    /// returns the paths that a content names. Readers may still be at work on a content that was replaced, so an
    /// object stays until it was written more than `older_than` before the last write of the fenced object, by the
    /// store's clock.
    ///
    /// It needs no lease. The objects under the token of the fenced object, and under greater ones, stay: their holder
    /// may still commit them. Those under a lower token cannot be committed by their own holder any more, because the
    /// fence refuses that; a later holder copies what it takes over.
    ///
    /// # Errors
    /// See the [module](super).
    ///
    /// # Cancel safety
    /// Dropping the future leaves some of the objects removed. Repeat the call.
    pub async fn sweep<N: IntoIterator<Item = Path>>(
        &self,
        older_than: Duration,
        named: impl FnOnce(&[u8]) -> N,
    ) -> Result<Vec<Path>, Error> {
        let parts = self.parts();
        // The content is read last: what a commit names meanwhile stays.
        let listed = self.store.list(Some(&parts)).try_collect::<Vec<_>>().await;
        let listed = listed.map_err(|error| failed("sweep", &self.path, error))?;
        let last_write = match self.store.head(&self.path).await {
            Ok(meta) => meta.last_modified,
            Err(::object_store::Error::NotFound { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(failed("sweep", &self.path, error)),
        };
        let Some(object) = self.read().await? else {
            return Ok(Vec::new());
        };
        let named: HashSet<Path> = named(&object.content).into_iter().collect();
        let removed = listed
            .into_iter()
            .filter(|found| {
                let age = (last_write - found.last_modified).to_std();
                age.is_ok_and(|age| age > older_than)
            })
            .map(|found| found.location)
            .filter(|path| token_of(&parts, path).is_some_and(|of| of < object.pass.token.get()))
            .filter(|path| !named.contains(path));
        let removed = stream::iter(removed.collect::<Vec<_>>()).map(Ok).boxed();
        let removed = self.store.delete_stream(removed).try_collect().await;
        removed.map_err(|error| failed("sweep", &self.path, error))
    }

    /// Returns the folder of the objects that the fenced one may name. It is not below the fenced object, because a
    /// store that keeps objects as files has no room for both.
    fn parts(&self) -> Path {
        let path = Path::parse(format!("{}.parts", self.path));
        path.expect("a path with three more letters is one")
    }
}

/// The token in the path of an object in this folder, if it is one of ours.
fn token_of(parts: &Path, path: &Path) -> Option<u64> {
    let folder = path.prefix_match(parts)?.next()?;
    let (token, _) = folder.as_ref().split_once('-')?;
    token.parse().ok()
}
