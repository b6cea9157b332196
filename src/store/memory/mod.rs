//! The reference store: one map behind one mutex, for tests, for examples, and to read.
//!
//! Clones share their leases, so two clients of one process can contend. Leases end with the process.

pub(crate) mod queue;
mod subscriber;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use self::queue::{Queue, Waiting, WaitingClaim};
use self::subscriber::Subscriber;
use super::kit::backend::{Backend, Failing};
use super::kit::budget::Budget;
use super::{
    Answer, Ask, Claim, Eviction, Facts, Grant, Handover, Hazard, Held, HeldState, Info, Member,
    MemberState, Notice, Notices, Outcome, Place, Purpose, Release, Renewal, Renewed, Sent, Topic,
};
use crate::clock::{self, Clock, Instant, Monotonic};
use crate::error::{Error, ErrorKind};
use crate::holder::Holder;
use crate::name::Name;
use crate::token::Token;

const LOCATION: &str = "memory of this process";

/// A store in the memory of this process.
#[derive(Debug)]
pub struct Memory {
    state: Arc<Mutex<State>>,
    clock: Arc<dyn Clock>,
    is_closed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Rows that have expired stay until a client asks for their name; they are never shown.
    rows: BTreeMap<Name, Row>,
    last: Option<Token>,
    queues: BTreeMap<Name, Queue>,
    /// The subscribers to notices, for as long as they exist.
    subscribers: Vec<Weak<Subscriber>>,
}

/// A name that is taken: leased, or kept after its release.
#[derive(Debug)]
struct Row {
    /// The facts that other clients see, without the time that is left.
    held: Held,
    ends_at: Instant,
}

impl Memory {
    /// Makes an empty store on the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(Monotonic))
    }

    /// Makes an empty store on a clock of the caller's.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self {
            state: Arc::default(),
            clock,
            is_closed: AtomicBool::new(false),
        }
    }

    /// Returns the state, and the moment of the request.
    fn state(&self) -> Result<(MutexGuard<'_, State>, Instant), Error> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "store is closed"));
        }
        let state = self.state.lock();
        Ok((state, self.clock.now()))
    }
}

impl State {
    /// Returns the row of this name if it has not expired.
    fn row(&mut self, name: &Name, now: Instant) -> Option<&mut Row> {
        if self.rows.get(name).is_some_and(|row| row.ends_at <= now) {
            self.rows.remove(name);
        }
        self.rows.get_mut(name)
    }

    fn acquire(&mut self, claim: &Claim, ask: Ask, now: Instant) -> Result<Answer, Error> {
        if self.row(&claim.name, now).is_none() {
            if let (Some(queued), Some(queue)) = (ask.queued, self.queues.get_mut(&claim.name)) {
                queue.stay(claim, ask, queued, now);
            }
            self.grant_next(&claim.name, ask.queued.map(|_| claim.holder), now);
        }
        let Some(row) = self.row(&claim.name, now) else {
            let claimed = WaitingClaim::of(claim, ask);
            let token = self.grant(&claim.name, claimed, now.after(claim.ttl))?;
            return Ok(Answer::Granted(Grant::new(token)));
        };
        if row.held.by == Some(claim.holder) && row.held.state == HeldState::Leased {
            row.ends_at = now.after(claim.ttl);
            let token = row.held.token.expect("a lease has a token");
            return Ok(Answer::Granted(Grant::new(token)));
        }
        Ok(self.refuse(claim, ask, now))
    }

    fn grant(
        &mut self,
        name: &Name,
        waiter: WaitingClaim,
        ends_at: Instant,
    ) -> Result<Token, Error> {
        let token = Token::mint(self.last, waiter.floor, clock::wall_clock_us())?;
        self.last = Some(token);
        let held = Held {
            by: Some(waiter.holder),
            token: Some(token),
            info: Info::clone(&waiter.info),
            since: Some(clock::wall_clock()),
            ..Held::new(name.clone())
        };
        self.rows.insert(name.clone(), Row { held, ends_at });
        Ok(token)
    }

