//! The reference store: one map behind one mutex, for tests, for examples, and to read.
//!
//! Clones share their leases, so two clients of one process can contend. Leases end with the process.

mod queue;
mod subscriber;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, MutexGuard};

use self::queue::{Availability, Notified, Queue, offered};
use self::subscriber::{Subscriber, Subscription};
use super::release::kept_for;
use super::{
    Answer, Ask, Claim, Clock, Error, ErrorKind, Eviction, Facts, Failed, Grant, Hazard, Held,
    HeldState, Holder, Info, Member, MemberState, Name, Notice, Notices, Outcome, Purpose, Queued,
    Release, Renewal, Renewed, Store, Token, Topic,
};
use crate::clock::{self, Instant, Monotonic};
use crate::future::BoxFuture;
use crate::holder::ClientId;

/// A store in the memory of this process.
#[derive(Debug)]
pub struct Memory {
    state: Arc<Mutex<State>>,
    clock: Arc<dyn Clock>,
    is_closed: AtomicBool,
}

/// Rows that have expired stay until a client claims their name; they are never shown.
#[derive(Debug, Default)]
struct State {
    rows: BTreeMap<Name, Row>,
    last: Option<Token>,
    queues: BTreeMap<Name, Queue>,
    /// The subscribers to notices, for as long as they exist.
    listeners: Vec<Weak<Subscriber>>,
}

#[derive(Debug)]
struct Row {
    holder: Holder,
    token: Token,
    info: Arc<Info>,
    since: SystemTime,
    ends_at: Instant,
    standing: RowState,
}

#[derive(Debug, PartialEq, Eq)]
enum RowState {
    /// Exits: Evicted (by an operator), Kept (released with `keep_for`), gone (released, expired).
    Live,
    /// Renewals are refused as evicted. Exits: gone (released, expired).
    Evicted,
    /// No client holds it, but it is not free. Exits: gone (expired).
    Kept,
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

