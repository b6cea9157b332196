//! Surroundings for a child that only the kernel can make: another boot id, another clock, a small or read-only disk, one
//! that lacks a call.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::harness::preload;

/// Whether the machine lets us make namespaces. If not, the test fails, unless the caller of all tests said beforehand
/// that it knows.
pub(crate) fn are_allowed() -> bool {
    let tried = Command::new("unshare")
        .args(["--mount", "--time", "unshare", "--user", "true"])
        .output();
    let tried = tried.expect("unshare is there; to install it: apt-get install util-linux");
    if tried.status.success() {
        return true;
    }
    let skipped = std::env::var("LEASEHOLD_TEST_SKIP").unwrap_or_default();
    assert!(
        skipped.split(',').any(|word| word == "namespaces"),
        "this test needs mount, time and user namespaces: run it as root, or set LEASEHOLD_TEST_SKIP=namespaces; {}",
        String::from_utf8_lossy(&tried.stderr)
    );
    // Not by the macro, whose output is kept back while a test passes.
    let _ = std::io::stderr().write_all(b"SKIPPED one test: LEASEHOLD_TEST_SKIP=namespaces\n");
    false
}

/// Surroundings where `script` was run first, with this path as `$0`.
fn mounted<'a>(script: &'a str, path: &'a Path) -> [&'a str; 6] {
    let path = path.to_str().expect("a path in UTF-8");
    ["unshare", "--mount", "sh", "-ec", script, path]
}

/// Another boot id: the content of this file.
pub(super) fn boot(id: &Path) -> [&str; 6] {
    let script = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id; exec \"$@\"";
    mounted(script, id)
}

/// A disk of 1 MiB at this folder.
pub(super) fn small_disk(folder: &Path) -> [&str; 6] {
    mounted("mount -t tmpfs -o size=1m none \"$0\"; exec \"$@\"", folder)
}

/// The same file once more, at this other path, which has to be there. Without root's rights a user namespace lends them.
pub(super) fn bound_to<'a>(file: &'a Path, path: &'a Path) -> Vec<&'a str> {
    let script = "mount --bind \"$0\" \"$1\"; shift; exec \"$@\"";
    let mut words = vec!["unshare", "--mount"];
    if !rustix::process::geteuid().is_root() {
        words.extend(["--user", "--map-root-user"]);
    }
    let [file, path] = [file, path].map(|path| path.to_str().expect("a path in UTF-8"));
    words.extend(["sh", "-ec", script, file, path]);
    words
}

/// This folder, not writable by anybody.
pub(super) fn read_only(folder: &Path) -> [&str; 6] {
    let script = "mount --bind \"$0\" \"$0\"; mount -o remount,ro,bind \"$0\"; exec \"$@\"";
    mounted(script, folder)
}

/// A disk without a rename that replaces nothing.
pub(super) fn plain_rename() -> [String; 2] {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let source = include_bytes!("plain_rename.c");
    let library = LIBRARY.get_or_init(|| preload::compiled("plain_rename", source));
    ["env".into(), format!("LD_PRELOAD={}", library.display())]
}

/// A clock that is ahead by so many seconds.
pub(super) fn clock_ahead(seconds: &str) -> [&str; 7] {
    [
        "unshare",
        "--time",
        "--fork",
        "--kill-child",
        "--monotonic",
        seconds,
        "--",
    ]
}

/// A user who is not root, so that permission bits bind; the owner of root's files all the same, so that this binary
/// can be started wherever it is.
pub(super) fn not_root() -> &'static [&'static str] {
    if rustix::process::geteuid().is_root() {
        &["unshare", "--user"]
    } else {
        &["env"]
    }
}
