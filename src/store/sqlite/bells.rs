//! Wakes the waiting clients in all processes that have the file open, and detects dead ones.
//!
//! A bell is a FIFO in a folder next to the file. A waiting client has it open for reading; a transaction that changed
//! what the client waits for opens it for writing, and closes it once it is committed. Nothing is written into it: the
//! close wakes every reader, and the open fails if there is none.
//!
//! A client that waits in queues has its own bell, so a grant wakes no other client. It gets its name once it has a
//! reader, and has one for as long as the client lives: without one the client is dead. Clients that only watch names
//! share a bell for all names with one [`slot`], so that the releases of other names wake few.
//!
//! A bell says nothing but *poll*, and a ring may be lost: its process was killed before it, may not write, or is of an
//! older version; another one stands still with the bell open. So a listener also polls once a second, and then opens
//! those that were deleted or replaced. A client without a bell polls more often.
//!
//! After a ring a reader stays at its end, so it is replaced: first the bell is opened, then the file is read. A change
//! between the two rings the new one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::holder::ClientId;
use crate::name::Name;
use crate::store::Topic;

/// Suffix of the folder of a file's bells.
const ENDING: &str = "-bells";

/// Number of bells for watchers. Part of the file's format, with [`slot`]: ringing and listening processes have to
/// agree.
const SLOTS: u32 = 64;

/// Returns the slot of a name: by FNV-1a, whose upper bits are mixed into the lower ones.
fn slot(name: &Name) -> u32 {
    let hash = name.as_str().bytes().fold(0x811c_9dc5, |hash: u32, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    (hash ^ hash >> 16) % SLOTS
}

/// A bell. It is displayed as the name of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Bell {
    /// The bell of the clients that watch a name of this slot.
    Watchers(u32),
    /// The bell of a client that waits in queues.
    Client(ClientId),
}

impl Bell {
    /// The bell of the clients that watch this name.
    pub(super) fn of_watchers(name: &Name) -> Self {
        Self::Watchers(slot(name))
    }

    /// The bell of the clients that follow this topic.
    pub(super) fn of(topic: &Topic) -> Self {
        match topic {
            Topic::Freed(name) => Self::of_watchers(name),
            Topic::Queue(_, client) => Self::Client(*client),
        }
    }
}

impl fmt::Display for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Watchers(slot) => write!(f, "{slot:02x}"),
            Self::Client(client) => client.fmt(f),
        }
    }
}

/// Distinguishes a file from one that replaced it: its device and inode.
type Inode = (u64, u64);

/// A bell that is open to listen.
type Opened = (File, Inode);

/// Whether a client listens to a bell.
#[derive(Debug)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there are none"))]
pub(super) enum Listener {
    /// A client listens; dropping this rings it.
    Alive(File),
    /// No client listens any longer.
    Dead,
    /// There is no such bell, or it cannot be opened.
    Unknown,
}

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

    /// Returns whether this bell was made. That of a living client has a reader then.
    pub(super) fn has(&self, bell: Bell) -> bool {
        fs::symlink_metadata(self.path(bell)).is_ok()
    }

    /// Removes the bell of a client that stopped listening.
    pub(super) fn remove(&self, client: ClientId) {
        // A later client removes the rest.
        let _ = fs::remove_file(self.path(Bell::Client(client)));
    }

    fn path(&self, bell: Bell) -> PathBuf {
        self.folder.join(bell.to_string())
    }
}

