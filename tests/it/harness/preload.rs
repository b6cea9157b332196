//! Libraries in C that are loaded before all others, to replace functions of the C library.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Compiles a library, for `LD_PRELOAD`. Once for each run of the tests is enough.
pub(crate) fn compiled(name: &str, source: &[u8]) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.so"));
    // It is moved into place, so that of two runs at once none loads half a library.
    let fresh = target.with_extension(std::process::id().to_string());
    let mut compiler = Command::new("cc")
        .args([
            "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-x", "c", "-", "-o",
        ])
        .arg(&fresh)
        .stdin(Stdio::piped())
        .spawn()
        .expect("cc starts; to install it: apt-get install -y gcc libc6-dev");
    let mut input = compiler.stdin.take().expect("a pipe");
    input.write_all(source).expect("cc reads");
    drop(input);
    assert!(compiler.wait().expect("cc ends").success(), "cc failed");
    fs::rename(&fresh, &target).expect("the same folder");
    target
}

/// Copies a library to this folder, for a server whose user may not read where it was compiled.
pub(crate) fn copied(library: &Path, folder: &Path) -> PathBuf {
    let copy = folder.join(library.file_name().expect("a library has a name"));
    fs::copy(library, &copy).expect("the folder can be written");
    copy
}