    /// Refuses a claim on a taken name, and keeps a place for its client if it asks for one.
    fn refuse(&mut self, claim: &Claim, ask: Ask, now: Instant) -> Answer {
        let place = ask.queued.map(|queued| {
            let queue = self.queues.entry(claim.name.clone()).or_default();
            let ahead = queue.join(claim, ask, queued, now);
            Place::new(self.last.map_or(0, Token::get), ahead)
        });
        let row = &self.rows[&claim.name];
        Answer::Held(Box::new(Held {
            place,
            ..row.held_at(now)
        }))
    }

    fn extend(&mut self, renewal: &Renewal, now: Instant) -> Outcome {
        let of = (Some(renewal.holder), Some(renewal.token));
        let row = self.row(&renewal.name, now);
        match row.filter(|row| (row.held.by, row.held.token) == of) {
            Some(row) if row.held.state == HeldState::Leased => {
                row.ends_at = now.after(renewal.ttl);
                Outcome::Renewed
            }
            Some(row) if row.held.state == HeldState::Evicted => Outcome::Evicted,
            _ => Outcome::Refused,
        }
    }

    /// Frees the name, and grants it to the first in the queue.
    fn pass_on(&mut self, name: &Name, now: Instant) {
        self.rows.remove(name);
        if !self.grant_next(name, None, now) {
            self.tell(&Topic::Freed(name.clone()), &Notice::Freed(name.clone()));
        }
    }

    /// Grants a free name to the first live place, for the rest of its term. A place whose client claims to listen, and
    /// does not, is passed over, unless it asks. Returns whether there was one.
    fn grant_next(&mut self, name: &Name, asking: Option<Holder>, now: Instant) -> bool {
        while let Some(queue) = self.queues.get_mut(name) {
            let subscribers = &self.subscribers;
            let is_deaf = |waiting: &Waiting| {
                let asks = asking.is_some_and(|holder| holder.client() == waiting.client);
                let topic = Topic::Queue(name.clone(), waiting.client);
                let hears = |subscriber: &Weak<Subscriber>| {
                    let subscriber = subscriber.upgrade();
                    subscriber.is_some_and(|subscriber| subscriber.follows(&topic))
                };
                waiting.listens && !asks && !subscribers.iter().any(hears)
            };
            let next = queue.take_next(now, is_deaf);
            if queue.is_empty() {
                self.queues.remove(name);
            }
            let Some(Waiting {
                client,
                until,
                claim: Some(waiter),
                ..
            }) = next
            else {
                return false;
            };
            let holder = waiter.holder;
            // A claim whose floor is refused hears so when it asks again.
            if let Ok(token) = self.grant(name, waiter, until) {
                if asking == Some(holder) {
                    return true;
                }
                let handover = Handover::new(name.clone(), holder, token);
                let topic = Topic::Queue(name.clone(), client);
                self.tell(&topic, &Notice::Granted(Box::new(handover)));
                return true;
            }
        }
        false
    }

    /// Returns what an operator sees of a row, if it still counts.
    fn shown(&self, row: &Row, now: Instant) -> Option<Held> {
        let queue = self.queues.get(&row.held.name);
        (row.ends_at > now).then(|| Held {
            waiting: Some(queue.map_or(0, |queue| queue.waiting(now))),
            ..row.held_at(now)
        })
    }

    fn tell(&mut self, topic: &Topic, notice: &Notice) {
        self.subscribers.retain(|subscriber| {
            let subscriber = subscriber.upgrade();
            if let Some(subscriber) = &subscriber {
                subscriber.hear(topic, notice.clone());
            }
            subscriber.is_some()
        });
    }
}

impl Row {
    fn held_at(&self, now: Instant) -> Held {
        Held {
            remaining: Some(self.ends_at.since(now)),
            ..self.held.clone()
        }
    }
}

impl Clone for Memory {
    /// Returns another handle on the same leases; closing one handle leaves the others open.
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

/// A request to a closed store is not carried out, and neither is one that is refused.
impl Failing for Error {
    fn kind(&self) -> ErrorKind {
        Self::kind(self)
    }

