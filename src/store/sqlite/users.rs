//! Who shares the file: decided by its folder, for the file itself, its logs, and the FIFOs and the folder next to it.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;

use super::failure::Failure;

const OTHERS_WRITE: u32 = 0o002;
/// The group may write in the folder, and new files there belong to that group.
const OF_GROUP: u32 = 0o2020;

/// The users of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Users {
    /// One user, and root.
    One,
    /// The members of the folder's group, and root.
    Group,
    /// One user, and root. Others may make files in the folder, too.
    OneAmongStrangers,
}

impl Users {
    /// Returns the users of the file at this path, or of the files next to it.
    pub(super) fn of(path: &Path) -> Result<Self, Failure> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        let found = fs::metadata(folder);
        let found = found.map_err(|source| Failure::io("examine the file's folder", source))?;
        Ok(Self::by_mode(found.mode()))
    }

    const fn by_mode(folder: u32) -> Self {
        if folder & OTHERS_WRITE != 0 {
            Self::OneAmongStrangers
        } else if folder & OF_GROUP == OF_GROUP {
            Self::Group
        } else {
            Self::One
        }
    }

    /// Returns the mode of a new file.
    pub(super) const fn mode(self) -> u32 {
        match self {
            Self::Group => 0o660,
            Self::One | Self::OneAmongStrangers => 0o600,
        }
    }

    /// Returns the mode of a new folder. New files of a member of the group in it belong to the group.
    #[cfg(target_os = "linux")]
    pub(super) const fn mode_of_folder(self) -> u32 {
        match self {
            Self::Group => 0o2770,
            Self::One | Self::OneAmongStrangers => 0o700,
        }
    }

    /// Returns whether one of these users made this file. Where strangers may make one, its rows and triggers would be
    /// their choice.
    pub(super) fn have_made(self, file: &Metadata) -> bool {
        let is_own = [0, geteuid().as_raw()].contains(&file.uid());
        self != Self::OneAmongStrangers || is_own && file.mode() & OTHERS_WRITE == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_shared_by_a_group_whose_folder_says_so_and_never_among_strangers() {
        for (folder, users, mode) in [
            (0o700, Users::One, 0o600),
            (0o755, Users::One, 0o600),
            (0o2755, Users::One, 0o600),
            // A group that owns only some of the files.
            (0o770, Users::One, 0o600),
            (0o2770, Users::Group, 0o660),
            (0o3775, Users::Group, 0o660),
            (0o1777, Users::OneAmongStrangers, 0o600),
            (0o2777, Users::OneAmongStrangers, 0o600),
        ] {
            assert_eq!(Users::by_mode(0o040_000 | folder), users, "{folder:o}");
            assert_eq!(users.mode(), mode, "{folder:o}");
        }
    }
}
