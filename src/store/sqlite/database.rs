//! The file itself: creates it, recognises it or refuses it untouched, and runs transactions on it within a limit.
//!
//! This process opens the file only through SQLite: the kernel drops all of a process's locks on a file when any one of
//! its descriptors is closed. So it is examined by its path only ([`identity`](super::identity)), and made under
//! another name, or while no other thread opens it.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::bells::Bells;
use super::boot::Boot;
use super::failure::Failure;
use super::identity::{self, Identity};
use super::kernel::{self, Presence};
use super::sweep;
use super::transaction::{Caller, Ringing, Tx};
use super::users::Users;

/// Marks the file as ours: "lsho".
const APPLICATION_ID: i32 = 0x6c73_686f;
/// The schema that this code reads and writes.
const SCHEMA_VERSION: i32 = 5;
/// The scripts that make each schema from the one before it, and the first from an empty file.
const SCHEMAS: [&str; 5] = [
    include_str!("protocol/schema.sql"),
    include_str!("protocol/line.sql"),
    include_str!("protocol/mark.sql"),
    include_str!("protocol/watch.sql"),
    include_str!("protocol/waiting.sql"),
];

/// Capacity of the cache of statements: enough for every statement of a claim or a release, because preparing one again
/// doubles its time.
const STATEMENTS: usize = 32;

/// Held while a file is sought and made: no other thread opens one whose descriptor its maker has still to close.
static MAKING: Mutex<()> = Mutex::new(());

/// The pause before a busy file is tried again: the minimum leaves room for a few transactions of others, and the
/// maximum is far below a renewal's budget. No backoff: the longest waiter must not poll the least often.
const BUSY_WAIT_US: std::ops::RangeInclusive<u64> = 50..=1_000;

/// An open file of leases.
#[derive(Debug)]
pub(super) struct Database {
    db: Connection,
    boot: Boot,
    /// Shows to other containers that this boot id is of their kernel.
    _presence: Option<Presence>,
    path: PathBuf,
    /// The file and, once SQLite has made them, its logs.
    identities: Vec<Identity>,
    bells: Bells,
}

impl Database {
    /// Opens the file, and creates it if it is missing.
    pub(super) fn open(path: &Path, boot: Boot, caller: Caller<'_>) -> Result<Self, Failure> {
        let alone = alone(path, caller)?;
        {
            let _one = MAKING.lock();
            if !path.try_exists().map_err(identity::unseen)? {
                create(path)?;
            }
        }
        // An overlay file system gives the file another identity when it is first opened for writing, so check twice.
        let before = identity::examine(path)?;
        let mut db = connect(path)?;
        let identity = identity::examine(path)?;
        if identity != before {
            db = connect(path)?;
        }
        let mut file = Self {
            db,
            boot,
            _presence: None,
            path: path.into(),
            identities: vec![identity],
            bells: Bells::of(path),
        };
        file.check_identity()?;
        file.prepare(caller)?;
        (file.boot, file._presence) = kernel::settle(path, file.boot, alone);
        sweep::take_over(&mut file, caller)?;
        Ok(file)
    }

    /// The boot that opened it.
    pub(super) fn boot(&self) -> &Boot {
        &self.boot
    }

    /// The bells of those who wait for its names.
    pub(super) fn bells(&self) -> &Bells {
        &self.bells
    }

