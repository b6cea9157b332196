//! Examines where an embedded store lies: its file system, its permissions, and its free space.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{Access, access, statfs, statvfs};

use super::finding::{Finding, Verdict};

/// The numbers of tmpfs and ramfs.
const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// Free space below which an embedded store soon grants nothing new.
const LITTLE_ROOM: u64 = 64 << 20;

/// Free space below which it cannot grow at all.
const NO_ROOM: u64 = 1 << 20;

/// Examines the file of this path, which may not exist. Finds nothing if not even a folder can be examined.
pub fn examine(path: &Path) -> io::Result<Vec<Finding>> {
    let path = std::path::absolute(path)?;
    let mut folders = path.ancestors().skip(1);
    // The nearest that exists: the facts are about its file system.
    let folder = folders.find(|folder| folder.is_dir());
    let folder = folder.ok_or(io::ErrorKind::NotFound)?;
    let room = statvfs(folder)?;
    let free_bytes = room.f_bavail.saturating_mul(room.f_frsize);
    // The numbers have 32 bits; some platforms sign-extend them.
    let kind = i128::from(statfs(folder)?.f_type) & 0xffff_ffff;
    let is_in_memory = IN_MEMORY.iter().any(|number| i128::from(*number) == kind);
    Ok(vec![
        file_system(folder, is_in_memory),
        rights(&path, folder),
        file_room(folder, free_bytes),
    ])
}

fn file_system(folder: &Path, is_in_memory: bool) -> Finding {
    let what = match is_in_memory {
        true => "is in memory (tmpfs)",
        false => "is not in memory",
    };
    let what = format!("{} {what}", folder.display());
    Finding::new("file-system", Verdict::warn_unless(!is_in_memory), what)
        .endangers("a reboot frees every name and forgets the last tokens, and a container may have a folder of its own there")
        .fix("Move the file to a local disk")
}

/// Judges whether this user, and only this user, can write to the file and to the nearest folder above it.
fn rights(path: &Path, folder: &Path) -> Finding {
    let (file, above) = (path.display(), folder.display());
    let failure = |what: String| {
        let failure = Finding::new("file-rights", Verdict::Failure, what);
        failure.endangers("nothing can be acquired")
    };
    if path.parent() != Some(folder) {
        let what = format!("the folder of {file} does not exist; {above} does");
        return failure(what).fix("Create the folder");
    }
    if let Err(error) = access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        return failure(format!("{above} cannot be written to by this user: {error}"))
            .fix("Grant this user the permission to write there, because the log and the locks are beside the file");
    }
    if path.exists()
        && let Err(error) = access(path, Access::WRITE_OK | Access::READ_OK)
    {
        return failure(format!("{file} cannot be written to by this user: {error}"))
            .fix("Grant this user the permission to read and write it");
    }
    let mode = fs::metadata(path).map_or(0, |facts| facts.permissions().mode());
    let is_open = mode & 0o002 != 0;
    let who = if is_open { "every user" } else { "this user" };
    let what = format!("{who} can read and write {file}");
    Finding::new("file-rights", Verdict::warn_unless(!is_open), what)
        .endangers("any of them can free a name that is held")
        .fix("Remove that permission: chmod o-w")
}

fn file_room(folder: &Path, free_bytes: u64) -> Finding {
    let verdict = match free_bytes {
        ..NO_ROOM => Verdict::Failure,
        NO_ROOM..LITTLE_ROOM => Verdict::Warning,
        _ => Verdict::Ok,
    };
    let (free, good) = (free_bytes >> 20, LITTLE_ROOM >> 20);
    let folder = folder.display();
    let what = format!("{free} MiB are free in {folder}, and {good} MiB or more is good");
    Finding::new("file-room", verdict, what)
        .endangers("on a full disk new leases are refused; held leases are still renewed")
        .fix("Free some space")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_in_memory_and_a_missing_folder_is_said() {
        let found = examine(Path::new("/dev/shm/no/such/folder/leases.sqlite")).expect("a folder");
        let verdicts: Vec<_> = found.iter().map(|finding| finding.verdict).collect();
        assert_eq!(verdicts[..2], [Verdict::Warning, Verdict::Failure]);
        assert!(found[0].what.starts_with("/dev/shm is"), "{}", found[0]);
        assert!(found[1].what.contains("does not exist"), "{}", found[1]);
    }

    #[test]
    fn a_file_that_every_user_can_write_to_is_a_warning() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let folder = file.path().parent().expect("a folder");
        let verdict = |mode| {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(&file, mode).expect("set");
            rights(file.path(), folder).verdict
        };
        assert_eq!(verdict(0o600), Verdict::Ok);
        assert_eq!(verdict(0o602), Verdict::Warning);
    }

    #[test]
    fn a_disk_that_is_nearly_full_is_a_warning_and_a_full_one_a_failure() {
        let found = |bytes| file_room(Path::new("/a"), bytes);
        assert_eq!(found(1 << 40).verdict, Verdict::Ok);
        assert!(found(1 << 40).what.contains(" is good"));
        assert_eq!(found(1 << 21).verdict, Verdict::Warning);
        assert_eq!(found(0).verdict, Verdict::Failure);
    }
}
