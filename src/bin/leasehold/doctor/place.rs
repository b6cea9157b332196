//! Examines the place of an embedded store: its file system, its permissions, and its free space.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, StatVfsMountFlags, access, statfs, statvfs};

use super::finding::{Finding, Verdict};

/// The numbers of tmpfs and ramfs.
const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Free space below which an embedded store soon grants nothing new.
const LITTLE_ROOM: u64 = 64 << 20;

/// Free space below which it cannot grow at all.
const NO_ROOM: u64 = 1 << 20;

/// The file of an embedded store.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    /// The nearest existing folder; the facts are about its file system.
    folder: PathBuf,
    has_folder: bool,
    file_system: FileSystem,
    is_folder_writable: bool,
    is_file_writable: bool,
    is_open_to_others: bool,
    free_bytes: u64,
    has_boot_id: bool,
}

/// A kind of file system, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileSystem {
    /// It is in memory: tmpfs or ramfs.
    Memory,
    /// It is mounted read-only.
    ReadOnly,
    Other,
}

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

impl Place {
    /// Judges the place.
    pub fn judge(&self) -> Vec<Finding> {
        let boot_id = Finding::new(
            "boot-id",
            Verdict::Failure,
            "the kernel's boot id cannot be read",
            "leases of another boot cannot be told from those of this one, so the file is not opened",
            "Make /proc/sys/kernel/random/boot_id readable",
        );
        let boot_id = (!self.has_boot_id).then_some(boot_id);
        let findings = [
            self.judge_file_system(),
            self.judge_rights(),
            self.judge_room(),
        ];
        findings.into_iter().chain(boot_id).collect()
    }

    fn judge_file_system(&self) -> Finding {
        let (verdict, what, endangers, fix) = match self.file_system {
            FileSystem::Other => (Verdict::Ok, "is not in memory, and is writable", "", ""),
            FileSystem::Memory => (
                Verdict::Warning,
                "is in memory (tmpfs)",
                "a reboot frees every name and forgets the last tokens, and a container may have a folder of its own there",
                "Move the file to a local disk",
            ),
            FileSystem::ReadOnly => (
                Verdict::Failure,
                "is mounted read-only",
                "nothing can be acquired",
                "Mount it read-write, or use another file",
            ),
        };
        let what = format!("{} {what}", self.folder.display());
        Finding::new("file-system", verdict, what, endangers, fix)
    }

    fn judge_rights(&self) -> Finding {
        let (path, folder) = (self.path.display(), self.folder.display());
        let (what, fix) = if !self.has_folder {
            let what = format!("the folder of {path} does not exist; {folder} does");
            (what, "Create the folder")
        } else if !self.is_folder_writable {
            (
                format!("{folder} cannot be written to by this user"),
                "Grant this user the permission to write there, because the log and the locks are beside the file",
            )
        } else if !self.is_file_writable {
            let what = format!("{path} cannot be written to by this user");
            (what, "Grant this user the permission to read and write it")
        } else if self.is_open_to_others {
            return Finding::new(
                "file-rights",
                Verdict::Warning,
                format!("every user can write to {path}"),
                "any of them can free a name that is held",
                "Remove that permission: chmod o-w",
            );
        } else {
            return Finding::ok("file-rights", format!("{path} can be read and written"));
        };
        let endangers = "nothing can be acquired";
        Finding::new("file-rights", Verdict::Failure, what, endangers, fix)
    }

    fn judge_room(&self) -> Finding {
        let verdict = match self.free_bytes {
            ..NO_ROOM => Verdict::Failure,
            NO_ROOM..LITTLE_ROOM => Verdict::Warning,
            _ => Verdict::Ok,
        };
        let (free, good) = (self.free_bytes >> 20, LITTLE_ROOM >> 20);
        let folder = self.folder.display();
        Finding::new(
            "file-room",
            verdict,
            format!("{free} MiB are free in {folder}, and {good} MiB or more is good"),
            "on a full disk new leases are refused; held leases are still renewed",
            "Free some space",
        )
    }
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

    /// Returns a place without a fault.
    fn sound() -> Place {
        Place {
            path: "/a/leases".into(),
            folder: "/a".into(),
            has_folder: true,
            file_system: FileSystem::Other,
            is_folder_writable: true,
            is_file_writable: true,
            is_open_to_others: false,
            free_bytes: 1 << 40,
            has_boot_id: true,
        }
    }

    type Change = fn(&mut Place);

    /// Returns the worst verdict about a sound place after this change.
    fn worst(change: Change) -> Verdict {
        let mut changed = sound();
        change(&mut changed);
        let verdicts = changed.judge().into_iter().map(|finding| finding.verdict);
        verdicts.max().expect("some findings")
    }

    #[test]
    fn each_fault_of_a_place_is_told() {
        assert_eq!(worst(|_| ()), Verdict::Ok);
        assert!(sound().judge_room().what.contains(" is good"));
        let faults: [(Verdict, Change); 9] = [
            (Verdict::Warning, |it| it.is_open_to_others = true),
            (Verdict::Warning, |it| it.free_bytes = 1 << 21),
            (Verdict::Warning, |it| it.file_system = FileSystem::Memory),
            (Verdict::Failure, |it| it.file_system = FileSystem::ReadOnly),
            (Verdict::Failure, |it| it.has_folder = false),
            (Verdict::Failure, |it| it.is_folder_writable = false),
            (Verdict::Failure, |it| it.is_file_writable = false),
            (Verdict::Failure, |it| it.free_bytes = 0),
            (Verdict::Failure, |it| it.has_boot_id = false),
        ];
        for (verdict, fault) in faults {
            assert_eq!(worst(fault), verdict);
        }
    }
}