    fn sent(&self) -> Sent {
        match Self::kind(self) {
            ErrorKind::Closed => Sent::Never,
            _ => Sent::Answered,
        }
    }

    fn made(&self) -> Option<&Error> {
        Some(self)
    }
}

impl Backend for Memory {
    type Failure = Error;

    fn own_facts(&self) -> Facts {
        Facts::new("memory")
            .with_queue()
            .with_notices()
            .with_trusted_notices(true)
    }

    fn own_location(&self) -> &dyn fmt::Display {
        &LOCATION
    }

    fn own_clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    async fn try_acquire(&self, claim: &Claim, ask: Ask, _: Budget) -> Result<Answer, Error> {
        let (mut state, now) = self.state()?;
        state.acquire(claim, ask, now)
    }

    async fn try_renew(&self, batch: &[Renewal], _: Budget) -> Renewed {
        let renew = |renewal: &Renewal| match self.state() {
            Ok((mut state, now)) => state.extend(renewal, now),
            Err(error) => Outcome::Unknown(error),
        };
        Renewed::new(batch.iter().map(renew).collect())
    }

    async fn try_release(
        &self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
        _: Budget,
    ) -> Result<Release, Error> {
        let (mut state, now) = self.state()?;
        if let Some(queue) = state.queues.get_mut(name) {
            queue.vacate(holder);
        }
        let row = state.row(name, now);
        let row = row.filter(|row| row.held.by == Some(holder));
        match (row, keep_for) {
            (Some(row), Some(rest)) if row.held.state == HeldState::Leased => {
                row.held.state = HeldState::Kept;
                row.ends_at = now.after(rest);
                // Clients that poll now learn when it will be free.
                let freed = Notice::Freed(name.clone());
                let first = state.queues.get(name).and_then(|queue| queue.first(now));
                if let Some(first) = first {
                    state.tell(&Topic::Queue(name.clone(), first), &freed);
                }
                state.tell(&Topic::Freed(name.clone()), &freed);
            }
            (Some(row), _) if row.held.state != HeldState::Kept => state.pass_on(name, now),
            _ => return Ok(Release::NotHeld),
        }
        Ok(Release::Released)
    }

    async fn try_notices(&self) -> Result<Option<Box<dyn Notices>>, Error> {
        let (mut state, _) = self.state()?;
        let subscriber = Arc::new(Subscriber::default());
        state.subscribers.push(Arc::downgrade(&subscriber));
        Ok(Some(Box::new(subscriber)))
    }

    async fn try_inspect(&self, name: &Name, _: Budget) -> Result<Option<Held>, Error> {
        let (state, now) = self.state()?;
        let row = state.rows.get(name);
        Ok(row.and_then(|row| state.shown(row, now)))
    }

    async fn try_list(&self, prefix: &str, _: Budget) -> Result<Vec<Held>, Error> {
        let (state, now) = self.state()?;
        let rows = state.rows.values();
        let rows = rows.filter(|row| row.held.name.as_str().starts_with(prefix));
        Ok(rows.filter_map(|row| state.shown(row, now)).collect())
    }

    async fn try_evict(&self, name: &Name, how: Eviction, _: Budget) -> Result<bool, Error> {
        let (mut state, now) = self.state()?;
        let Some(row) = state.row(name, now) else {
            return Ok(false);
        };
        match (how, row.held.state) {
            (Eviction::Now, _) => state.pass_on(name, now),
            (Eviction::Marked, HeldState::Kept) => return Ok(false),
            (Eviction::Marked, _) => row.held.state = HeldState::Evicted,
        }
        Ok(true)
    }

    // A highest token ahead of the clock is none: no operator could keep or copy what ends with the process.
    async fn try_hazards(&self, _: Budget) -> Result<Vec<Hazard>, Error> {
        Ok(Vec::new())
    }

    async fn try_members(&self, _: Budget) -> Result<Vec<Member>, Error> {
        Ok(vec![Member::new(LOCATION.to_owned(), MemberState::Up)])
    }

    async fn try_own_connection(&self, _: Purpose) -> Result<Self, Error> {
        Ok(self.clone())
    }

    async fn own_close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }
}
