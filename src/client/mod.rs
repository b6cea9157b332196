//! The client: it has one store and one watchdog, and acquires leases.

mod acquire;
mod builder;
mod owner;
mod permits;
mod pools;
mod request;
pub mod taking;

// After the request, because rustdoc shows the methods of a type in the order of the modules.
mod leader;
mod once;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{FutureExt as _, Shared};
use parking_lot::Mutex;

pub use self::acquire::Attempt;
pub use self::builder::ClientBuilder;
pub use self::leader::Holders;
pub use self::once::Fire;
pub use self::owner::{LeaseSet, Owner, Share};
use self::pools::Pools;
pub use self::request::LeaseRequest;
use crate::error::{Error, ErrorKind};
use crate::floors::Floors;
use crate::future::{BoxFuture, shielded};
use crate::group::Group;
use crate::holder::ClientId;
use crate::home::Home;
use crate::lease::Lease;
use crate::name::Name;
use crate::store::{Bounded, Info, Store};
use crate::telemetry::{self, Sink};
use crate::term::Timing;
use crate::token::Token;
use crate::waiting::Hub;
pub use crate::waiting::OutagePolicy;
use crate::watchdog::Watchdog;

/// Acquires leases from one store and keeps them renewed. Cloning is cheap; clones are one client.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), leasehold::Error> {
/// use leasehold::store::memory::Memory;
/// use leasehold::{Attempt, Client};
///
/// let client = Client::builder().store(Memory::new()).build().await?;
/// let lease = client.acquire("nightly-report").await?;
/// println!("token {}", lease.token());
/// assert!(matches!(client.try_acquire("nightly-report").await?, Attempt::Held(_)));
/// lease.release().await;
/// # Ok(())
/// # }
/// ```
///
/// When the last clone is dropped, held leases are still renewed until their guards are dropped.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

/// The start of the watchdog for the first lease, shared by all callers. The watchdog's own thread does the work, so it
/// continues while no caller polls it, and a caller that gives up or is never polled again delays no other.
type Starting = Shared<BoxFuture<'static, Result<Arc<Watchdog>, Error>>>;

pub(crate) struct Inner {
    store: Arc<dyn Store>,
    watchdog: Mutex<Option<Starting>>,
    hub: Hub,
    pools: Pools,
    id: ClientId,
    pub(crate) home: Home,
    timing: Timing,
    info: Arc<Info>,
    sink: &'static Sink,
    floors: Arc<Floors>,
    is_closed: AtomicBool,
}

impl Client {
    /// Returns a builder, to make a client with settings of your own.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    /// Opens a client of the store at this URL, with the default settings. The path in `sqlite:leases` is relative to
    /// the current folder: programs that are to exclude each other need the same file, so prefer an absolute path,
    /// `sqlite:/var/lib/app/leases`.
    ///
    /// # Errors
    /// `Invalid` for a malformed or unsupported URL; otherwise the errors of opening the store.
    pub async fn open(url: impl AsRef<str>) -> Result<Self, Error> {
        Self::builder().store_url(url.as_ref()).build().await
    }

    fn new(store: Arc<dyn Store>, timing: Timing, info: Info, group: Group) -> Self {
        let sink = Sink::of_group(group);
        telemetry::describe(sink);
        let store: Arc<dyn Store> = Arc::new(Bounded::new(store));
        let id = ClientId::draw();
        let home = Home::here();
        let floors = Floors::new(home.clone());
        Self {
            inner: Arc::new(Inner {
                hub: Hub::new(store.clone(), id, home.clone()),
                store,
                pools: Pools::default(),
                watchdog: Mutex::default(),
                id,
                home,
                timing,
                info: Arc::new(info),
                sink,
                floors: Arc::new(floors),
                is_closed: AtomicBool::new(false),
            }),
        }
    }

    /// Returns a request for a lease, to which options can be added before it is sent.
    pub fn request(&self, name: impl AsRef<str>) -> LeaseRequest {
        LeaseRequest::new(self.clone(), name.as_ref())
    }

    /// Acquires the lease if the name is free, in one round trip. It does not wait.
    ///
    /// # Errors
    /// The errors of [`LeaseRequest::try_acquire`].
    ///
    /// # Cancel safety
    /// The same as for [`LeaseRequest::try_acquire`].
    pub async fn try_acquire(&self, name: impl AsRef<str>) -> Result<Attempt, Error> {
        self.request(name).try_acquire().await
    }

