//! Files that are replaced as a whole: a reader sees the old content or the new one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Replaces a file. Its new content is written next to it first, under a name that ends in `.new` and that no other
/// writer has, not even one in another container.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{:016x}.new", fastrand::u64(..)));
    let mut options = File::options();
    let mut file = options.write(true).create_new(true).mode(mode).open(&new)?;
    let written = file.write_all(content);
    let replaced = written.and_then(|()| fs::rename(&new, path));
    if replaced.is_err() {
        let _ = fs::remove_file(&new);
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_two_replace_at_once_is_always_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("job.prom");
        let replace = |letter: u8| {
            for length in 0..500 {
                let content = vec![letter; 10_000 + length];
                super::replace(&path, &content, 0o600).expect("replaced");
                let read = fs::read(&path).expect("there");
                let is_whole = read.iter().all(|other| *other == read[0]);
                assert!(read.len() >= 10_000 && is_whole, "{} bytes", read.len());
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| replace(b'a'));
            scope.spawn(|| replace(b'b'));
        });
        assert_eq!(fs::read_dir(folder.path()).expect("read").count(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_replaced_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("full");
        fs::create_dir_all(path.join("inside")).expect("made");
        replace(&path, b"x", 0o600).expect_err("a folder is there");
        assert_eq!(fs::read_dir(folder.path()).expect("read").count(), 1);
    }
}
