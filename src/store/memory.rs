//! The reference store: one map behind one mutex. For tests, for examples, and for reading.
//!
//! Clones share their leases, so two clients of one process can contend. Nothing outlives the process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;

use super::{
    Answer, Claim, Clock, Error, ErrorKind, Eviction, Grant, Held, Holder, Info, Name, Notice,
    Notices, Outcome, Release, Renewal, Renewed, Reply, Store, Token,
};
use crate::clock::{self, Instant, Monotonic};

/// A store in the memory of this process.
#[derive(Debug)]
pub struct Memory {
    state: Arc<Mutex<State>>,
    clock: Arc<dyn Clock>,
    is_closed: AtomicBool,
}

/// Rows that have run out stay until somebody asks for their name; nobody is shown them.
#[derive(Debug, Default)]
struct State {
    rows: BTreeMap<Name, Row>,
    last: Option<Token>,
    /// Who is told of freed names, for as long as they listen.
    listeners: Vec<Weak<Ear>>,
}

#[derive(Debug)]
struct Row {
    holder: Holder,
    token: Token,
    info: Arc<Info>,
    since: SystemTime,
    ends_at: Instant,
    standing: Standing,
}

#[derive(Debug, PartialEq, Eq)]
enum Standing {
    /// Exits: Evicted (by an operator), Kept (released with `keep_for`), gone (released, run out).
    Live,
    /// Renewal is refused as evicted. Exits: gone (released, run out).
    Evicted,
    /// Nobody's, but not free yet. Exits: gone (run out).
    Kept,
}

impl Memory {
    /// An empty store on the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(Monotonic))
    }

    /// An empty store on a clock of the caller's.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self {
            state: Arc::default(),
            clock,
            is_closed: AtomicBool::new(false),
        }
    }

    fn state(&self) -> Result<MutexGuard<'_, State>, Error> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "store is closed"));
        }
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The state, in which this name's row is there only if it has not run out.
    fn state_for(&self, name: &Name) -> Result<MutexGuard<'_, State>, Error> {
        let mut state = self.state()?;
        let now = self.clock.now();
        if state.rows.get(name).is_some_and(|row| row.ends_at <= now) {
            state.rows.remove(name);
        }
        Ok(state)
    }

    fn acquire_now(&self, claim: &Claim) -> Result<Answer, Error> {
        let mut state = self.state_for(&claim.name)?;
        let now = self.clock.now();
        let ends_at = now.after(claim.ttl);
        if let Some(row) = state.rows.get_mut(&claim.name) {
            if row.holder != claim.holder || row.standing != Standing::Live {
                return Ok(Answer::Held(Box::new(row.held(&claim.name, now))));
            }
            row.ends_at = ends_at;
            return Ok(Answer::Granted(Grant::new(row.token)));
        }
        let token = Token::mint(state.last, claim.floor, clock::wall_clock_us())?;
        state.last = Some(token);
        let row = Row {
            holder: claim.holder,
            token,
            info: claim.info.clone(),
            since: clock::wall_clock(),
            ends_at,
            standing: Standing::Live,
        };
        state.rows.insert(claim.name.clone(), row);
        Ok(Answer::Granted(Grant::new(token)))
    }

    fn renew_now(&self, renewal: &Renewal) -> Outcome {
        let mut state = match self.state_for(&renewal.name) {
            Ok(state) => state,
            Err(error) => return Outcome::Unknown(error),
        };
        let Some(row) = state.rows.get_mut(&renewal.name) else {
            return Outcome::Refused;
        };
        match row.standing {
            _ if row.holder != renewal.holder => Outcome::Refused,
            Standing::Kept => Outcome::Refused,
            Standing::Evicted => Outcome::Evicted,
            Standing::Live => {
                row.ends_at = self.clock.now().after(renewal.ttl);
                Outcome::Renewed
            }
        }
    }

    fn release_now(
        &self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
    ) -> Result<Release, Error> {
        let mut state = self.state_for(name)?;
        let row = state.rows.get_mut(name).filter(|row| row.holder == holder);
        let Some(row) = row.filter(|row| row.standing != Standing::Kept) else {
            return Ok(Release::NotHeld);
        };
        match keep_for {
            Some(rest) => {
                row.standing = Standing::Kept;
                row.ends_at = self.clock.now().after(rest);
            }
            None => {
                state.rows.remove(name);
                state.tell_freed(name);
            }
        }
        Ok(Release::Released)
    }

    fn list_now(&self, prefix: &str) -> Result<Vec<Held>, Error> {
        let state = self.state()?;
        let now = self.clock.now();
        let rows = state.rows.iter();
        Ok(rows
            .filter(|(name, row)| name.as_str().starts_with(prefix) && row.ends_at > now)
            .map(|(name, row)| row.held(name, now))
            .collect())
    }

    fn inspect_now(&self, name: &Name) -> Result<Option<Held>, Error> {
        let state = self.state_for(name)?;
        let now = self.clock.now();
        Ok(state.rows.get(name).map(|row| row.held(name, now)))
    }

    fn evict_now(&self, name: &Name, how: Eviction) -> Result<bool, Error> {
        let mut state = self.state_for(name)?;
        Ok(match how {
            Eviction::Now => {
                let was_taken = state.rows.remove(name).is_some();
                state.tell_freed(name);
                was_taken
            }
            Eviction::Marked => match state.rows.get_mut(name) {
                Some(row) if row.standing != Standing::Kept => {
                    row.standing = Standing::Evicted;
                    true
                }
                _ => false,
            },
        })
    }
}

