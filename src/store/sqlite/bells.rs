//! Wakes the clients that wait for a name, in all processes that have the file open.
//!
//! A bell is a FIFO in a folder next to the file. A waiting client has it open for reading; a transaction that changed
//! what the client waits for opens it for writing once it is committed, and closes it at once. Nothing is written into
//! it: the close wakes every reader, and the open fails where nobody reads. Each bell is of all names with one
//! [`slot`], so that the releases of other names wake few.
//!
//! A bell says nothing but *look*, and a ring may be lost: its process was killed before it, may not write, or is of an
//! older version; another one stands still with the bell open. So whoever listens also looks once a second, and then
//! opens those that were deleted or replaced. A client without a bell looks more often.
//!
//! After a ring a reader stays at its end, so it is replaced: first the bell is opened, then the file is looked at. A
//! change between the two rings the new one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::task::Poll;

use tokio::net::unix::pipe::Receiver;

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

    const fn both(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    const fn has(self, bell: u32) -> bool {
        self.0 >> bell & 1 == 1
    }

    fn iter(self) -> impl Iterator<Item = u32> {
        (0..BELLS).filter(move |bell| self.has(*bell))
    }
}

/// What tells a file from one that took its place: its device and inode.
type Inode = (u64, u64);

/// A bell that is open to listen.
type Opened = (File, Inode);

/// A bell that has to be opened, unless it is still this one.
type Due = (u32, Option<Inode>);

/// The bells of one file.
#[derive(Debug)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there are none"))]
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

    use super::super::users::Users;
    use super::{BELLS, BellSet, Bells, Due, File, Inode, Opened, PathBuf, fs};

    const OWN: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);
    /// Waits for no other end, and becomes no terminal of this process, whatever lies in the place of the bell.
    const AT_ONCE: OFlags = OWN.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

    fn file_of(bell: u32) -> String {
        format!("{bell:02x}")
    }

    fn inode_of(found: &fs::Metadata) -> Inode {
        (found.dev(), found.ino())
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

        /// Opens these to listen, and makes what is missing; but not one that is still the one that is open. Returns
        /// `None` for those that could not be opened.
        pub(in super::super) fn listen(&self, due: Vec<Due>) -> Vec<(u32, Option<Opened>)> {
            let mut folder = None;
            let is_same = |(bell, inode): &Due| {
                let found = fs::symlink_metadata(self.folder.join(file_of(*bell)));
                inode.is_some() && found.is_ok_and(|found| Some(inode_of(&found)) == *inode)
            };
            let changed = due.into_iter().filter(|due| !is_same(due));
            let opened = changed.map(|(bell, _)| {
                let folder = folder.get_or_insert_with(|| self.folder_for_all());
                let fifo = folder.as_ref().ok().and_then(|folder| {
                    let fifo = self.bell_for_all(folder, bell).ok()?;
                    let inode = inode_of(&fifo.metadata().ok()?);
                    Some((fifo, inode))
                });
                (bell, fifo)
            });
            opened.collect()
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

    use super::{BellSet, Bells, Due, Opened, PathBuf};

    impl Bells {
        pub(in super::super) fn ring(&self, _: BellSet) {}

        pub(in super::super) fn listen(&self, due: Vec<Due>) -> Vec<(u32, Option<Opened>)> {
            due.into_iter().map(|(bell, _)| (bell, None)).collect()
        }

        /// Not a fault of the set-up.
        pub(in super::super) fn fault(&self) -> Option<(PathBuf, io::Error)> {
            None
        }
    }
}

/// The bells that a listener has open.
#[derive(Debug, Default)]
pub(super) struct OpenBells {
    open: BTreeMap<u32, (Receiver, Inode)>,
    /// Those that need not be opened now: open and not rung, or not to be had.
    tried: BellSet,
    /// Whether those that were tried are looked at once more.
    is_unsure: bool,
}

impl OpenBells {
    /// Returns which of the wanted bells have to be opened before the next look, with the inode of those that may
    /// stay, and closes those that are not wanted.
    pub(super) fn due(&mut self, wanted: BellSet) -> Vec<Due> {
        self.open.retain(|bell, _| wanted.has(*bell));
        self.tried = self.tried.both(wanted);
        let is_unsure = std::mem::take(&mut self.is_unsure);
        let due = wanted.iter().filter_map(|bell| match self.tried.has(bell) {
            false => Some((bell, None)),
            true if is_unsure => Some((bell, self.open.get(&bell).map(|(_, inode)| *inode))),
            true => None,
        });
        due.collect()
    }

    /// Takes in what was opened of those that were due, in place of the earlier ones.
    pub(super) fn replace(&mut self, opened: Vec<(u32, Option<Opened>)>) {
        for (bell, fifo) in opened {
            self.tried = self.tried.with(BellSet(1 << bell));
            self.open.remove(&bell);
            let receiver = fifo.and_then(|(fifo, inode)| {
                let receiver = Receiver::from_file_unchecked(fifo).ok()?;
                Some((receiver, inode))
            });
            self.open.extend(receiver.map(|receiver| (bell, receiver)));
        }
    }

    /// Has these opened again before the next look.
    pub(super) fn forget(&mut self, bells: BellSet) {
        self.tried = self.tried.without(bells);
    }

    /// Has all looked at before the next look: whether they are still there, and can be had.
    pub(super) fn doubt(&mut self) {
        self.is_unsure = true;
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
            let rung = self.open.iter().filter(|(_, (bell, _))| {
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
