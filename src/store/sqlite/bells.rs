//! Wakes the clients that wait for a name, in all processes that have the file open.
//!
//! A bell is a FIFO in a folder next to the file. A waiting client has it open for reading; a transaction that changed
//! what the client waits for opens it for writing once it is committed, and closes it at once. Nothing is written into
//! it: the close wakes every reader, and the open fails where nobody reads. Each bell is of all names with one
//! [`slot`], so that the releases of other names wake few.
//!
//! A bell says nothing but *look*, and a ring may be lost: its process was killed before it, may not write, or is of an
//! older version; another one stands still with the bell open. So whoever listens also looks once a second, and opens
//! its bells anew then, in case they were deleted or replaced. A client without a bell looks more often.
//!
//! After a ring a reader stays at its end, so it is replaced: first the bell is opened, then the file is looked at. A
//! change between the two rings the new one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::task::Poll;

use tokio::net::unix::pipe::Receiver;

use super::users::Users;
use crate::name::Name;

/// After the name of the file: the folder of its bells.
const ENDING: &str = "-bells";

/// The number of bells. Part of the file's format, with [`slot`]: those who ring and those who listen have to agree.
const BELLS: u32 = u64::BITS;

/// Returns the bell of a name: by FNV-1a, whose upper bits are mixed into the lower ones.
fn slot(name: &Name) -> u32 {
    let hash = name.as_str().bytes().fold(0x811c_9dc5, |hash: u32, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    (hash ^ hash >> 16) % BELLS
}

/// Some of the bells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct BellSet(u64);

impl BellSet {
    pub(super) const NONE: Self = Self(0);
    pub(super) const ALL: Self = Self(u64::MAX);

    /// The bell of this name.
    pub(super) fn of(name: &Name) -> Self {
        Self(1 << slot(name))
    }

    pub(super) const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    const fn has(self, bell: u32) -> bool {
        self.0 >> bell & 1 == 1
    }

    fn iter(self) -> impl Iterator<Item = u32> {
        (0..BELLS).filter(move |bell| self.has(*bell))
    }
}

/// The bells of one file.
#[derive(Debug)]
pub(super) struct Bells {
    /// The file behind all links, so that all its users find the same folder.
    file: PathBuf,
    folder: PathBuf,
}

impl Bells {
    pub(super) fn of(file: &Path) -> Self {
        let file = fs::canonicalize(file).unwrap_or_else(|_| file.into());
        let mut folder = file.as_os_str().to_owned();
        folder.push(ENDING);
        let folder = folder.into();
        Self { file, folder }
    }
}

#[cfg(target_os = "linux")]
mod fifos {
    use std::io::{self, ErrorKind};
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, fchown};

    use rustix::fs::{
        Access, AtFlags, CWD, FileType, Mode, OFlags, accessat, mkdirat, mknodat, openat,
    };

    use super::{BELLS, BellSet, Bells, File, PathBuf, Users, fs};

    const OWN: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);
    /// Waits for no other end, and becomes no terminal of this process, whatever lies in the place of the bell.
    const AT_ONCE: OFlags = OWN.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

    fn file_of(bell: u32) -> String {
        format!("{bell:02x}")
    }

    impl Bells {
        /// Rings these. Costs a few microseconds each where nobody listens.
        pub(in super::super) fn ring(&self, bells: BellSet) {
            if bells == BellSet::NONE {
                return;
            }
            // Without a folder nobody has listened yet. Those who listen and are not rung look within a second.
            let Ok(folder) = self.opened_folder() else {
                return;
            };
            for bell in bells.iter() {
                let way = OFlags::WRONLY | AT_ONCE;
                drop(openat(&folder, file_of(bell), way, Mode::empty()));
            }
        }

        /// Opens these to listen, those that can be, and makes what is missing.
        pub(in super::super) fn listen(&self, bells: BellSet) -> Vec<(u32, File)> {
            if bells == BellSet::NONE {
                return Vec::new();
            }
            let Ok(folder) = self.folder_for_all() else {
                return Vec::new();
            };
            let opened = bells.iter().map(|bell| {
                let fifo = self.bell_for_all(&folder, bell);
                fifo.map(|fifo| (bell, fifo))
            });
            opened.flatten().collect()
        }

        /// Returns why a process like this one may have no bell, and the place of the fault.
        pub(in super::super) fn fault(&self) -> Option<(PathBuf, io::Error)> {
            let folder = match self.folder_for_all() {
                Ok(folder) => folder,
                Err(error) => return Some((self.folder.clone(), error)),
            };
            let allows = |bell, way| accessat(&folder, file_of(bell), way, AtFlags::empty());
            let try_one = |bell| {
                self.bell_for_all(&folder, bell)?;
                // To open it for writing would wake all who wait.
                Ok(allows(bell, Access::WRITE_OK)?)
            };
            // Those that are there, and one that a client could have to make.
            let is_tried = |bell: &u32| *bell == 0 || allows(*bell, Access::EXISTS).is_ok();
            let fault = |bell| Some((self.folder.join(file_of(bell)), try_one(bell).err()?));
            (0..BELLS).filter(is_tried).find_map(fault)
        }

        fn opened_folder(&self) -> io::Result<File> {
            let way = OFlags::RDONLY | OFlags::DIRECTORY | OWN;
            let folder: File = openat(CWD, &self.folder, way, Mode::empty())?.into();
            match self.users()?.have_made(&folder.metadata()?) {
                true => Ok(folder),
                false => Err(io::Error::other("another user may have made it")),
            }
        }

        fn folder_for_all(&self) -> io::Result<File> {
            match self.opened_folder() {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                opened => return opened,
            }
            let made = mkdirat(CWD, &self.folder, Mode::RWXU).is_ok();
            let folder = self.opened_folder()?;
            if made {
                self.share(&folder, self.users()?.mode_of_folder());
            }
            Ok(folder)
        }

        fn bell_for_all(&self, folder: &File, bell: u32) -> io::Result<File> {
            let name = file_of(bell);
            let open = || openat(folder, &*name, OFlags::RDONLY | AT_ONCE, Mode::empty());
            let mut made = false;
            let opened = open().or_else(|_| {
                let own = Mode::RUSR | Mode::WUSR;
                made = mknodat(folder, &*name, FileType::Fifo, own, 0).is_ok();
                open()
            });
            let fifo: File = opened?.into();
            if !fifo.metadata()?.file_type().is_fifo() {
                return Err(io::Error::other("it is no FIFO"));
            }
            if made {
                self.share(&fifo, self.users()?.mode());
            }
            Ok(fifo)
        }

        fn users(&self) -> io::Result<Users> {
            Users::of(&self.file).map_err(io::Error::other)
        }

        /// Gives what this process made to the users of the file, whatever its mask is.
        fn share(&self, made: &File, mode: u32) {
            // Only root may, in the file of another user.
            if let Ok(file) = fs::metadata(&self.file) {
                let _ = fchown(made, Some(file.uid()), Some(file.gid()));
            }
            // A file system without modes refuses it, and gives every file the same one.
            let _ = made.set_permissions(fs::Permissions::from_mode(mode));
        }
    }
}