impl State {
    fn tell_freed(&mut self, name: &Name) {
        self.listeners.retain(|ear| match ear.upgrade() {
            Some(ear) => {
                ear.hear(name);
                true
            }
            None => false,
        });
    }
}

/// What one listener follows and has not taken yet.
#[derive(Debug, Default)]
struct Ear {
    names: Mutex<Names>,
    heard: Notify,
}

#[derive(Debug, Default)]
struct Names {
    followed: BTreeSet<Name>,
    /// At most once each: two hints tell no more than one.
    freed: BTreeSet<Name>,
}

impl Ear {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, name: &Name) {
        let mut names = self.names();
        if names.followed.contains(name) {
            names.freed.insert(name.clone());
            self.heard.notify_one();
        }
    }
}

/// One listener's end.
#[derive(Debug)]
struct Listening(Arc<Ear>);

impl Notices for Listening {
    fn follow(&self, name: &Name) {
        self.0.names().followed.insert(name.clone());
        self.0.hear(name);
    }

    fn unfollow(&self, name: &Name) {
        let mut names = self.0.names();
        names.followed.remove(name);
        names.freed.remove(name);
    }

    fn next(&self) -> Reply<'_, Notice> {
        Box::pin(async move {
            loop {
                if let Some(name) = self.0.names().freed.pop_first() {
                    return Notice::Freed(name);
                }
                self.0.heard.notified().await;
            }
        })
    }
}

impl Row {
    fn held(&self, name: &Name, now: Instant) -> Held {
        Held {
            name: name.clone(),
            by: Some(self.holder),
            token: Some(self.token),
            info: Info::clone(&self.info),
            since: Some(self.since),
            remaining: Some(self.ends_at.since(now)),
        }
    }
}

impl Clone for Memory {
    /// Another handle on the same leases; closing one leaves the others open.
    fn clone(&self) -> Self {
        Self {
            state: self.state.clone(),
            clock: self.clock.clone(),
            is_closed: AtomicBool::new(false),
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for Memory {
    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn location(&self) -> String {
        "memory of this process".into()
    }

    fn acquire<'a>(&'a self, claim: &'a Claim, _: Duration) -> Reply<'a, Result<Answer, Error>> {
        Box::pin(async move { self.acquire_now(claim) })
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], _: Duration) -> Reply<'a, Renewed> {
        Box::pin(
            async move { Renewed::new(batch.iter().map(|item| self.renew_now(item)).collect()) },
        )
    }

    fn release<'a>(
        &'a self,
        name: &'a Name,
        holder: Holder,
        keep_for: Option<Duration>,
        _: Duration,
    ) -> Reply<'a, Result<Release, Error>> {
        Box::pin(async move { self.release_now(name, holder, keep_for) })
    }

    fn inspect<'a>(
        &'a self,
        name: &'a Name,
        _: Duration,
    ) -> Reply<'a, Result<Option<Held>, Error>> {
        Box::pin(async move { self.inspect_now(name) })
    }

    fn list<'a>(&'a self, prefix: &'a str, _: Duration) -> Reply<'a, Result<Vec<Held>, Error>> {
        Box::pin(async move { self.list_now(prefix) })
    }

    fn evict<'a>(
        &'a self,
        name: &'a Name,
        how: Eviction,
        _: Duration,
    ) -> Reply<'a, Result<bool, Error>> {
        Box::pin(async move { self.evict_now(name, how) })
    }

    fn notices(&self) -> Reply<'_, Result<Option<Box<dyn Notices>>, Error>> {
        Box::pin(async move {
            let ear = Arc::new(Ear::default());
            self.state()?.listeners.push(Arc::downgrade(&ear));
            Ok(Some(Box::new(Listening(ear)) as Box<dyn Notices>))
        })
    }

    fn for_watchdog(&self) -> Reply<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async move { Ok(Arc::new(self.clone()) as Arc<dyn Store>) })
    }

    fn close(&self) -> Reply<'_, ()> {
        Box::pin(async move { self.is_closed.store(true, Ordering::Relaxed) })
    }
}
