//! Examines the place of an embedded store: its file system, its permissions, and its free space.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, StatVfsMountFlags, access, statfs, statvfs};

use super::facts::{FileSystem, Place};

/// The numbers of tmpfs and ramfs.
const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Examines the file of this path, which may not exist. `None` if not even a folder can be examined.
pub fn look(path: &Path) -> Option<Place> {
    let path = std::path::absolute(path).ok()?;
    let own = path.parent()?.to_path_buf();
    let folder = own.ancestors().find(|folder| folder.is_dir())?;
    let room = statvfs(folder).ok()?;
    let kind = statfs(folder).ok()?;
    // The numbers have 32 bits; some platforms sign-extend them.
    let number = u64::try_from(i128::from(kind.f_type) & 0xffff_ffff).unwrap_or_default();
    let file_system = match u32::try_from(number) {
        Ok(number) if IN_MEMORY.contains(&number) => FileSystem::Memory,
        _ if room.f_flag.contains(StatVfsMountFlags::RDONLY) => FileSystem::ReadOnly,
        _ => FileSystem::Other,
    };
    let is_there = path.exists();
    let mode = fs::metadata(&path).map_or(0, |facts| facts.permissions().mode());
    Some(Place {
        folder: PathBuf::from(folder),
        has_folder: folder == own,
        file_system,
        is_folder_writable: access(folder, Access::WRITE_OK | Access::EXEC_OK).is_ok(),
        is_file_writable: !is_there || access(&path, Access::WRITE_OK | Access::READ_OK).is_ok(),
        is_open_to_others: mode & 0o002 != 0,
        free_bytes: room.f_bavail.saturating_mul(room.f_frsize),
        has_boot_id: fs::read_to_string(BOOT_ID).is_ok_and(|id| !id.trim().is_empty()),
        path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_in_memory_and_a_missing_folder_is_said() {
        let place = look(Path::new("/dev/shm/no/such/folder/leases.sqlite")).expect("a folder");
        assert_eq!(place.file_system, FileSystem::Memory);
        assert_eq!(place.folder, Path::new("/dev/shm"));
        assert!(!place.has_folder && place.has_boot_id);
    }
}