    /// Reads a consistent state; waits for nothing but a recovery of the log.
    pub(super) fn read<T>(
        &mut self,
        caller: Caller<'_>,
        work: impl Fn(&Tx<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.check_identity()?;
        patiently(caller, || {
            work(&Tx::begin(
                &self.db,
                &self.boot,
                &self.bells,
                &Ringing::default(),
            ))
        })
    }

    /// Runs one short transaction. It takes the write lock first, so that nothing that it has read can change. Then
    /// wakes the clients that it names.
    pub(super) fn write<T>(
        &mut self,
        caller: Caller<'_>,
        work: impl Fn(&Tx<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.check_identity()?;
        patiently(caller, || {
            let transaction = self
                .db
                .transaction_with_behavior(TransactionBehavior::Immediate)?;
            // The caller may have given up and already taken the request back, over another connection. No other
            // process writes now, so a caller that still waits takes it back after this.
            if caller.is_gone() {
                return Err(Failure::Late);
            }
            let ringing = Ringing::default();
            let answer = work(&Tx::begin(&transaction, &self.boot, &self.bells, &ringing))?;
            let committed = transaction.commit();
            // Not before: a waiter would poll too early. After a failure as well, since what became of it may be
            // unknown.
            drop(ringing);
            committed?;
            Ok(answer)
        })
    }

    /// Like that, for work that must succeed while the disk is full: once the log was moved into the file, its blocks
    /// are reused.
    pub(super) fn write_though_full<T>(
        &mut self,
        caller: Caller<'_>,
        work: impl Fn(&Tx<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        match self.write(caller, &work) {
            Err(failure) if failure.is_full() => {
                self.empty_log(caller)?;
                self.write(caller, work)
            }
            Err(Failure::Unsynced) => self.write_synced(caller, work),
            answer => answer,
        }
    }

    /// Like that, for work that must survive a power cut: it is on the disk once this returns.
    fn write_synced<T>(
        &mut self,
        caller: Caller<'_>,
        work: impl Fn(&Tx<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.db.execute_batch("PRAGMA synchronous = FULL")?;
        let answer = self.write_though_full(caller, work);
        // If this fails, commits only take longer.
        let _ = self.db.execute_batch("PRAGMA synchronous = NORMAL");
        answer
    }

    /// Moves the log into the file as far as readers allow, so that its blocks are written again.
    pub(super) fn empty_log(&mut self, caller: Caller<'_>) -> Result<(), Failure> {
        patiently(caller, || empty_log(&self.db))
    }

    /// Reserves this many bytes of the disk until it is dropped. No other process sees it, and it ends with this
    /// process.
    pub(super) fn reserve(&self, bytes: usize) -> Result<fs::File, Failure> {
        let (path, mut reserve) = create_beside(&self.path)?;
        let failed = |source| Failure::io("write beside the file", source);
        fs::remove_file(path).map_err(failed)?;
        reserve.write_all(&vec![0; bytes]).map_err(failed)?;
        Ok(reserve)
    }

    fn prepare(&mut self, caller: Caller<'_>) -> Result<(), Failure> {
        // Only our own code decides how long to wait: SQLite's wait is not fair.
        self.db.busy_timeout(Duration::ZERO)?;
        let logs = identity::logs(&self.path)?;
        let has_log = fs::exists(&logs[0]).map_err(identity::unseen)?;
        // Until it is known to be ours, not even the log of a crashed owner is moved into the file.
        self.db
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, has_log)?;
        // In one transaction: between two reads another process may have made the schema.
        let found = patiently(caller, || schema_of(&*self.db.transaction()?))?;
        if self.db.is_readonly("main")? {
            return Err(Failure::unfit("the file is read-only"));
        }
        self.refuse_auto_vacuum()?;
        self.db
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
        patiently(caller, || use_log(&self.db))?;
        for log in logs {
            self.identities.push(Identity::of(log)?);
        }
        if found < SCHEMA_VERSION {
            self.write_though_full(caller, complete_schema)?;
        }
        Ok(())
    }

    /// With `auto_vacuum` no page of the file is ever free, so no lease would find room.
    pub(super) fn refuse_auto_vacuum(&self) -> Result<(), Failure> {
        let mode: i64 = self
            .db
            .query_row("PRAGMA auto_vacuum", (), |row| row.get(0))?;
        if mode == 0 {
            return Ok(());
        }
        Err(Failure::unfit(
            "auto_vacuum is on; turn it off with `PRAGMA auto_vacuum = NONE; VACUUM`",
        ))
    }

    /// SQLite would go on with a file or a log that was deleted or replaced, and grant what the new one grants too.
    fn check_identity(&self) -> Result<(), Failure> {
        self.identities.iter().try_for_each(Identity::check)
    }
}

/// Makes the folder of the file, with all above it, for this user only.
pub(super) fn create_folder(path: &Path) -> Result<(), Failure> {
    let Some(folder) = path.parent() else {
        return Ok(());
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|source| Failure::io("create the folder of the file", source))
}

/// Waits until no other user of the group opens a file here, if a group shares it: SQLite makes a log by the mask of
/// its process, and gives it the mode of the file after that. The lock on the folder ends with the value.
fn alone(path: &Path, caller: Caller<'_>) -> Result<Option<fs::File>, Failure> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.into());
    if Users::of(&path)? != Users::Group {
        return Ok(None);
    }
    let Some(folder) = path.parent().and_then(|folder| fs::File::open(folder).ok()) else {
        return Ok(None);
    };
    while let Err(TryLockError::WouldBlock) = folder.try_lock() {
        let wait = Duration::from_micros(fastrand::u64(BUSY_WAIT_US));
        if !caller.waits_for(wait) {
            return Err(Failure::Busy);
        }
        pause(wait);
    }
    Ok(Some(folder))
}

/// Creates an empty file at this path, for the users who share it. If two processes do this, the second finds the file
/// of the first.
fn create(path: &Path) -> Result<(), Failure> {
    let failed = |source| Failure::io("create the file", source);
    let (fresh, file) = create_beside(path)?;
    // Closed before it becomes the file of leases, whose descriptors must not be closed.
    drop(file);
    let named = renameat_with(CWD, &fresh, CWD, path, RenameFlags::NOREPLACE);
    if named.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    match named {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        // A link instead of the rename would give the file two names, and keep both after a crash.
        Err(error) if is_without_flag(error) => match new_file(path, Users::of(path)?) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(failed(error)),
            _ => Ok(()),
        },
        Err(error) => Err(failed(error.into())),
    }
}

/// Returns whether the file system has no rename that replaces nothing, such as NFS, most of FUSE, and ZFS before 2.2.
const fn is_without_flag(error: Errno) -> bool {
    matches!(error, Errno::INVAL | Errno::NOSYS | Errno::NOTSUP)
}

/// Makes an empty file under a name of its own.
fn create_beside(path: &Path) -> Result<(OsString, fs::File), Failure> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(format!(".{:016x}.new", fastrand::u64(..)));
    let opened = new_file(Path::new(&fresh), Users::of(path)?);
    let file = opened.map_err(|source| Failure::io("create the file", source))?;
    Ok((fresh, file))
}

/// Makes an empty file for these users, whatever the mask of this process. Fails if it exists.
fn new_file(path: &Path, users: Users) -> io::Result<fs::File> {
    let mode = users.mode();
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    // A file system without modes refuses it, and gives every file the same one.
    let _ = file.set_permissions(Permissions::from_mode(mode));
    Ok(file)
}

fn connect(path: &Path) -> Result<Connection, Failure> {
    // Without the URI flag, so that a path is taken as it is; without CREATE, so that its mode is ours.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(db)
}

/// The schema of a file of ours; 0 for an empty one.
fn schema_of(db: &Connection) -> Result<i32, Failure> {
    let number = |sql| db.query_row(sql, (), |row| row.get::<_, i32>(0));
    let application = number("PRAGMA application_id")?;
    let version = number("PRAGMA user_version")?;
    if application == APPLICATION_ID {
        return match version {
            1..=SCHEMA_VERSION => Ok(version),
            found if found > SCHEMA_VERSION => Err(Failure::Unfit(format!(
                "the file was written by a newer leasehold schema={found} expected={SCHEMA_VERSION}"
            ))),
            _ => Err(Failure::damaged("its schema has no version")),
        };
    }
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    if application == 0 && version == 0 && tables == 0 {
        Ok(0)
    } else {
        Err(Failure::Unfit(format!(
            "the file belongs to another program application_id={application:#x} expected={APPLICATION_ID:#x}"
        )))
    }
}

fn use_log(db: &Connection) -> Result<(), Failure> {
    let found: String = db.query_row("PRAGMA journal_mode = WAL", (), |row| row.get(0))?;
    if found != "wal" {
        return Err(Failure::Unfit(format!(
            "the file system allows no write-ahead log journal_mode={found}"
        )));
    }
    // A power cut may take back the last grants; their tokens still rise, by the mark.
    db.execute_batch("PRAGMA synchronous = NORMAL")?;
    // From the first read on the log and its index are there, and stay for as long as the file is open.
    db.query_row("PRAGMA schema_version", (), |_| Ok(()))?;
    Ok(())
}

/// Makes what the file lacks. A process that has an older schema open works on with it: nothing that it knows changes.
fn complete_schema(tx: &Tx<'_>) -> Result<(), Failure> {
    let db = tx.db;
    // Another process may have done it since the check.
    let found = schema_of(db)?;
    for (version, schema) in (1..).zip(SCHEMAS) {
        if version > found {
            db.execute_batch(schema)?;
        }
    }
    db.pragma_update(None, "application_id", APPLICATION_ID)?;
    db.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    Ok(())
}

/// Passively: a process that reads an old state for long must not keep others from their leases.
fn empty_log(db: &Connection) -> Result<(), Failure> {
    Ok(db.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(()))?)
}