#[cfg(target_os = "linux")]
mod fifos {
    use std::io::ErrorKind;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, fchown};

    use rustix::fs::{
        Access, AtFlags, CWD, FileType, Mode, OFlags, accessat, mkdirat, mknodat, openat, renameat,
        unlinkat,
    };
    use rustix::io::Errno;

    use super::super::users::Users;
    use super::{Bell, Bells, File, Inode, Listener, Opened, PathBuf, SLOTS, fs, io};

    const OWN: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);
    /// Does not wait for the other end, and gives this process no terminal, whatever is at the path of the bell.
    const AT_ONCE: OFlags = OWN.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

    /// Number of other clients' bells that a client checks when it makes its own: each leaves one behind at most.
    const LOOKED_AT: usize = 8;
    /// The least length of the name of a client's bell.
    const OF_CLIENT: usize = 32;

    fn inode_of(found: &fs::Metadata) -> Inode {
        (found.dev(), found.ino())
    }

    impl Bells {
        /// Opens this bell to ring it. Costs a few microseconds if no client listens.
        pub(in super::super) fn open(&self, bell: Bell) -> Listener {
            // Without a folder no client has listened yet. Listeners that are not rung poll within a second.
            let Ok(folder) = self.opened_folder() else {
                return Listener::Unknown;
            };
            let way = OFlags::WRONLY | AT_ONCE;
            match openat(&folder, bell.to_string(), way, Mode::empty()) {
                Ok(bell) => Listener::Alive(bell.into()),
                Err(Errno::NXIO) => Listener::Dead,
                Err(_) => Listener::Unknown,
            }
        }

        /// Opens this bell to listen, and makes it if it is missing.
        pub(in super::super) fn listen(&self, bell: Bell) -> io::Result<Opened> {
            let folder = self.folder_for_all()?;
            let fifo = self.bell_for_all(&folder, bell)?;
            let inode = inode_of(&fifo.metadata()?);
            Ok((fifo, inode))
        }

        /// Returns whether the bell at its path is this one.
        pub(in super::super) fn is_there(&self, bell: Bell, inode: Inode) -> bool {
            let found = fs::symlink_metadata(self.path(bell));
            found.is_ok_and(|found| inode_of(&found) == inode)
        }

        /// Returns why a process like this one may have no bell, and where the fault is.
        pub(in super::super) fn fault(&self) -> Option<(PathBuf, io::Error)> {
            let folder = match self.folder_for_all() {
                Ok(folder) => folder,
                Err(error) => return Some((self.folder.clone(), error)),
            };
            // Each client makes its own bell in it.
            if let Err(error) = accessat(CWD, &self.folder, Access::WRITE_OK, AtFlags::empty()) {
                return Some((self.folder.clone(), error.into()));
            }
            let allows =
                |bell: Bell, way| accessat(&folder, bell.to_string(), way, AtFlags::empty());
            let try_one = |bell| {
                self.bell_for_all(&folder, bell)?;
                // Opening it for writing would wake all waiting clients.
                Ok(allows(bell, Access::WRITE_OK)?)
            };
            // Those that are there, and one that a client could have to make.
            let is_tried =
                |bell: &Bell| *bell == Bell::Watchers(0) || allows(*bell, Access::EXISTS).is_ok();
            let fault = |bell| Some((self.path(bell), try_one(bell).err()?));
            (0..SLOTS)
                .map(Bell::Watchers)
                .filter(is_tried)
                .find_map(fault)
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

        fn bell_for_all(&self, folder: &File, bell: Bell) -> io::Result<File> {
            let name = bell.to_string();
            let open = |name: &str| -> io::Result<File> {
                let fifo: File =
                    openat(folder, name, OFlags::RDONLY | AT_ONCE, Mode::empty())?.into();
                match fifo.metadata()?.file_type().is_fifo() {
                    true => Ok(fifo),
                    false => Err(io::Error::other("it is no FIFO")),
                }
            };
            let make = |name: &str| -> io::Result<File> {
                let own = Mode::RUSR | Mode::WUSR;
                let made = mknodat(folder, name, FileType::Fifo, own, 0).is_ok();
                let fifo = open(name)?;
                if made {
                    self.share(&fifo, self.users()?.mode());
                }
                Ok(fifo)
            };
            match (open(&name), bell) {
                (Ok(fifo), _) => Ok(fifo),
                (Err(_), Bell::Watchers(_)) => make(&name),
                (Err(_), Bell::Client(_)) => {
                    self.sweep(folder);
                    let fresh = format!("{name}.new");
                    let fifo = make(&fresh)?;
                    renameat(folder, &*fresh, folder, &*name)?;
                    Ok(fifo)
                }
            }
        }

        /// Removes the bells of dead clients, among some that are drawn at random, so that the folder has hardly more
        /// bells than waiting clients. Those that live are rung, and poll once.
        fn sweep(&self, folder: &File) {
            let found = fs::read_dir(&self.folder).into_iter().flatten().flatten();
            let names = found.map(|found| found.file_name());
            let of_clients = names.filter(|name| name.as_bytes().len() >= OF_CLIENT);
            for name in fastrand::choose_multiple(of_clients, LOOKED_AT) {
                let way = OFlags::WRONLY | AT_ONCE;
                if openat(folder, &name, way, Mode::empty()).err() == Some(Errno::NXIO) {
                    let _ = unlinkat(folder, &name, AtFlags::empty());
                }
            }
        }

        fn users(&self) -> io::Result<Users> {
            Users::of(&self.file).map_err(io::Error::other)
        }

        /// Gives a new file to the users of the file of leases, whatever the mask of this process.
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

/// Other systems have no event for this; waiting clients poll.
#[cfg(not(target_os = "linux"))]
mod fifos {
    use super::{Bell, Bells, Inode, Listener, Opened, PathBuf, io};

    impl Bells {
        pub(in super::super) fn open(&self, _: Bell) -> Listener {
            Listener::Unknown
        }

        pub(in super::super) fn listen(&self, _: Bell) -> io::Result<Opened> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(in super::super) fn is_there(&self, _: Bell, _: Inode) -> bool {
            false
        }

        /// Not a fault of the set-up.
        pub(in super::super) fn fault(&self) -> Option<(PathBuf, io::Error)> {
            None
        }
    }
}

/// The bells to which a client listens.
#[derive(Debug, Default)]
pub(super) struct OpenBells(BTreeMap<Bell, Ear>);

#[derive(Debug, Default)]
struct Ear {
    open: Option<Opened>,
    /// It could not be opened after it was rung or lost. What is open hears nothing, but shows that the client lives.
    is_deaf: bool,
}

impl OpenBells {
    /// Listens to these bells and to no others: opens those that are new or were rung and, if they are in doubt, those
    /// that are no longer there or could not be opened.
    pub(super) fn listen(
        &mut self,
        bells: &Bells,
        wanted: &BTreeSet<Bell>,
        rung: &BTreeSet<Bell>,
        are_in_doubt: bool,
    ) {
        self.0.retain(|bell, _| {
            let is_wanted = wanted.contains(bell);
            if let (Bell::Client(client), false) = (bell, is_wanted) {
                bells.remove(*client);
            }
            is_wanted
        });
        for bell in wanted {
            let ear = self.0.entry(*bell).or_default();
            let is_there = |(_, inode): &Opened| bells.is_there(*bell, *inode);
            let is_lost = || ear.is_deaf || !ear.open.as_ref().is_some_and(is_there);
            let is_new = ear.open.is_none() && !ear.is_deaf;
            if is_new || rung.contains(bell) || are_in_doubt && is_lost() {
                let opened = bells.listen(*bell);
                ear.is_deaf = opened.is_err();
                ear.open = opened.ok().or(ear.open.take());
            }
        }
    }

    /// Returns whether one of them cannot be heard.
    pub(super) fn lacks_one(&self) -> bool {
        self.0.values().any(|ear| ear.is_deaf)
    }

    /// Those that can be heard. One that was rung is at its end.
    pub(super) fn heard(&self) -> impl Iterator<Item = (Bell, &File)> {
        let heard = self.0.iter().filter(|(_, ear)| !ear.is_deaf);
        heard.filter_map(|(bell, ear)| Some((*bell, &ear.open.as_ref()?.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two versions that disagree would not wake each other.
    #[test]
    fn the_slots_of_a_dozen_names_are_those_of_every_version() {
        for (name, expected) in [
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
            assert_eq!(slot(&name), expected, "{name}");
        }
    }

    /// Otherwise it would be taken for dead.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_client_that_cannot_open_its_bell_again_has_the_old_one_open() {
        let folder = tempfile::tempdir().expect("a folder");
        let bells = Bells::of(&folder.path().join("leases.sqlite"));
        let bell = Bell::Client(ClientId::draw());
        let (wanted, none) = (BTreeSet::from([bell]), BTreeSet::new());
        let mut open = OpenBells::default();
        open.listen(&bells, &wanted, &none, false);
        assert!(matches!(bells.open(bell), Listener::Alive(_)) && !open.lacks_one());
        let (path, away) = (bells.path(bell), folder.path().join("away"));
        fs::rename(&path, &away).expect("renamed");
        fs::write(&path, "in its way").expect("written");
        fs::write(bells.path(bell).with_extension("new"), "as well").expect("written");
        open.listen(&bells, &wanted, &wanted, false);
        assert!(open.lacks_one() && open.heard().next().is_none());
        fs::rename(&away, &path).expect("renamed");
        assert!(matches!(bells.open(bell), Listener::Alive(_)));
        open.listen(&bells, &wanted, &none, true);
        assert!(!open.lacks_one());
        open.listen(&bells, &none, &none, false);
        assert!(!bells.has(bell));
    }
}
