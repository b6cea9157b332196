//! The embedded store: one SQLite file, several processes of one machine.
//!
//! It needs no server. All processes that open the same file contend for the same names. Two files are unrelated, so
//! check [`location`](super::Store::location) if two jobs seem not to exclude each other. The default file belongs to
//! the user.
//!
//! **Keep the file on a local disk.** On a network file system (NFS, SMB) the write-ahead log loses data, and two
//! machines are granted the same name. [`hazards`](super::Store::hazards) reports such a file system if it can detect
//! it.
//!
//! # Guarantees
//! 1. The guarantees of [the contract](super) hold among all processes of one kernel, also across containers, time
//!    namespaces and boot ids. A container with its own boot id (systemd-nspawn) counts as this kernel if it opens the
//!    file while another process has it open: a FIFO next to the file shows it. Otherwise, and on a separate kernel
//!    (gVisor, Kata), it only gets a name from a dead holder of the other kernel, and cannot wait for a name that a
//!    live one renews.
//! 2. Leases are timed by `CLOCK_MONOTONIC`, which stops while the machine is suspended: every rival is suspended too.
//! 3. A lease written under another boot id counts until this boot has watched it unchanged for its whole ttl; each
//!    boot watches for itself. So after
//!    a reboot names are free one ttl after the file was first opened, and a lease that is held is never taken. A name
//!    that is kept after its release (`hold_at_least`) counts in the same way: for all that was left at its release.
//! 4. Killing a process at any moment does not damage the file, and a power cut loses at most the last grants. Tokens
//!    still rise, even on a machine whose clock then starts in 1970 again: for that, one grant in ten seconds is synced
//!    to the disk.
//! 5. Renewals, releases and waits go on while the disk is full; a client that begins to wait then has no place in the
//!    queue.
//! 6. On Linux the process that frees a name wakes the client to which it grants it, and those that watch it, through
//!    FIFOs in the folder `FILE-bells`. A client that is not woken notices within a second, from the file's change
//!    counter. One that can have no FIFO there, and every client on macOS, reads the counter every ten milliseconds.
//!    The folder stays, and with it a few FIFOs of clients that were killed; to copy it whole is safe, but a program
//!    that opens a FIFO in it to read waits for ever (`cat`, `md5sum`).
//! 7. The queue of a name is in the file as well. When the boot id changes, as by a reboot, its clients lose their
//!    places, and nothing else. A client that was killed is passed over, because its FIFO has no reader. One that
//!    stands still, or has no FIFO, costs those behind it three seconds at its turn.
//!
//! # Limits
//! A process under a file size limit (`ulimit -f`, `RLIMIT_FSIZE`) that the file or its log reaches is killed by
//! SIGXFSZ, unless it ignores that signal. There are no connections to run out of: the polls of a client that waits
//! take no lock, and its claims are short transactions, as renewals are: one in five seconds; one a second where the
//! client has no FIFO, and three in a ttl that is below three seconds.
//!
//! # Users
//! The folder decides who shares the file and the files next to it. In a folder that its group may write and that has
//! the set-gid bit (mode 2770), new files are for that group (mode 660); in any other, for this user alone (600). An
//! existing file keeps its mode. In a folder where everybody may write, such as `/tmp`, a file of another user is
//! refused, because its rows and triggers would be that user's choice.
//!
//! # Containers
//! Mount the **folder** of the file, never the file alone: the write-ahead log and the locks are next to the file, and
//! a file that is itself a mount point would have a log of its own on each side. Such a file is refused if the kernel
//! can tell (Linux 5.8). If the log is deleted while it is in use, nothing more is granted, and renewals are refused,
//! so each holder hears within a third of its ttl.
//!
//! # Assumptions
//! One kernel writes the file, no program but leasehold opens it, and no second copy of the SQLite library in this
//! process does: closing its descriptor would drop the store's locks. A process that is stopped inside its transaction
//! blocks all others until it is resumed or killed: until then their calls time out, and leases of other names in the
//! file that cannot be renewed in time are lost.
//!
//! # Errors
//! `Misconfigured` for a file that is damaged, foreign, newer, replaced, mounted by itself or read-only, and for one
//! that two kernels share, that has `auto_vacuum` on, or that another user may have put into a folder where everybody
//! may write; `Unavailable` while the disk is full; `Denied` without the permissions; `TimedOut` if other processes
//! kept the file busy up to the limit.
//!
//! A file of an older version of leasehold is migrated when it is opened. From then on an older version refuses it as
//! newer; if it has the file open already it continues to work, but ignores the queue.
//!
//! ```text
//! caller --- job, bounded queue ---> thread --- one short transaction ---> file
//!    <-------------- reply, or the limit -----'
//! ```

