//! The embedded store: one SQLite file, several processes of one machine.
//!
//! It needs no server. All processes that open the same file contend for the same names; two files have nothing to do with each
//! other, so look at [`location`](Store::location) where an exclusion seems not to hold. By default the file is the
//! user's own.
//!
//! **Keep the file on a local disk.** On a network file system (NFS, SMB) the write-ahead log loses data and two machines
//! are granted the same name. [`hazards`](Store::hazards) says so where it can see it.
//!
//! # Guarantees
//! 1. Those of [the contract](super), among all processes of one kernel: containers, time namespaces and another boot id
//!    included.
//! 2. Leases are timed by `CLOCK_MONOTONIC`, which stands still while the machine sleeps: every rival sleeps with us.
//! 3. A lease written under another boot id counts until this boot has watched it unchanged for its whole ttl. So after a
//!    reboot names are free one ttl after the file was opened first, and a lease that lives is never taken.
//! 4. A kill at any moment leaves the file whole, and a power cut costs at most the last grants. Tokens rise all the same,
//!    also on a machine whose clock begins in 1970 again: for that one grant in ten seconds is synced to the disk.
//! 5. Renewals, releases and waits go on while the disk is full; who begins to wait then has no place in line.
//! 6. A freed name is noticed by those who wait within some ten milliseconds, from the file's change counter, and so is a
//!    client's turn.
//! 7. The line is in the file as well. Another boot id costs its clients their places, and nothing else.
//!
//! # Containers
//! Mount the **folder** that holds the file, never the file alone: the write-ahead log and the locks lie beside the file,
//! and a file that is mounted by itself would have a log of its own on each side. Opening one is refused, where the kernel
//! tells (Linux 5.8). The same holds for a log that is deleted under its users: they are granted nothing more, and a
//! renewal is refused, so each holder learns of it within a third of its ttl.
//!
//! # Assumptions
//! One kernel writes the file, no program but leasehold opens it, and no second copy of the SQLite library in this process
//! does: closing its descriptor would drop our locks. A process that is stopped in the midst of its transaction blocks
//! all others until it goes on; their calls end by their limits.
//!
//! # Errors
//! `Misconfigured` for a file that is damaged, foreign, newer, replaced, mounted by itself, read-only or full, and for one
//! that two kernels share; `Denied` without the rights; `TimedOut` where others kept the file busy up to the limit.
//!
//! A file of an older leasehold is brought up to date when it is opened. From then on an older one refuses it as newer;
//! where it has the file open already it works on, but knows of no line.
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
mod sweep;
mod thread;

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
use super::{
    Answer, Ask, Claim, Clock, Error, Eviction, Facts, Failed, Hazard, Held, Holder, Lane, Member,
    MemberState, Name, Notices, Outcome, Release, Renewal, Renewed, Severity, Store,
};
use crate::clock::Monotonic;
use crate::future::BoxFuture;

/// How long opening may wait for others: as long as it takes a few of them to make the file at the same time.
const OPENING: Duration = Duration::from_secs(5);

/// A store in one file.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    boot: Boot,
    thread: Thread,
}

impl Sqlite {
    /// Opens the leases in this file, and makes it, readable by this user only, if it is not there. Its folder has to be.
    ///
    /// # Errors
    /// `Misconfigured` for a file that is not leasehold's, and for a place that cannot hold one: it is left untouched.
    /// `Denied` without the rights; `TimedOut` where others keep the file busy.
    ///
    /// # Cancel safety
    /// Dropping it closes the file again.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_in(path.as_ref(), |_| Ok(())).await
    }

    /// Opens the leases at the [default path](Self::default_path), and makes its folder, for this user only.
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`default_path`](Self::default_path).
    ///
    /// # Cancel safety
    /// As [`open`](Self::open).
    pub async fn open_default() -> Result<Self, Error> {
        Self::open_in(&Self::default_path()?, database::create_folder).await
    }

    /// Where leases are kept if no path is given: `leasehold/leases.sqlite` in `$XDG_STATE_HOME` or `~/.local/state`, and for
    /// root in `/var/lib`. It is per user and per file system: a container or `sudo` may see another.
    ///
    /// # Errors
    /// `Misconfigured` where the environment names no home.
    pub fn default_path() -> Result<PathBuf, Error> {
        location::default_path().map_err(|failure| failure.into_error("open", Path::new("unknown")))
    }

    /// Opens it after something was done about its folder.
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
                Leases::new(Database::open(&path, caller)?, boot, caller)
            }
        };
        let thread = Thread::start(open, OPENING).await?;
        Ok(Self { path, boot, thread })
    }

    /// The same file, opened once more.
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

    /// The file, if it answers within the limit.
    async fn look_for_file(&self, limit: Duration) -> Result<Vec<Member>, Error> {
        let work = |leases: &mut Leases, caller: Caller<'_>| leases.count_foreign(caller);
        let state = match self.ask("look at the file", limit, work).await {
            Ok(_) => MemberState::Up,
            Err(error) if error.is_transient() => MemberState::Down,
            Err(error) => return Err(error),
        };
        Ok(vec![Member::new(self.location(), state)])
    }

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
        Facts::new("sqlite").with_queue()
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
        let name = name.clone();
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
        Box::pin(self.ask("leave the line", limit, move |leases, caller| {
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

    fn on_own_connection(&self, _: Lane) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async move { Ok(Arc::new(self.another().await?) as Arc<dyn Store>) })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.thread.close())
    }
}
