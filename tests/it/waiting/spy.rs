//! A store that counts what it is asked, and misbehaves on order.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::store::memory::Memory;
use leasehold::store::{
    Answer, Ask, Claim, Failed, Held, Lane, Notice, Notices, Release, Store, Topic,
};
use leasehold::{BoxFuture, ClientId, Error, ErrorKind, Holder, Name};

use crate::harness::forward::forward;

/// A store in memory that is watched. Clones are one store.
#[derive(Debug, Clone)]
pub(crate) struct Spy {
    memory: Memory,
    desk: Arc<Desk>,
}

/// What is counted, and what is to go wrong.
#[derive(Debug, Default)]
struct Desk {
    claims: AtomicUsize,
    answers: AtomicUsize,
    subscriptions: AtomicUsize,
    leaves_begun: AtomicUsize,
    leaves: AtomicUsize,
    is_slow_to_leave: AtomicBool,
    is_down: AtomicBool,
    is_mute: AtomicBool,
    is_silent: AtomicBool,
    withheld: AtomicUsize,
    refuses_notices: Mutex<Option<ErrorKind>>,
}

impl Spy {
    pub(crate) fn new() -> Self {
        Self {
            memory: Memory::new(),
            desk: Arc::default(),
        }
    }

    /// How often a name was claimed.
    pub(crate) fn claims(&self) -> usize {
        self.desk.claims.load(Ordering::SeqCst)
    }

    /// How many claims were answered by the store beneath.
    pub(crate) fn answers(&self) -> usize {
        self.desk.answers.load(Ordering::SeqCst)
    }

    /// How many handles of this store there are.
    pub(crate) fn handles(&self) -> usize {
        Arc::strong_count(&self.desk)
    }

    /// How often a client began to leave a line.
    pub(crate) fn leaves_begun(&self) -> usize {
        self.desk.leaves_begun.load(Ordering::SeqCst)
    }

    /// Whether leaving a line takes until this is taken back.
    pub(crate) fn set_slow_to_leave(&self, is_slow: bool) {
        self.desk.is_slow_to_leave.store(is_slow, Ordering::SeqCst);
    }

    /// How often a line was left.
    pub(crate) fn leaves(&self) -> usize {
        self.desk.leaves.load(Ordering::SeqCst)
    }

    /// How many subscriptions there were.
    pub(crate) fn subscriptions(&self) -> usize {
        self.desk.subscriptions.load(Ordering::SeqCst)
    }

    /// Whether it cannot be reached.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.desk.is_down.store(is_down, Ordering::SeqCst);
    }

    /// Whether its notices are lost, but for the one that says that it listens.
    pub(crate) fn set_mute(&self, is_mute: bool) {
        self.desk.is_mute.store(is_mute, Ordering::SeqCst);
    }

    /// Whether it carries claims out and never answers them.
    pub(crate) fn set_silent(&self, is_silent: bool) {
        self.desk.is_silent.store(is_silent, Ordering::SeqCst);
    }

    /// How many claims it carried out and never answered.
    pub(crate) fn withheld(&self) -> usize {
        self.desk.withheld.load(Ordering::SeqCst)
    }

    /// From now on nobody may subscribe.
    pub(crate) fn refuse_notices(&self, kind: ErrorKind) {
        *self.desk.refuses_notices.lock().unwrap() = Some(kind);
    }

    pub(crate) async fn held(&self, name: &str) -> Option<Held> {
        let name = Name::new(name).unwrap();
        let held = self.memory.inspect(&name, Duration::from_secs(1)).await;
        held.unwrap()
    }

    fn reach(&self) -> Result<(), Error> {
        if self.desk.is_down.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "the spy is down"));
        }
        Ok(())
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for Spy {
    forward!(memory: facts shard members clock renew inspect list evict hazards close);

    fn location(&self) -> String {
        "a spy".into()
    }

    fn acquire<'a>(
        &'a self,
        claim: &'a Claim,
        ask: Ask,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Answer, Failed>> {
        Box::pin(async move {
            self.desk.claims.fetch_add(1, Ordering::SeqCst);
            self.reach().map_err(Failed::never)?;
            // Others may run between the question and the answer, as with a server.
            tokio::task::yield_now().await;
            let answer = self.memory.acquire(claim, ask, limit).await;
            self.desk.answers.fetch_add(1, Ordering::SeqCst);
            if self.desk.is_silent.load(Ordering::SeqCst) {
                self.desk.withheld.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<()>().await;
            }
            answer
        })
    }

    fn release<'a>(
        &'a self,
        name: &'a Name,
        holder: Holder,
        keep_for: Option<Duration>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Release, Error>> {
        Box::pin(async move {
            self.reach()?;
            self.memory.release(name, holder, keep_for, limit).await
        })
    }

    fn leave<'a>(
        &'a self,
        name: &'a Name,
        client: ClientId,
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            self.desk.leaves_begun.fetch_add(1, Ordering::SeqCst);
            while self.desk.is_slow_to_leave.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            self.memory.leave(name, client, limit).await?;
            self.desk.leaves.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
    }

    fn notices(&self) -> BoxFuture<'_, Result<Option<Box<dyn Notices>>, Error>> {
        Box::pin(async move {
            if let Some(kind) = *self.desk.refuses_notices.lock().unwrap() {
                return Err(Error::new(kind, "the spy gives no notices"));
            }
            self.desk.subscriptions.fetch_add(1, Ordering::SeqCst);
            let notices = self.memory.notices().await?.unwrap();
            let desk = self.desk.clone();
            Ok(Some(
                Box::new(Overheard { notices, desk }) as Box<dyn Notices>
            ))
        })
    }

    fn on_own_connection(&self, _: Lane) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async move { Ok(Arc::new(self.clone()) as Arc<dyn Store>) })
    }
}

/// The notices of the store beneath, unless they are lost.
#[derive(Debug)]
struct Overheard {
    notices: Box<dyn Notices>,
    desk: Arc<Desk>,
}

impl Notices for Overheard {
    fn follow(&self, topic: &Topic) {
        self.notices.follow(topic);
    }

    fn unfollow(&self, topic: &Topic) {
        self.notices.unfollow(topic);
    }

    fn next(&self) -> BoxFuture<'_, Notice> {
        Box::pin(async move {
            loop {
                let notice = self.notices.next().await;
                if !self.desk.is_mute.load(Ordering::SeqCst) {
                    return notice;
                }
            }
        })
    }
}