/// Other systems have no event for this; whoever waits looks.
#[cfg(not(target_os = "linux"))]
mod fifos {
    use std::io;

    use super::{BellSet, Bells, File, PathBuf};

    impl Bells {
        pub(in super::super) fn ring(&self, _: BellSet) {}

        pub(in super::super) fn listen(&self, _: BellSet) -> Vec<(u32, File)> {
            Vec::new()
        }

        /// Not a fault of the set-up.
        pub(in super::super) fn fault(&self) -> Option<(PathBuf, io::Error)> {
            None
        }
    }
}

/// The bells that a listener has open.
#[derive(Debug, Default)]
pub(super) struct Heard {
    open: BTreeMap<u32, Receiver>,
    /// Those that need not be opened now: open, or not to be had.
    tried: BellSet,
}

impl Heard {
    /// Returns which of the wanted bells have to be opened before the next look, and closes those that are not wanted.
    pub(super) fn due(&mut self, wanted: BellSet) -> BellSet {
        self.open.retain(|bell, _| wanted.has(*bell));
        self.tried = self.tried.without(BellSet::ALL.without(wanted));
        wanted.without(self.tried)
    }

    /// Takes in what was opened of those that were due, in place of the earlier ones.
    pub(super) fn replace(&mut self, due: BellSet, opened: Vec<(u32, File)>) {
        self.tried = self.tried.with(due);
        self.open.retain(|bell, _| !due.has(*bell));
        for (bell, fifo) in opened {
            if let Ok(receiver) = Receiver::from_file_unchecked(fifo) {
                self.open.insert(bell, receiver);
            }
        }
    }

    /// Has these opened again before the next look.
    pub(super) fn forget(&mut self, bells: BellSet) {
        self.tried = self.tried.without(bells);
    }

    /// Returns whether one of those that are wanted could not be opened.
    pub(super) fn lacks_one(&self) -> bool {
        self.tried.iter().any(|bell| !self.open.contains_key(&bell))
    }

    /// Returns those that were rung since they were opened, once there are any.
    ///
    /// # Cancel safety
    /// Dropping the future loses no ring.
    pub(super) async fn rung(&self) -> BellSet {
        poll_fn(|context| {
            let rung = self.open.iter().filter(|(_, bell)| {
                // An error as well has it opened anew.
                bell.poll_read_ready(context).is_ready()
            });
            match rung.fold(0, |rung, (bell, _)| rung | 1 << bell) {
                0 => Poll::Pending,
                rung => Poll::Ready(BellSet(rung)),
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two versions that disagree would not wake each other.
    #[test]
    fn the_bells_of_a_dozen_names_are_those_of_every_version() {
        for (name, bell) in [
            ("a", 32),
            ("b", 41),
            ("A", 7),
            ("billing", 44),
            ("nightly-report", 2),
            ("deploy/eu-1", 48),
            ("deploy/eu-2", 37),
            ("jobs/0042", 14),
            ("x#1", 36),
            ("a b", 17),
            ("Zürich", 32),
            ("名前", 35),
        ] {
            let name = Name::new(name).expect("a valid name");
            assert_eq!(slot(&name), bell, "{name}");
        }
    }
}
