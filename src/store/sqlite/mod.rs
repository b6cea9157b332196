//! The embedded store: one SQLite file, several processes of one machine.
//!
//! It needs no server. All processes that open the same file contend for the same names. Two files are unrelated, so
//! check [`location`](Store::location) if two jobs seem not to exclude each other. The default file belongs to the
//! user.
//!
//! **Keep the file on a local disk.** On a network file system (NFS, SMB) the write-ahead log loses data, and two
//! machines are granted the same name. [`hazards`](Store::hazards) reports such a file system if it can detect it.
//!
//! # Guarantees
//! 1. The guarantees of [the contract](super) hold among all processes of one kernel, also across containers, time
//!    namespaces and boot ids.
//! 2. Leases are timed by `CLOCK_MONOTONIC`, which stops while the machine is suspended: every rival is suspended too.
//! 3. A lease written under another boot id counts until this boot has watched it unchanged for its whole ttl. So after
//!    a reboot names are free one ttl after the file was first opened, and a lease that is held is never taken.
//! 4. Killing a process at any moment does not damage the file, and a power cut loses at most the last grants. Tokens
//!    still rise, even on a machine whose clock then starts in 1970 again: for that, one grant in ten seconds is synced
//!    to the disk.
//! 5. Renewals, releases and waits go on while the disk is full; a client that begins to wait then has no place in the
//!    queue.
//! 6. A waiting client notices a freed name, or its turn, within some ten milliseconds, from the file's change counter.
//! 7. The queue of a name is in the file as well. When the boot id changes, as by a reboot, its clients lose their
//!    places, and nothing else.
//!
//! # Containers
//! Mount the **folder** of the file, never the file alone: the write-ahead log and the locks are next to the file, and
//! a file that is itself a mount point would have a log of its own on each side. Such a file is refused if the kernel
//! can tell (Linux 5.8). If the log is deleted while it is in use, nothing more is granted, and renewals are refused,
//! so each holder is told within a third of its ttl.
//!
//! # Assumptions
//! One kernel writes the file, no program but leasehold opens it, and no second copy of the SQLite library in this
//! process does: closing its descriptor would drop the store's locks. A process that is stopped inside its transaction
//! blocks all others until it is resumed; their calls time out meanwhile.
//!
//! # Errors
//! `Misconfigured` for a file that is damaged, foreign, newer, replaced, mounted by itself, read-only or full, and for
//! one that two kernels share; `Denied` without the permissions; `TimedOut` if other processes kept the file busy up
//! to the limit.
//!
//! A file of an older version of leasehold is migrated when it is opened. From then on an older version refuses it as
//! newer; if it has the file open already it continues to work, but ignores the queue.
//!
//! ```text
//! caller --- job, bounded queue ---> thread --- one short transaction ---> file
//!    <-------------- reply, or the limit -----'
//! ```

mod boot;
mod caller;
mod changes;
mod claim;
mod database;
mod failure;
mod headroom;
mod identity;
mod leases;
mod location;
mod mint;
mod notices;
mod queue;
mod row;
mod schema;
mod sweep;
mod thread;
mod tx;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::holder::ClientId;

use self::boot::Boot;
use self::caller::Caller;
use self::database::Database;
use self::failure::Failure;
use self::leases::Leases;
use self::thread::Thread;
use super::release::kept_for;
use super::{
    Answer, Ask, Claim, Clock, Error, Eviction, Facts, Failed, Hazard, Held, Holder, Member,
    MemberState, Name, Notices, Outcome, Purpose, Release, Renewal, Renewed, Severity, Store,
};
use crate::clock::Monotonic;
use crate::future::BoxFuture;

/// The time for which opening may wait for other processes: long enough when several make the file at the same time.
const OPENING: Duration = Duration::from_secs(5);

/// A store in one file.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    boot: Boot,
    thread: Thread,
}

