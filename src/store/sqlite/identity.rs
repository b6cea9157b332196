//! The identity of the file and of the log next to it.
//!
//! The locks and the write-ahead log lie next to the path, in `-shm` and `-wal`. Two processes that see the same file
//! but not the same log grant the same name twice, and neither hears of the other. So a file that can have two logs is
//! refused when it is opened, and a log that was deleted or replaced is found before the next transaction.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::failure::Failure;
use super::users::Users;

/// A file that SQLite has open, as it was found at its path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Identity {
    path: PathBuf,
    device_and_inode: (u64, u64),
}

impl Identity {
    /// Identifies the file at this path, which was there.
    pub(super) fn of(path: PathBuf) -> Result<Self, Failure> {
        Ok(Self {
            device_and_inode: device_and_inode(&path)?,
            path,
        })
    }

    /// Checks that the file at the path is still this one.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if device_and_inode(&self.path)? == self.device_and_inode {
            Ok(())
        } else {
            Err(Failure::Replaced)
        }
    }
}

fn device_and_inode(path: &Path) -> Result<(u64, u64), Failure> {
    match fs::metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino())),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(Failure::Replaced)
        }
        Err(error) => Err(unseen(error)),
    }
}

/// The paths of the log, and of its index, which has the locks. SQLite puts them next to the target of a symbolic link.
pub(super) fn logs(path: &Path) -> Result<[PathBuf; 2], Failure> {
    let file = fs::canonicalize(path).map_err(unseen)?.into_os_string();
    Ok(["-wal", "-shm"].map(|ending| {
        let mut log = file.clone();
        log.push(ending);
        log.into()
    }))
}

/// Examines the file from outside, and refuses one that could have two logs or none.
pub(super) fn examine(path: &Path) -> Result<Identity, Failure> {
    let found = fs::metadata(path).map_err(unseen)?;
    if !found.is_file() {
        return Err(Failure::unfit("expected a regular file"));
    }
    if found.nlink() > 1 {
        return Err(Failure::Unfit(format!(
            "the file has more than one name, and each would get a write-ahead log of its own names={}",
            found.nlink()
        )));
    }
    let file = fs::canonicalize(path).map_err(unseen)?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    // A mount point of its own, such as a file that is mounted alone into a container.
    if let (Some(of_file), Some(of_folder)) = (mount_of(&file)?, mount_of(folder)?)
        && of_file != of_folder
    {
        return Err(Failure::unfit(
            "the file is mounted by itself, and each of its paths would get a write-ahead log of its own; mount the \
             folder that holds it",
        ));
    }
    refuse_strangers(&file)?;
    // SQLite would answer no more than "cannot open" or fall back to reading.
    for (checked, what) in [
        (path, "write the file"),
        (folder, "write in the file's folder"),
    ] {
        access(checked, Access::READ_OK | Access::WRITE_OK)
            .map_err(|error| Failure::io(what, error.into()))?;
    }
    Identity::of(path.into())
}

/// Refuses a file, or one of its logs, that another user may have put there.
fn refuse_strangers(path: &Path) -> Result<(), Failure> {
    let users = Users::of(path)?;
    let [log, index] = logs(path)?;
    for file in [path, &log, &index] {
        let found = match fs::metadata(file) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(unseen(error)),
        };
        if !users.have_made(&found) {
            return Err(Failure::Unfit(format!(
                "everybody may write in its folder, and the file may be another user's; use a folder of this user, or \
                 of a group (mode 2770) file={file:?} uid={}",
                found.uid()
            )));
        }
    }
    Ok(())
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

pub(super) fn unseen(source: io::Error) -> Failure {
    Failure::io("examine the file", source)
}
