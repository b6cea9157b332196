//! A store whose URL is in a file, which is read again when the store refuses the login: a password that is replaced on
//! the server and in the file ends no run.
//!
//! A connection outlives its password, so the refusal comes with the next connection, perhaps while a lease is held.
//! The callers and the watchdog each have a connection of their own, and replace it when a request of theirs is
//! refused. A file that names another store by then is not followed: leases stay where they are.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::store::spi::{
    Answer, Ask, Claim, Facts, Failed, Notice, Notices, Outcome, Purpose, Release, Renewal,
    Renewed, Sent, Topic,
};
use leasehold::store::{self, Eviction, Hazard, Held, Member, Store};
use leasehold::{BoxFuture, Error, ErrorKind, Holder, Name};
use tokio::sync::watch::{Receiver, Sender};
use tokio::time::sleep;

use crate::file;
use crate::say;

/// The pause before another try to subscribe with the new login.
const RETRY: Duration = Duration::from_secs(1);

/// A store that is opened again with what its file has by then.
pub struct FromFile {
    path: PathBuf,
    /// The purpose of this connection; `None` if it is for the callers.
    purpose: Option<Purpose>,
    newest: Sender<Arc<Opened>>,
}

/// A store, and the URL with which it was opened.
struct Opened {
    url: String,
    store: Arc<dyn Store>,
}

impl fmt::Debug for FromFile {
    /// Without the URL, which can hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromFile")
            .field("path", &self.path)
            .field("store", &self.newest.borrow().store)
            .finish_non_exhaustive()
    }
}

impl FromFile {
    /// Opens the store at this URL, which is what the file has now.
    pub async fn open(path: &Path, url: &str) -> Result<Self, Error> {
        let store = store::open(url).await?;
        Ok(Self::new(path, None, url.into(), store))
    }

    fn new(path: &Path, purpose: Option<Purpose>, url: String, store: Arc<dyn Store>) -> Self {
        Self {
            path: path.into(),
            purpose,
            newest: Sender::new(Arc::new(Opened { url, store })),
        }
    }

    fn newest(&self) -> Arc<Opened> {
        self.newest.borrow().clone()
    }

    /// Asks the store and, if it refuses the login, once more with the one that the file has now.
    async fn ask<T, F: Future<Output = T>>(
        &self,
        ask: impl Fn(Arc<dyn Store>) -> F,
        is_denied: impl Fn(&T) -> bool,
    ) -> T {
        let opened = self.newest();
        let answer = ask(opened.store.clone()).await;
        if is_denied(&answer)
            && let Some(store) = self.open_again(&opened).await
        {
            return ask(store).await;
        }
        answer
    }

    /// Like that, for a call that fails with an error.
    fn call<'a, T: Send + 'a, F>(
        &'a self,
        ask: impl Fn(Arc<dyn Store>) -> F + Send + Sync + 'a,
    ) -> BoxFuture<'a, Result<T, Error>>
    where
        F: Future<Output = Result<T, Error>> + Send + 'a,
    {
        Box::pin(self.ask(ask, |answer| {
            (answer.as_ref()).is_err_and(|error| error.kind() == ErrorKind::Denied)
        }))
    }

    /// Opens the store again, if the file has changed since it was opened as it is.
    async fn open_again(&self, opened: &Arc<Opened>) -> Option<Arc<dyn Store>> {
        let url = read(self.path.clone()).await?;
        let newest = self.newest();
        if !Arc::ptr_eq(&newest, opened) {
            return Some(newest.store.clone());
        }
        if url == opened.url {
            return None;
        }
        let path = self.path.display();
        let store = store::open(&url).await.ok()?;
        if store.location() != opened.store.location() {
            let now = store.location();
            let message = format_args!("{path} names another store by now, for new runs: {now}");
            say::fault("store_file", message);
            // So that it is reported once. No subscription has to move.
            let store = opened.store.clone();
            self.newest.send_if_modified(|newest| {
                *newest = Arc::new(Opened { url, store });
                false
            });
            return None;
        }
        let store = match self.purpose {
            Some(purpose) => store.on_own_connection(purpose).await.ok()?,
            None => store,
        };
        let message =
            format_args!("the store refuses the login, and {path} has another one by now");
        say::detail("store_file", message);
        let newest = Opened {
            url,
            store: store.clone(),
        };
        self.newest.send_replace(Arc::new(newest));
        Some(store)
    }
}

/// Reads the URL, off the thread of the runtime: the disk may hang.
async fn read(path: PathBuf) -> Option<String> {
    let reading = tokio::task::spawn_blocking(move || file::read(&path));
    let text = reading.await.ok()?.ok()?;
    store::shared_url(&text).ok().map(Into::into)
}

#[deny(clippy::missing_trait_methods)]
impl Store for FromFile {
    fn facts(&self) -> Facts {
        self.newest().store.facts()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.newest().store.clock()
    }

