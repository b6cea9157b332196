//! Finds which boot ids in a file are of this kernel: containers can have boot ids of their own.
//!
//! Each process that has the file open keeps a FIFO next to it open for reading, named after its boot id. A FIFO opens
//! for writing only if its reader is on this kernel, whatever the file system: none forwards FIFOs, as some do locks.
//! So a process that finds a FIFO with a reader is of the same kernel, and uses that boot id instead of its own. If
//! there is none, or none can be made, each boot id counts as a kernel of its own.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::boot::Boot;
use super::users::Users;

/// The part of the name between that of the file and the boot id.
const MARK: &str = "-boot-";

/// A FIFO that is open for reading, for as long as this lives.
#[derive(Debug)]
pub(super) struct Presence {
    fifo: PathBuf,
    reader: Option<File>,
}

impl Drop for Presence {
    /// The last reader removes the FIFO.
    fn drop(&mut self) {
        drop(self.reader.take());
        if let Some(_locked) = lock_folder(&self.fifo)
            && is_without_reader(&self.fifo)
        {
            let _ = fs::remove_file(&self.fifo);
        }
    }
}

/// Returns the boot under the id that the processes of this kernel use in this file, and shows that id to others. The
/// folder may be `locked` already.
pub(super) fn settle(file: &Path, boot: Boot, locked: Option<File>) -> (Boot, Option<Presence>) {
    let Ok(file) = fs::canonicalize(file) else {
        return (boot, None);
    };
    let own = fifo(&file, boot.id());
    let is_known = open(&own, OFlags::WRONLY).is_ok();
    // If two boot ids arrive at the same moment, the second has to find the first. Without the lock they stay apart.
    let locked = (!is_known)
        .then(|| locked.or_else(|| lock_folder(&file)))
        .flatten();
    let boot = match locked.as_ref().and_then(|_| found(&file, &own)) {
        Some(id) => boot.under(id),
        None => boot,
    };
    let presence = present(fifo(&file, boot.id()));
    (boot, presence)
}

/// Locks the folder of this file, unless it is locked. The lock ends with the value.
fn lock_folder(file: &Path) -> Option<File> {
    let folder = File::open(file.parent()?).ok()?;
    folder.try_lock().ok()?;
    Some(folder)
}

fn fifo(file: &Path, id: &str) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(MARK);
    path.push(id);
    path.into()
}

/// Returns the first id with a reader on this kernel. Removes the FIFOs of earlier boots.
fn found(file: &Path, own: &Path) -> Option<String> {
    let start = fifo(file, "").file_name()?.to_str()?.to_owned();
    let beside = fs::read_dir(file.parent()?).ok()?.flatten();
    let beside =
        beside.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())));
    let mut ids: Vec<_> = beside
        .filter_map(|(name, path)| Some((name.strip_prefix(&start)?.to_owned(), path)))
        .filter(|(_, path)| path != own)
        .collect();
    ids.sort();
    for (_, path) in ids.iter().filter(|(_, path)| is_without_reader(path)) {
        let _ = fs::remove_file(path);
    }
    let mut ids = ids.into_iter();
    ids.find_map(|(id, path)| open(&path, OFlags::WRONLY).is_ok().then_some(id))
}

fn is_without_reader(fifo: &Path) -> bool {
    open(fifo, OFlags::WRONLY).is_err_and(|error| error == Errno::NXIO)
}

/// Makes the FIFO, unless it is there, and opens it for reading.
#[cfg(not(target_os = "macos"))]
fn present(fifo: PathBuf) -> Option<Presence> {
    use rustix::fs::{CWD, Mode, mkfifoat};
    use std::os::unix::fs::PermissionsExt;
    let _ = mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR);
    let reader = open(&fifo, OFlags::RDONLY).ok()?;
    let mode = Users::of(&fifo).ok()?.mode();
    // If that is another user's, its owner has done it.
    let _ = reader.set_permissions(fs::Permissions::from_mode(mode));
    let reader = Some(reader);
    Some(Presence { fifo, reader })
}

/// There are no containers of a common kernel.
#[cfg(target_os = "macos")]
fn present(_: PathBuf) -> Option<Presence> {
    None
}

/// Opens a FIFO of the file's users, without waiting for its other end.
fn open(fifo: &Path, way: OFlags) -> Result<File, Errno> {
    let of_errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let users = Users::of(fifo).map_err(|_| Errno::NOENT)?;
    // Checked first, because opening a device can have an effect.
    let is_ours = |found: &fs::Metadata| found.file_type().is_fifo() && users.have_made(found);
    if !fs::symlink_metadata(fifo).is_ok_and(|found| is_ours(&found)) {
        return Err(Errno::NOENT);
    }
    let way = (way | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC).bits();
    let is_read = way & OFlags::WRONLY.bits() == 0;
    let opened = OpenOptions::new()
        .read(is_read)
        .write(!is_read)
        .custom_flags(way.cast_signed())
        .open(fifo)
        .map_err(of_errno)?;
    let is_it = opened.metadata().is_ok_and(|found| is_ours(&found));
    is_it.then_some(opened).ok_or(Errno::NOENT)
}