/// Tries again after waits of random length, as long as others keep the file busy and the caller waits.
fn patiently<T>(
    caller: Caller<'_>,
    mut attempt: impl FnMut() -> Result<T, Failure>,
) -> Result<T, Failure> {
    loop {
        match attempt() {
            Err(failure) if failure.is_busy() => {
                let wait = Duration::from_micros(fastrand::u64(BUSY_WAIT_US));
                if !caller.waits_for(wait) {
                    return Err(Failure::Busy);
                }
                pause(wait);
            }
            answer => return answer,
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "only the store's own threads come here, and SQLite leaves them nothing to await"
)]
pub(super) fn pause(wait: Duration) {
    std::thread::sleep(wait);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, Monotonic};

    #[test]
    fn nothing_is_written_for_a_caller_that_is_gone_when_its_turn_to_write_comes() {
        let folder = tempfile::tempdir().expect("a folder");
        let until = Monotonic.now().after(Duration::from_secs(5));
        let (here, gone) = (Caller::new(until, &|| false), Caller::new(until, &|| true));
        let boot = Boot::read().expect("a boot id");
        let mut file =
            Database::open(&folder.path().join("leases.sqlite"), boot, here).expect("it opens");
        let change = |tx: &Tx<'_>| Ok(tx.db.execute("UPDATE counter SET token = 7", ())?);
        assert!(matches!(file.write(gone, change), Err(Failure::Late)));
        let token = |tx: &Tx<'_>| -> Result<i64, Failure> {
            Ok(tx
                .db
                .query_row("SELECT token FROM counter", (), |row| row.get(0))?)
        };
        assert_eq!(file.read(here, token).expect("it reads"), 0);
        assert_eq!(file.write(here, change).expect("it writes"), 1);
        assert_eq!(file.read(here, token).expect("it reads"), 7);
    }
}
