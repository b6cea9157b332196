//! Libraries in C that are loaded before all others, to replace functions of the C library.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Compiles a library, for `LD_PRELOAD`. Once for each run of the tests is enough.
pub fn compiled(name: &str, source: &[u8]) -> PathBuf {
    let target = crate::tree::temporary().join(format!("{name}.so"));
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
pub fn copied(library: &Path, folder: &Path) -> PathBuf {
    let copy = folder.join(library.file_name().expect("a library has a name"));
    fs::copy(library, &copy).expect("the folder can be written");
    copy
}

/// Has this program load a library, beside those that it is to load already.
pub fn load(command: &mut Command, library: &Path) {
    let loaded = command.get_envs().find(|(name, _)| *name == "LD_PRELOAD");
    let mut all = loaded
        .and_then(|(_, loaded)| loaded)
        .map_or_else(OsString::new, |loaded| {
            let mut loaded = loaded.to_owned();
            loaded.push(":");
            loaded
        });
    all.push(library);
    command.env("LD_PRELOAD", all);
}