impl Sqlite {
    /// Opens the leases in this file. If it is missing, it is made, readable by this user only; its folder must exist.
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
        location::default_path().map_err(|failure| failure.into_error("open", Path::new("unknown")))
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
        opened.map_err(|failure| failure.into_error("open", path))
    }

    async fn start(
        path: PathBuf,
        boot: Boot,
        prepare: fn(&Path) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let open = {
            let (path, boot) = (path.clone(), boot.clone());
            move |caller: Caller<'_>| {
                prepare(&path)?;
                Leases::new(Database::open(&path, boot, caller)?, caller)
            }
        };
        let thread = Thread::start(open, OPENING).await?;
        Ok(Self { path, boot, thread })
    }

    /// Opens the same file once more.
    async fn another(&self) -> Result<Self, Error> {
        let opened = if self.thread.is_closed() {
            Err(Failure::Closed)
        } else {
            Self::start(self.path.clone(), self.boot.clone(), |_| Ok(())).await
        };
        opened.map_err(|failure| failure.into_error("open", &self.path))
    }

    async fn ask<T: Send + 'static>(
        &self,
        operation: &str,
        limit: Duration,
        work: impl FnOnce(&mut Leases, Caller<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Error> {
        let answer = self.thread.ask(limit, work).await;
        answer.map_err(|failure| failure.into_error(operation, &self.path))
    }

    async fn renew_all(&self, renewals: &[Renewal], limit: Duration) -> Renewed {
        let batch = renewals.to_vec();
        let work = move |leases: &mut Leases, caller: Caller<'_>| leases.renew(&batch, caller);
        Renewed::new(match self.ask("renew", limit, work).await {
            Ok(outcomes) => outcomes,
            Err(error) => {
                let unknown = |_| Outcome::Unknown(error.clone());
                renewals.iter().map(unknown).collect()
            }
        })
    }

    /// Returns the file as the one member, and whether it answers within the limit.
    async fn look_for_file(&self, limit: Duration) -> Result<Vec<Member>, Error> {
        let work = |leases: &mut Leases, caller: Caller<'_>| leases.count_foreign(caller);
        let state = match self.ask("check the file", limit, work).await {
            Ok(_) => MemberState::Up,
            Err(error) if error.is_transient() => MemberState::Down,
            Err(error) => return Err(error),
        };
        let version = format!("SQLite {}", rusqlite::version());
        let member = Member::new(self.location(), state);
        Ok(vec![member.with_version(Some(version))])
    }

    // A highest token ahead of the clock is none: it is lost only with the whole file, which no server loses by itself.
    async fn look_for_hazards(&self, limit: Duration) -> Result<Vec<Hazard>, Error> {
        let path = self.path.clone();
        let work = move |leases: &mut Leases, caller: Caller<'_>| {
            let network = location::network_file_system(&path)?;
            Ok((network, leases.count_foreign(caller)?))
        };
        let (network, foreign) = self.ask("look for hazards", limit, work).await?;
        let path = self.path.display();
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
        Ok(on_network.into_iter().chain(of_others).collect())
    }
}

/// Opens the store of a URL `sqlite:PATH`; `sqlite:///PATH` is understood as well.
pub(super) async fn open_url(rest: &str) -> Result<Arc<dyn Store>, Error> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    if path.is_empty() {
        return Err(Error::invalid(
            "store URL \"sqlite:\" refused: it names no file; expected sqlite:PATH",
        ));
    }
    Ok(Arc::new(Sqlite::open(path).await?))
}

impl Store for Sqlite {
    fn facts(&self) -> Facts {
        Facts::new("sqlite").with_queue().with_notices()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(Monotonic)
    }

    fn location(&self) -> String {
        self.path.display().to_string()
    }

    fn shard(&self, _: &Name) -> u32 {
        0
    }

    fn acquire<'a>(
        &'a self,
        claim: &'a Claim,
        ask: Ask,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Answer, Failed>> {
        let claim = claim.clone();
        let work =
            move |leases: &mut Leases, caller: Caller<'_>| leases.acquire(&claim, ask, caller);
        Box::pin(async move {
            let answer = self.thread.ask(limit, work).await;
            answer.map_err(|failure| Failed {
                sent: failure.sent(),
                error: failure.into_error("acquire", &self.path),
            })
        })
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], limit: Duration) -> BoxFuture<'a, Renewed> {
        Box::pin(self.renew_all(batch, limit))
    }

    fn release<'a>(
        &'a self,
        name: &'a Name,
        holder: Holder,
        keep_for: Option<Duration>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Release, Error>> {
        let (name, keep_for) = (name.clone(), kept_for(keep_for));
        Box::pin(self.ask("release", limit, move |leases, caller| {
            leases.release(&name, holder, keep_for, caller)
        }))
    }

    fn inspect<'a>(
        &'a self,
        name: &'a Name,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Option<Held>, Error>> {
        let name = name.clone();
        Box::pin(self.ask("inspect", limit, move |leases, caller| {
            leases.inspect(&name, caller)
        }))
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Vec<Held>, Error>> {
        let prefix = prefix.to_owned();
        Box::pin(self.ask("list", limit, move |leases, caller| {
            leases.list(&prefix, caller)
        }))
    }

    fn evict<'a>(
        &'a self,
        name: &'a Name,
        how: Eviction,
        limit: Duration,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        let name = name.clone();
        Box::pin(self.ask("evict", limit, move |leases, caller| {
            leases.evict(&name, how, caller)
        }))
    }

    fn hazards(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Hazard>, Error>> {
        Box::pin(self.look_for_hazards(limit))
    }

    fn leave<'a>(
        &'a self,
        name: &'a Name,
        client: ClientId,
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), Error>> {
        let name = name.clone();
        Box::pin(self.ask("leave the queue", limit, move |leases, caller| {
            leases.leave(&name, client, caller)
        }))
    }

    fn notices(&self) -> BoxFuture<'_, Result<Option<Box<dyn Notices>>, Error>> {
        Box::pin(async move {
            let subscription = notices::Subscription::new(self.another().await?);
            Ok(Some(Box::new(subscription) as Box<dyn Notices>))
        })
    }

    fn members(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Member>, Error>> {
        Box::pin(self.look_for_file(limit))
    }

    fn on_own_connection(&self, _: Purpose) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async move { Ok(Arc::new(self.another().await?) as Arc<dyn Store>) })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.thread.close())
    }
}