    fn location(&self) -> String {
        self.newest().store.location()
    }

    fn shard(&self, name: &Name) -> u32 {
        self.newest().store.shard(name)
    }

    fn acquire<'a>(
        &'a self,
        claim: &'a Claim,
        ask: Ask,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Answer, Failed>> {
        let acquire =
            move |store: Arc<dyn Store>| async move { store.acquire(claim, ask, limit).await };
        // Another attempt counts as part of this one, so nothing of this one may be left.
        let is_denied = |answer: &Result<_, Failed>| {
            (answer.as_ref()).is_err_and(|failed| {
                failed.sent == Sent::Never && failed.error.kind() == ErrorKind::Denied
            })
        };
        Box::pin(self.ask(acquire, is_denied))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], limit: Duration) -> BoxFuture<'a, Renewed> {
        let is_denied = |renewed: &Renewed| {
            renewed.outcomes.iter().any(|outcome| {
                matches!(outcome, Outcome::Unknown(error) if error.kind() == ErrorKind::Denied)
            })
        };
        let renew = move |store: Arc<dyn Store>| async move { store.renew(batch, limit).await };
        Box::pin(self.ask(renew, is_denied))
    }

    fn release<'a>(
        &'a self,
        name: &'a Name,
        holder: Holder,
        keep_for: Option<Duration>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Release, Error>> {
        self.call(move |store| async move { store.release(name, holder, keep_for, limit).await })
    }

    fn notices(&self) -> BoxFuture<'_, Result<Option<Box<dyn Notices>>, Error>> {
        Box::pin(async move {
            let newest = self.newest.subscribe();
            let notices = self
                .call(|store| async move { store.notices().await })
                .await?;
            Ok(notices.map(|notices| {
                let following = Following {
                    newest,
                    notices: notices.into(),
                    topics: BTreeSet::new(),
                };
                Box::new(FromNewest(Mutex::new(following))) as Box<dyn Notices>
            }))
        })
    }

    fn inspect<'a>(
        &'a self,
        name: &'a Name,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Option<Held>, Error>> {
        self.call(move |store| async move { store.inspect(name, limit).await })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Vec<Held>, Error>> {
        self.call(move |store| async move { store.list(prefix, limit).await })
    }

    fn evict<'a>(
        &'a self,
        name: &'a Name,
        how: Eviction,
        limit: Duration,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        self.call(move |store| async move { store.evict(name, how, limit).await })
    }

    fn hazards(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Hazard>, Error>> {
        self.call(move |store| async move { store.hazards(limit).await })
    }

    fn members(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Member>, Error>> {
        self.call(move |store| async move { store.members(limit).await })
    }

    fn on_own_connection(&self, purpose: Purpose) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async move {
            let url = self.newest().url.clone();
            let connect =
                move |store: Arc<dyn Store>| async move { store.on_own_connection(purpose).await };
            let store = self.call(connect).await?;
            let own = Self::new(&self.path, Some(purpose), url, store);
            Ok(Arc::new(own) as Arc<dyn Store>)
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.newest().store.close().await })
    }
}

/// The notices of the newest store. The old one's subscription would try its login again and again.
struct FromNewest(Mutex<Following>);

struct Following {
    /// Has seen the store whose notices these are.
    newest: Receiver<Arc<Opened>>,
    notices: Arc<dyn Notices>,
    topics: BTreeSet<Topic>,
}

impl fmt::Debug for FromNewest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FromNewest")
            .field(&self.following().notices)
            .finish()
    }
}

impl FromNewest {
    fn following(&self) -> MutexGuard<'_, Following> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes once there is a newer store.
    async fn subscribe_again(&self) {
        let mut newest = self.following().newest.clone();
        if newest.changed().await.is_err() {
            // Its store was dropped.
            return std::future::pending().await;
        }
        let notices = loop {
            let store = newest.borrow_and_update().store.clone();
            match store.notices().await {
                Ok(Some(notices)) => break notices,
                _ => sleep(RETRY).await,
            }
        };
        let mut following = self.following();
        following
            .topics
            .iter()
            .for_each(|topic| notices.follow(topic));
        following.notices = notices.into();
        following.newest = newest;
    }
}

impl Notices for FromNewest {
    fn follow(&self, topic: &Topic) {
        let mut following = self.following();
        following.topics.insert(topic.clone());
        following.notices.follow(topic);
    }

    fn unfollow(&self, topic: &Topic) {
        let mut following = self.following();
        following.topics.remove(topic);
        following.notices.unfollow(topic);
    }

    fn next(&self) -> BoxFuture<'_, Notice> {
        Box::pin(async move {
            let notices = self.following().notices.clone();
            tokio::select! {
                notice = notices.next() => notice,
                () = self.subscribe_again() => Notice::Reconnected,
            }
        })
    }
}
