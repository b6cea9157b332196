//! The identity of the file and of the log next to it.
//!
//! The locks and the write-ahead log lie next to the path, in `-shm` and `-wal`. Two processes that see the same file
//! but not the same log grant the same name twice, and neither hears of the other. So a file that can have two logs is
//! refused when it is opened, and a log that was deleted or replaced is found before the next transaction.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::failure::Failure;

/// Device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity(u64, u64);

/// The log, and the index of the log in which the locks are.
#[derive(Debug)]
pub(super) struct Logs {
    wal: (PathBuf, Identity),
    shm: (PathBuf, Identity),
}

impl Identity {
    fn of(found: &Metadata) -> Self {
        Self(found.dev(), found.ino())
    }

    /// Checks that the file at this path is still this one.
    pub(super) fn check(self, path: &Path) -> Result<(), Failure> {
        let found = fs::metadata(path).map_err(gone)?;
        if Self::of(&found) == self {
            Ok(())
        } else {
            Err(Failure::Replaced)
        }
    }
}

impl Logs {
    /// Finds the logs of a file from which SQLite has read.
    pub(super) fn beside(path: &Path) -> Result<Self, Failure> {
        let identified = |path: PathBuf| {
            let found = fs::metadata(&path).map_err(gone)?;
            Ok::<_, Failure>((path, Identity::of(&found)))
        };
        Ok(Self {
            wal: identified(beside(path, "-wal")?)?,
            shm: identified(beside(path, "-shm")?)?,
        })
    }

    /// Returns whether there is a log, before SQLite has made one.
    pub(super) fn is_beside(path: &Path) -> Result<bool, Failure> {
        fs::exists(beside(path, "-wal")?).map_err(unseen)
    }

    /// Checks that they are still the ones that SQLite has open.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let [(wal, its), (shm, of_shm)] = [&self.wal, &self.shm];
        its.check(wal)?;
        of_shm.check(shm)
    }
}

/// Looks at the file from outside, and refuses one that could have two logs or none.
pub(super) fn examine(path: &Path) -> Result<Identity, Failure> {
    let found = fs::metadata(path).map_err(unseen)?;
    if !found.is_file() {
        return Err(Failure::NotAFile);
    }
    if found.nlink() > 1 {
        return Err(Failure::ManyNames {
            names: found.nlink(),
        });
    }
    let file = fs::canonicalize(path).map_err(unseen)?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    if is_mounted_alone(&file, folder)? {
        return Err(Failure::MountedAlone);
    }
    // SQLite would answer no more than "cannot open" or fall back to reading.
    for (place, what) in [
        (path, "write the file"),
        (folder, "write in the file's folder"),
    ] {
        access(place, Access::READ_OK | Access::WRITE_OK)
            .map_err(|error| Failure::io(what, error.into()))?;
    }
    Ok(Identity::of(&found))
}

/// Returns whether the file is a mount point of its own, as one that is handed to a container by itself.
fn is_mounted_alone(file: &Path, folder: &Path) -> Result<bool, Failure> {
    Ok(match (mount_of(file)?, mount_of(folder)?) {
        (Some(of_file), Some(of_folder)) => of_file != of_folder,
        _ => false,
    })
}

/// The mount that a path is in; `None` where a kernel before 5.8, or a sandbox, does not say.
#[cfg(not(target_os = "macos"))]
fn mount_of(path: &Path) -> Result<Option<u64>, Failure> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    use rustix::io::Errno;
    match statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID) {
        Ok(found) => {
            let is_told = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
            Ok(is_told.then_some(found.stx_mnt_id))
        }
        Err(Errno::NOSYS | Errno::PERM) => Ok(None),
        Err(error) => Err(unseen(error.into())),
    }
}

/// macOS has no mounts of single files.
#[cfg(target_os = "macos")]
fn mount_of(_: &Path) -> Result<Option<u64>, Failure> {
    Ok(None)
}

/// The path of a log: SQLite puts it next to the target of a symbolic link.
fn beside(path: &Path, ending: &str) -> Result<PathBuf, Failure> {
    let mut beside = fs::canonicalize(path).map_err(unseen)?.into_os_string();
    beside.push(ending);
    Ok(beside.into())
}

fn unseen(source: io::Error) -> Failure {
    Failure::io("look at the file", source)
}

/// The failure of a file or log that was there and was deleted.
fn gone(source: io::Error) -> Failure {
    match source.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Failure::Replaced,
        _ => unseen(source),
    }
}
