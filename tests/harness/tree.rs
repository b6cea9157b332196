//! Where the project's files are.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    fs::canonicalize(root).expect("the repository is there")
});

/// The root of the repository.
pub fn root() -> &'static Path {
    &ROOT
}

/// The folder into which tests and benches write, as cargo calls it: `tmp` in the target folder.
pub fn temporary() -> PathBuf {
    let program = std::env::current_exe().expect("this program has a path");
    // TARGET/PROFILE/deps/PROGRAM
    let target = program
        .ancestors()
        .nth(3)
        .expect("it lies in the target folder");
    let temporary = target.join("tmp");
    fs::create_dir_all(&temporary).expect("the target folder can be written");
    temporary
}
