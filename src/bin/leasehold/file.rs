//! The files that a user names, checked before they are read or written, because people also name devices, pipes and
//! links.
//!
//! A regular file is replaced as a whole, so that a reader sees the old content or the new one; a link is resolved
//! first. Other kinds of files are never replaced, and never waited for.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Maximum size of a file to read: a configuration has a few hundred bytes, and a mistaken path may have gigabytes.
const MOST: u64 = 1024 * 1024;

/// Maximum number of links to follow, the same as the kernel's.
const LINKS: usize = 40;

/// Reads a regular file of at most 1 MiB.
pub fn read(path: &Path) -> io::Result<String> {
    let file = without_waiting(File::options().read(true)).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    file.take(MOST + 1).read_to_string(&mut text)?;
    match text.len() as u64 > MOST {
        true => Err(io::Error::other("it is longer than 1 MiB")),
        false => Ok(text),
    }
}

/// Replaces a file, or makes a new one. Its new content is written next to it first, under a name that ends in `.new`
/// and that no other writer has, not even one in another container. Refuses an existing path that is not a regular
/// file. The file gets this mode, or else the one that this process gives to new files.
pub fn replace(path: &Path, content: &[u8], mode: Option<u32>) -> io::Result<()> {
    match target(path)? {
        Target::File(path) => rename_over(&path, content, mode),
        Target::Other(_) => Err(io::Error::other("it is not a regular file")),
    }
}

/// Where the report of a run is written at its end.
#[derive(Debug)]
pub enum Output {
    /// A regular file, which is replaced.
    File(PathBuf),
    /// A device, a pipe or an open descriptor, which stays open: its reader must not see an end before the text.
    Stream(File),
}

impl Output {
    /// Checks the path. A pipe without a reader is refused, because nothing waits for one.
    pub fn open(path: &Path) -> io::Result<Self> {
        match target(path)? {
            Target::File(_) => Ok(Self::File(path.into())),
            Target::Other(path) => {
                let mut options = File::options();
                let stream = without_waiting(options.append(true)).open(path);
                stream.map(Self::Stream).map_err(|error| {
                    match error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) {
                        true => io::Error::other("nothing reads from it"),
                        false => error,
                    }
                })
            }
        }
    }

    /// Writes the text.
    pub fn write(&self, content: &[u8]) -> io::Result<()> {
        match self {
            Self::File(path) => replace(path, content, None),
            Self::Stream(file) => (&*file).write_all(content),
        }
    }
}

/// The target of a path, with its links resolved.
enum Target {
    /// A regular file, or nothing yet.
    File(PathBuf),
    /// A device, a pipe, a socket, or a descriptor of this process such as `/dev/stdout`.
    Other(PathBuf),
}

fn target(path: &Path) -> io::Result<Target> {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let folder = path.parent().unwrap_or(Path::new(""));
        match fs::read_link(&path) {
            // Such a link points to an open file and cannot be replaced: the descriptor would keep the old file.
            Ok(_) if is_of_processes(folder) => return Ok(Target::Other(path)),
            Ok(link) => path = folder.join(link),
            Err(error) => {
                return match (error.kind(), fs::symlink_metadata(&path)) {
                    (ErrorKind::NotFound, _) => Ok(Target::File(path)),
                    (ErrorKind::InvalidInput, Ok(there)) if there.is_file() => {
                        Ok(Target::File(path))
                    }
                    (ErrorKind::InvalidInput, Ok(there)) if there.is_dir() => {
                        Err(ErrorKind::IsADirectory.into())
                    }
                    (ErrorKind::InvalidInput, Ok(_)) => Ok(Target::Other(path)),
                    _ => Err(error),
                };
            }
        }
    }
    Err(io::Error::other("too many links"))
}

fn is_of_processes(folder: &Path) -> bool {
    fs::canonicalize(folder).is_ok_and(|folder| folder.starts_with("/proc"))
}

/// Opens a pipe without waiting for its other end, and a terminal without becoming its process.
fn without_waiting(options: &mut OpenOptions) -> &mut OpenOptions {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    options.custom_flags(i32::try_from(flags.bits()).expect("the flags are low bits"))
}

fn rename_over(path: &Path, content: &[u8], mode: Option<u32>) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{:016x}.new", fastrand::u64(..)));
    let mut file = File::options().write(true).create_new(true).open(&new)?;
    let permitted = mode.map(|mode| file.set_permissions(Permissions::from_mode(mode)));
    let written = permitted.transpose().and_then(|_| file.write_all(content));
    let replaced = written.and_then(|()| fs::rename(&new, path));
    if replaced.is_err() {
        let _ = fs::remove_file(&new);
    }
    replaced
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_file_that_two_replace_at_once_is_always_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("job.prom");
        let replace = |letter: u8| {
            for length in 0..500 {
                let content = vec![letter; 10_000 + length];
                super::replace(&path, &content, None).expect("replaced");
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
        replace(&path, b"x", None).expect_err("a folder is there");
        rename_over(&path, b"x", None).expect_err("a folder is there");
        assert_eq!(fs::read_dir(folder.path()).expect("read").count(), 1);
    }

    #[test]
    fn through_links_their_target_is_replaced_and_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("elsewhere")).expect("made");
        std::os::unix::fs::symlink("second", path("first")).expect("linked");
        std::os::unix::fs::symlink("elsewhere/file", path("second")).expect("linked");
        for content in ["new", "replaced"] {
            replace(&path("first"), content.as_bytes(), None).expect("replaced");
            assert_eq!(read(&path("elsewhere/file")).expect("there"), content);
        }
        assert!(path("first").is_symlink() && path("second").is_symlink());
        std::os::unix::fs::symlink("ring", path("ring")).expect("linked");
        replace(&path("ring"), b"x", None).expect_err("it has no end");
    }

    #[test]
    fn a_pipe_is_neither_waited_for_nor_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("made");
        read(&path).expect_err("no regular file");
        replace(&path, b"x", None).expect_err("no regular file");
        Output::open(&path).expect_err("nothing reads");
        let mut options = File::options();
        let mut reader = without_waiting(options.read(true))
            .open(&path)
            .expect("opened");
        let output = Output::open(&path).expect("it is read");
        output.write(b"text").expect("written");
        drop(output);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("text");
        assert_eq!(text, "text");
    }

    #[test]
    fn of_a_file_at_most_a_mebibyte_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("large");
        let most = usize::try_from(MOST).expect("small");
        fs::write(&path, "x".repeat(most)).expect("written");
        assert_eq!(read(&path).expect("not too long").len(), most);
        fs::write(&path, "x".repeat(most + 1)).expect("written");
        read(&path).expect_err("too long");
    }
}
