//! Where the project's files are.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");
    fs::canonicalize(root).expect("the repository is there")
});

/// The root of the repository. The tests are a target of the tool's package, which lies below it.
pub(crate) fn root() -> &'static Path {
    &ROOT
}