mod bells;
mod boot;
mod database;
mod failure;
mod headroom;
mod identity;
mod kernel;
mod leases;
mod location;
mod mint;
mod notices;
mod queue;
mod row;
mod sweep;
mod thread;
mod transaction;
mod users;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use self::boot::Boot;
use self::database::Database;
use self::failure::Failure;
use self::thread::Thread;
use self::transaction::{Caller, Tx};
use super::kit::backend::{Backend, Failing};
use super::kit::budget::Budget;
use super::{
    Answer, Ask, Claim, Eviction, Facts, Hazard, Held, Member, MemberState, Notices, Outcome,
    Purpose, Release, Renewal, Renewed, Severity,
};
use crate::clock::{Clock, Monotonic};
use crate::error::Error;
use crate::holder::Holder;
use crate::name::Name;

/// How long opening may wait for other processes: long enough when several make the file at the same time.
const OPENING: Duration = Duration::from_secs(5);

/// A store in one file.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    /// The path as text.
    location: String,
    boot: Boot,
    thread: Thread,
}

impl Sqlite {
    /// Opens the leases in this file. If it is missing, it is made for this user only, or for the [users](self#users)
    /// of its folder, which must exist.
    ///
    /// # Errors
    /// `Misconfigured` for a file that is not leasehold's, which is left untouched, and for a path that cannot have
    /// one. `Denied` without the permissions; `TimedOut` if other processes keep the file busy.
    ///
    /// # Cancel safety
    /// Dropping the future closes the file again.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_in(path.as_ref(), |_| Ok(())).await
    }

    /// Opens the leases at the [default path](Self::default_path), and makes its folder, for this user only.
    ///
    /// # Errors
    /// The same as those of [`open`](Self::open) and [`default_path`](Self::default_path).
    ///
    /// # Cancel safety
    /// The same as for [`open`](Self::open).
    pub async fn open_default() -> Result<Self, Error> {
        Self::open_in(&Self::default_path()?, database::create_folder).await
    }

    /// Returns the default path of the leases: `leasehold/leases.sqlite` in `$XDG_STATE_HOME` or
    /// `~/.local/state`, and for root in `/var/lib`. It depends on the user and the file system: in a container, or
    /// under `sudo`, it may be another file.
    ///
    /// # Errors
    /// `Misconfigured` if the environment names no home directory.
    pub fn default_path() -> Result<PathBuf, Error> {
        location::default_path().map_err(|failure| failure.during("open", "path=unknown"))
    }

    /// Opens it after its folder was prepared.
    async fn open_in(
        path: &Path,
        prepare: fn(&Path) -> Result<(), Failure>,
    ) -> Result<Self, Error> {
        let opened = async {
            let path = std::path::absolute(path)
                .map_err(|source| Failure::io("make the path absolute", source))?;
            Self::start(path, Boot::read()?, prepare).await
        };
        let opened: Result<Self, Failure> = opened.await;
        opened.map_err(|failure| {
            let path = path.display();
            failure
                .at_first()
                .during("open", format_args!("path={path}"))
        })
    }

    async fn start(
        path: PathBuf,
        boot: Boot,
        prepare: fn(&Path) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let open = {
            let path = path.clone();
            move |caller: Caller<'_>| {
                prepare(&path)?;
                Database::open(&path, boot, caller)
            }
        };
        let thread = Thread::start(open, OPENING).await?;
        let own = |file: &mut Database, _: Caller<'_>| Ok(file.boot().clone());
        let boot = thread.ask(OPENING, own).await?;
        Ok(Self {
            location: path.display().to_string(),
            path,
            boot,
            thread,
        })
    }

    async fn read<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl Fn(&Tx<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let read = move |file: &mut Database, caller: Caller<'_>| file.read(caller, work);
        self.thread.ask(limit, read).await
    }

    async fn write<T: Send + 'static>(
        &self,
        budget: Budget,
        work: impl Fn(&Tx<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let write =
            move |file: &mut Database, caller: Caller<'_>| file.write_though_full(caller, work);
        self.thread.ask(budget.left(), write).await
    }
}

impl Backend for Sqlite {
    type Failure = Failure;

    fn own_facts(&self) -> Facts {
        Facts::new("sqlite")
            .with_queue()
            .with_notices()
            .with_trusted_notices(true)
    }

    fn own_clock(&self) -> Arc<dyn Clock> {
        Arc::new(Monotonic)
    }

    fn own_location(&self) -> &dyn fmt::Display {
        &self.location
    }