    /// Acquires the lease. Waits for as long as another holder has the name.
    ///
    /// Keep the lease in a variable for as long as the work lasts: `let _ = client.acquire(name).await?` drops it, and
    /// so releases it, at once.
    ///
    /// # Errors
    /// The errors of [`LeaseRequest::acquire`].
    ///
    /// # Cancel safety
    /// The same as for [`LeaseRequest::acquire`].
    pub async fn acquire(&self, name: impl AsRef<str>) -> Result<Lease, Error> {
        self.request(name).acquire().await
    }

    /// Acquires the lease. Waits for at most `limit` while another holder has the name.
    ///
    /// # Errors
    /// The errors of [`LeaseRequest::acquire_within`].
    ///
    /// # Cancel safety
    /// The same as for [`LeaseRequest::acquire_within`].
    pub async fn acquire_within(
        &self,
        name: impl AsRef<str>,
        limit: Duration,
    ) -> Result<Lease, Error> {
        self.request(name).acquire_within(limit).await
    }

    /// Acquires all of these names or none, one after the other in byte order, so callers that do this cannot
    /// deadlock. A name that is given twice is acquired once. The set is one guard, with one `lost`, `check` and
    /// `release`.
    ///
    /// # Errors
    /// The errors of [`LeaseRequest::acquire`]; and `Lost` when one of the leases was lost while this call waited for
    /// the others.
    ///
    /// # Cancel safety
    /// If the future is dropped, the leases acquired by then are released in the background.
    pub async fn acquire_all(
        &self,
        names: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<LeaseSet, Error> {
        self.owner().acquire_all(names).await
    }

    /// Acquires all of these names or none, as [`acquire_all`](Self::acquire_all) does, within `limit` for all of
    /// them.
    ///
    /// # Errors
    /// The errors of [`acquire_all`](Self::acquire_all) and [`LeaseRequest::acquire_within`].
    ///
    /// # Cancel safety
    /// The same as for [`acquire_all`](Self::acquire_all).
    pub async fn acquire_all_within(
        &self,
        names: impl IntoIterator<Item = impl AsRef<str>>,
        limit: Duration,
    ) -> Result<LeaseSet, Error> {
        self.owner().acquire_all_within(names, limit).await
    }

    /// Returns a request for one of `count` permits of this name: a semaphore, of 1 to 256. Acquire it with the
    /// methods of the request; what they return is a lease on one of the names `name#1` to `name#count`, with a token
    /// of its own.
    ///
    /// Clients take turns where the store keeps a queue; on a store without one (a quorum) there is no order. A permit
    /// that is free is granted at once unless a client waits. Ask for the same number everywhere: where two clients
    /// differ, there are never more holders than the greater number. To limit waiting, use
    /// [`acquire_within`](LeaseRequest::acquire_within).
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::builder().store(leasehold::store::memory::Memory::new()).build().await?;
    /// let permit = client.permits("gpu", 4).acquire().await?;
    /// println!("{:?} of at most four", permit.permit());
    /// permit.release().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn permits(&self, name: impl AsRef<str>, count: u16) -> LeaseRequest {
        self.request(name).permits(count)
    }

    /// Returns a request for a share of this name (a read lock): up to 64 holders at once, and none while one
    /// has the name [alone](Self::exclusive). What it acquires is a lease on one of the names `name#1` to `name#64`.
    ///
    /// A share keeps writers out, as long as it is held. Storage cannot compare its token with a writer's. Where a
    /// writer that was paused and wakes late would do harm, although only readers came after it, ask for
    /// [`shared_fenced`](LeaseRequest::shared_fenced) and raise the fence once, before the first read: the pass of such
    /// a share has a token that is above that of every earlier writer, and below that of every later one. If the raise
    /// is refused as `Stale` while [`check`](Lease::check) succeeds, a later reader has raised the fence, which then
    /// refuses every earlier writer already: read on. Such a share is slower: each reader first acquires the name
    /// itself for a moment.
    ///
    /// Release a share before you ask for the name alone, or for another share: a writer that waits for the first one
    /// keeps the second out, and so its caller waits for ever. Code that has a share and calls code that asks for one
    /// passes an [`Owner`] on, whose [shares](Owner::acquire_shared) of one name are one permit. A client cannot
    /// distinguish such a call from another task of its own, which has to wait behind the writer.
    ///
    /// Where a store loses its leases (a flush, a failover), a reader and a writer may both hold the name until their
    /// next renewals, as two holders of one lease may. With `max_ttl` this is left for a share that was being acquired
    /// at that moment, and for a failover to a replica that is late by most of a ttl.
    pub fn shared(&self, name: impl AsRef<str>) -> LeaseRequest {
        self.request(name).shared()
    }