    fn state(&self) -> Result<MutexGuard<'_, State>, Error> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "store is closed"));
        }
        Ok(self.state.lock())
    }

    /// Returns the state. It has this name's row only if the row has not expired.
    fn state_for(&self, name: &Name) -> Result<MutexGuard<'_, State>, Error> {
        let mut state = self.state()?;
        let now = self.clock.now();
        if state.rows.get(name).is_some_and(|row| row.ends_at <= now) {
            state.rows.remove(name);
        }
        Ok(state)
    }

    fn acquire_now(&self, claim: &Claim, ask: Ask) -> Result<Answer, Failed> {
        let mut state = self.state_for(&claim.name).map_err(Failed::never)?;
        let now = self.clock.now();
        let ends_at = now.after(claim.ttl);
        if let Some(row) = state.rows.get_mut(&claim.name) {
            if row.holder != claim.holder || row.standing != RowState::Live {
                let held = row.held(&claim.name, now);
                return Ok(state.refuse(claim, ask, held, now));
            }
            row.ends_at = ends_at;
            return Ok(Answer::Granted(Grant::new(row.token)));
        }
        if let Some(held) = state.in_the_way(claim, ask, now) {
            return Ok(state.refuse(claim, ask, held, now));
        }
        let token =
            Token::mint(state.last, ask.floor, clock::wall_clock_us()).map_err(Failed::answered)?;
        state.last = Some(token);
        state.leave_and_rejoin(claim, ask, now);
        let row = Row {
            holder: claim.holder,
            token,
            info: claim.info.clone(),
            since: clock::wall_clock(),
            ends_at,
            standing: RowState::Live,
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
            _ if (row.holder, row.token) != (renewal.holder, renewal.token) => Outcome::Refused,
            RowState::Kept => Outcome::Refused,
            RowState::Evicted => Outcome::Evicted,
            RowState::Live => {
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
        let Some(row) = row.filter(|row| row.standing != RowState::Kept) else {
            return Ok(Release::NotHeld);
        };
        match keep_for.filter(|_| row.standing == RowState::Live) {
            Some(rest) => {
                row.standing = RowState::Kept;
                row.ends_at = self.clock.now().after(rest);
                state.tell_of_keeping(name, rest);
            }
            None => {
                state.rows.remove(name);
                state.pass_on(name, self.clock.now());
            }
        }
        Ok(Release::Released)
    }

    fn list_now(&self, prefix: &str) -> Result<Vec<Held>, Error> {
        let state = self.state()?;
        let now = self.clock.now();
        let names = state.rows.keys().chain(state.queues.keys());
        let names: BTreeSet<&Name> = names
            .filter(|name| name.as_str().starts_with(prefix))
            .collect();
        let taken = names.into_iter().filter_map(|name| state.taken(name, now));
        Ok(taken.collect())
    }

    fn inspect_now(&self, name: &Name) -> Result<Option<Held>, Error> {
        Ok(self.state()?.taken(name, self.clock.now()))
    }

    fn evict_now(&self, name: &Name, how: Eviction) -> Result<bool, Error> {
        let mut state = self.state_for(name)?;
        let now = self.clock.now();
        Ok(match how {
            Eviction::Now => {
                let was_taken = state.taken(name, now).is_some();
                if was_taken {
                    state.rows.remove(name);
                    state.pass_on(name, now);
                }
                was_taken
            }
            Eviction::Marked => match state.rows.get_mut(name) {
                Some(row) if row.standing != RowState::Kept => {
                    row.standing = RowState::Evicted;
                    true
                }
                _ => false,
            },
        })
    }
}

impl State {
    /// Returns who has this name, if its time is not over; without a holder if it is kept for a client in the queue.
    fn taken(&self, name: &Name, now: Instant) -> Option<Held> {
        let queue = self.queues.get(name);
        let row = self.rows.get(name).filter(|row| row.ends_at > now);
        let mut held = match row {
            Some(row) => row.held(name, now),
            None => offered(name, queue?.offered_for(now)?),
        };
        held.waiting = Some(queue.map_or(0, |queue| queue.waiting(now)));
        Some(held)
    }

    /// Returns the facts about a free name that this claim cannot have, because another client is before it in the
    /// queue.
    fn in_the_way(&mut self, claim: &Claim, ask: Ask, now: Instant) -> Option<Held> {
        let client = ask.queued.map(|_| claim.holder.client());
        let queue = self.queues.get_mut(&claim.name)?;
        let Availability::Offered(remaining, told) = queue.judge(client, now) else {
            return None;
        };
        self.tell(&claim.name, told);
        Some(offered(&claim.name, remaining))
    }

    /// Refuses a claim, and gives it a place in the queue if it asks for one.
    fn refuse(&mut self, claim: &Claim, ask: Ask, mut held: Held, now: Instant) -> Answer {
        if ask.queued.is_some() {
            let queue = self.queues.entry(claim.name.clone()).or_default();
            held.ahead = Some(queue.join(claim.holder.client(), now));
        }
        Answer::Held(Box::new(held))
    }

    /// Removes the client of a granted claim from the queue; if more of its callers wait, it joins the end again.
    fn leave_and_rejoin(&mut self, claim: &Claim, ask: Ask, now: Instant) {
        let Some(queued) = ask.queued else {
            return;
        };
        let client = claim.holder.client();
        let queue = self.queues.entry(claim.name.clone()).or_default();
        queue.leave(client);
        if queued.more > 0 {
            queue.join(client, now);
        }
        if queue.is_empty() {
            self.queues.remove(&claim.name);
        }
    }

    /// Passes on a freed name: the first client in the queue gets an offer; without a queue all subscribers get a hint.
    fn pass_on(&mut self, name: &Name, now: Instant) {
        let queue = self.queues.get_mut(name);
        match queue.and_then(|queue| queue.pass_on(now)) {
            None => {
                self.queues.remove(name);
                let topic = Topic::Freed(name.clone());
                self.tell_all(&topic, &topic.first_hint());
            }
            told => self.tell(name, told),
        }
    }

    fn tell(&mut self, name: &Name, told: Option<Notified>) {
        let Some(Notified { first, behind }) = told else {
            return;
        };
        let topic = Topic::Turn(name.clone(), first);
        self.tell_all(&topic, &topic.first_hint());
        if let Some(behind) = behind {
            let topic = Topic::Turn(name.clone(), behind);
            let next = Notice::Next(name.clone(), Queued::OFFER);
            self.tell_all(&topic, &next);
        }
    }

    /// Sends waiting clients the hint that the name was released and is kept for a while, so that they check again
    /// after that time.
    fn tell_of_keeping(&mut self, name: &Name, rest: Duration) {
        if let Some(head) = self.queues.get(name).and_then(Queue::head) {
            let topic = Topic::Turn(name.clone(), head);
            self.tell_all(&topic, &Notice::Next(name.clone(), rest));
        }
        let topic = Topic::Freed(name.clone());
        self.tell_all(&topic, &topic.first_hint());
    }

    fn tell_all(&mut self, topic: &Topic, notice: &Notice) {
        self.listeners
            .retain(|subscriber| match subscriber.upgrade() {
                Some(subscriber) => {
                    subscriber.hear(topic, notice.clone());
                    true
                }
                None => false,
            });
    }
}

impl Row {
    fn held(&self, name: &Name, now: Instant) -> Held {
        Held {
            by: Some(self.holder),
            token: Some(self.token),
            info: Info::clone(&self.info),
            since: Some(self.since),
            remaining: Some(self.ends_at.since(now)),
            state: match self.standing {
                RowState::Live => HeldState::Leased,
                RowState::Evicted => HeldState::Evicted,
                RowState::Kept => HeldState::Kept,
            },
            ..Held::new(name.clone())
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

impl Store for Memory {
    fn facts(&self) -> Facts {
        Facts::new("memory").with_queue().with_notices()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn location(&self) -> String {
        "memory of this process".into()
    }

    fn shard(&self, _: &Name) -> u32 {
        0
    }

    fn acquire<'a>(
        &'a self,
        claim: &'a Claim,
        ask: Ask,
        _: Duration,
    ) -> BoxFuture<'a, Result<Answer, Failed>> {
        Box::pin(async move { self.acquire_now(claim, ask) })
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], _: Duration) -> BoxFuture<'a, Renewed> {
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
    ) -> BoxFuture<'a, Result<Release, Error>> {
        Box::pin(async move { self.release_now(name, holder, kept_for(keep_for)) })
    }

    fn inspect<'a>(
        &'a self,
        name: &'a Name,
        _: Duration,
    ) -> BoxFuture<'a, Result<Option<Held>, Error>> {
        Box::pin(async move { self.inspect_now(name) })
    }

    fn list<'a>(&'a self, prefix: &'a str, _: Duration) -> BoxFuture<'a, Result<Vec<Held>, Error>> {
        Box::pin(async move { self.list_now(prefix) })
    }

    fn evict<'a>(
        &'a self,
        name: &'a Name,
        how: Eviction,
        _: Duration,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move { self.evict_now(name, how) })
    }

    fn leave<'a>(
        &'a self,
        name: &'a Name,
        client: ClientId,
        _: Duration,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let mut state = self.state_for(name)?;
            let queue = state.queues.get_mut(name);
            if queue.is_some_and(|queue| queue.leave(client)) {
                state.pass_on(name, self.clock.now());
            }
            Ok(())
        })
    }

    fn notices(&self) -> BoxFuture<'_, Result<Option<Box<dyn Notices>>, Error>> {
        Box::pin(async move {
            let subscriber = Arc::new(Subscriber::default());
            self.state()?.listeners.push(Arc::downgrade(&subscriber));
            Ok(Some(Box::new(Subscription(subscriber)) as Box<dyn Notices>))
        })
    }

    // A highest token ahead of the clock is none: no operator could keep or copy what ends with the process.
    fn hazards(&self, _: Duration) -> BoxFuture<'_, Result<Vec<Hazard>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn members(&self, _: Duration) -> BoxFuture<'_, Result<Vec<Member>, Error>> {
        Box::pin(async { Ok(vec![Member::new(self.location(), MemberState::Up)]) })
    }

    fn on_own_connection(&self, _: Purpose) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async move { Ok(Arc::new(self.clone()) as Arc<dyn Store>) })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.is_closed.store(true, Ordering::Relaxed) })
    }
}