    async fn try_acquire(
        &self,
        claim: &Claim,
        ask: Ask,
        budget: Budget,
    ) -> Result<Answer, Failure> {
        let claim = claim.clone();
        let work = move |file: &mut Database, caller: Caller<'_>| file.acquire(&claim, ask, caller);
        self.thread.ask(budget.left(), work).await
    }

    /// Extends all of them or, if it fails, none.
    async fn try_renew(&self, batch: &[Renewal], budget: Budget) -> Renewed {
        let renewals = batch.to_vec();
        let extend = move |tx: &Tx<'_>| renewals.iter().map(|one| tx.extend(one)).collect();
        let outcome = match self.write(budget, extend).await {
            Ok(outcomes) => return Renewed::new(outcomes),
            // A process that opens the path now sees nothing of these leases: they are over, as after a flush.
            Err(Failure::Replaced) => Outcome::Refused,
            Err(failure) => Outcome::Unknown(self.error_of_all(failure, "renew")),
        };
        Renewed::new(batch.iter().map(|_| outcome.clone()).collect())
    }

    async fn try_release(
        &self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
        budget: Budget,
    ) -> Result<Release, Failure> {
        let name = name.clone();
        self.write(budget, move |tx| tx.release(&name, holder, keep_for))
            .await
    }

    async fn try_notices(&self) -> Result<Option<Box<dyn Notices>>, Failure> {
        let waiting = self.try_own_connection(Purpose::Waiting).await?;
        Ok(Some(Box::new(notices::subscribe(waiting.thread).await?)))
    }

    async fn try_inspect(&self, name: &Name, budget: Budget) -> Result<Option<Held>, Failure> {
        let name = name.clone();
        self.read(budget.left(), move |tx| tx.inspect(&name)).await
    }

    async fn try_list(&self, prefix: &str, budget: Budget) -> Result<Vec<Held>, Failure> {
        let prefix = prefix.to_owned();
        self.read(budget.left(), move |tx| tx.list(&prefix)).await
    }

    async fn try_evict(&self, name: &Name, how: Eviction, budget: Budget) -> Result<bool, Failure> {
        let name = name.clone();
        self.write(budget, move |tx| tx.evict(&name, how)).await
    }

    // A highest token ahead of the clock is no hazard: it is lost only with the whole file, which no server loses by
    // itself.
    async fn try_hazards(&self, budget: Budget) -> Result<Vec<Hazard>, Failure> {
        let file = self.path.clone();
        let survey = move |open: &mut Database, caller: Caller<'_>| {
            let network = location::network_file_system(&file)?;
            let foreign = open.read(caller, |tx| tx.count_foreign())?;
            Ok((network, foreign, open.bells().fault()))
        };
        let (network, foreign, mute) = self.thread.ask(budget.left(), survey).await?;
        let path = &self.location;
        let on_network = network.map(|kind| {
            Hazard::new(
                "sqlite-network-file-system",
                Severity::Critical,
                format!("the file may be on a network file system path={path} file_system={kind}"),
                "two machines can be granted one name",
                "Move it to a local disk",
            )
        });
        let of_others = (foreign > 0).then(|| {
            Hazard::new(
                "sqlite-leases-of-another-boot",
                Severity::Warning,
                format!("leases of another boot are in the file path={path} leases={foreign}"),
                "their names stay taken until each was watched for one ttl",
                "If it is not an earlier boot but a second kernel, give each a file of its own",
            )
        });
        let without_bell = mute.map(|(bell, why)| {
            Hazard::new(
                "sqlite-no-bell",
                Severity::Warning,
                format!("waiting clients may not be woken path={bell:?}: {why}"),
                "a wait costs a hundredth of a core, or ends up to a second late",
                "Give all users of the file the same rights in this folder, or remove it",
            )
        });
        let found = [on_network, of_others, without_bell];
        Ok(found.into_iter().flatten().collect())
    }

    /// Returns the file as the one member, and whether it answers in time.
    async fn try_members(&self, budget: Budget) -> Result<Vec<Member>, Failure> {
        let state = match self.read(budget.left(), |tx| tx.count_foreign()).await {
            Ok(_) => MemberState::Up,
            Err(failure) if failure.kind().is_transient() => MemberState::Down,
            Err(failure) => return Err(failure),
        };
        let version = format!("SQLite {}", rusqlite::version());
        let member = Member::new(self.location.clone(), state);
        Ok(vec![member.with_version(Some(version))])
    }

    /// Opens the same file once more.
    async fn try_own_connection(&self, _: Purpose) -> Result<Self, Failure> {
        if self.thread.is_closed() {
            return Err(Failure::Closed);
        }
        Self::start(self.path.clone(), self.boot.clone(), |_| Ok(())).await
    }

    async fn own_close(&self) {
        self.thread.close().await;
    }
}