    /// Returns a request for this name alone (a write lock), where others [share](Self::shared) it. New readers queue
    /// behind it, and it waits for those that have a share. What it acquires is the lease of the name itself, whose
    /// token is the one for a fence.
    pub fn exclusive(&self, name: impl AsRef<str>) -> LeaseRequest {
        self.request(name).exclusive()
    }

    /// Returns a re-entrant owner: it can acquire again any lease that it already holds.
    pub fn owner(&self) -> Owner {
        Owner::new(self.clone())
    }

    /// Acquires the lease, runs `work` while it is held, and releases it. What the work returns is passed through, so
    /// for work that returns a `Result` write `??`: the first is for the lease, the second for the work.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// # use leasehold::{Client, store::memory::Memory};
    /// # let client = Client::builder().store(Memory::new()).build().await?;
    /// let total = client.run("nightly-report", async |lease| {
    ///     lease.check()?; // before a step that matters
    ///     Ok::<u32, leasehold::Error>(41 + 1)
    /// }).await??;
    /// assert_eq!(total, 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`LeaseRequest::run`].
    ///
    /// # Cancel safety
    /// The same as for [`LeaseRequest::run`].
    pub async fn run<T>(
        &self,
        name: impl AsRef<str>,
        work: impl AsyncFnOnce(&Lease) -> T,
    ) -> Result<T, Error> {
        self.request(name).run(work).await
    }

    /// Returns the store, to inspect and evict leases and to read its hazards.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// Makes the next grants of this name carry a token greater than `token`, for example the highest that storage has
    /// seen. [`LeaseRequest::min_token`] does so for one request.
    ///
    /// # Errors
    /// `Invalid` for a name that breaks the rules of [`Name`].
    pub fn raise_min_token(&self, name: impl AsRef<str>, token: Token) -> Result<(), Error> {
        self.inner.floors.raise(&Name::new(name)?, token);
        Ok(())
    }

    /// Shuts the client down: cancels the holders, waits until their guards are dropped, sends the releases, leaves
    /// the store's queues, and closes the store. It takes at most `limit` and returns whether everything was done;
    /// leases that were not released expire by themselves.
    ///
    /// # Cancel safety
    /// If the future is dropped, the holders stay cancelled and the releases of dropped guards are still sent.
    pub async fn shutdown(&self, limit: Duration) -> bool {
        self.inner.is_closed.store(true, Ordering::Release);
        if self.inner.home.is_forked() {
            return true;
        }
        let clock = self.inner.store.clock();
        let ends_at = clock.now().after(limit);
        self.inner.hub.close();
        let starting = self.inner.watchdog.lock().clone();
        let started = starting.and_then(|starting| starting.now_or_never()?.ok());
        let is_done = match started {
            Some(watchdog) => watchdog.shut_down(limit).await,
            None => true,
        };
        let closing = self.inner.store.close();
        // The store gets the rest of the limit. If that is too short, its connections end when the store is dropped.
        tokio::select! {
            biased;
            () = closing => {}
            () = clock.nap_until(ends_at) => {}
        }
        is_done
    }
}

impl Inner {
    /// Fails if this client can no longer acquire leases.
    fn check_open(&self) -> Result<(), Error> {
        if self.home.is_forked() {
            return Err(Error::new(
                ErrorKind::Closed,
                "acquire refused: the client belongs to the parent of this process",
            ));
        }
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::shut_down());
        }
        Ok(())
    }

    /// The watchdog, started for the first lease.
    ///
    /// # Cancel safety
    /// If the future is dropped, the start continues for the other callers and for the next.
    async fn watchdog(&self) -> Result<Arc<Watchdog>, Error> {
        self.check_open()?;
        let starting = self.starting();
        if let Some(started) = starting.peek() {
            return started.clone();
        }
        let watchdog = shielded(starting).await?;
        // A shutdown that came in between found no watchdog to shut down.
        self.check_open()?;
        Ok(watchdog)
    }

    /// Returns the start that is running or done, or begins one. A failed start is not shared with later callers.
    fn starting(&self) -> Starting {
        let mut current = self.watchdog.lock();
        if let Some(starting) = &*current
            && !matches!(starting.clone().now_or_never(), Some(Err(_)))
        {
            return starting.clone();
        }
        let started = Watchdog::start(self.store.clone(), self.sink, self.home.clone());
        let starting = started.map(|started| started.map(Arc::new)).boxed();
        current.insert(starting.shared()).clone()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("store", &self.inner.store.location())
            .field("id", &self.inner.id)
            .finish_non_exhaustive()
    }
}
