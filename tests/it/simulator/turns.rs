//! Waiting in turn: users of a process that wait for one name, led by the real registry of waiting tasks; a store's
//! queue, which is the real one of the store in memory; and notices that are late, lost or doubled.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use leasehold::clock::Instant;
use leasehold::internals::Waiting;
use leasehold::internals::claiming::{Claiming, GiveUp};
use leasehold::internals::waiters::{Action, Found, QueueKey, WaitFor, WaiterId};
use leasehold::internals::wake::{Sleeper, Wake};
use leasehold::store::{Ask, Claim, Handover, Held, Notice, Notices, Queued, Topic};
use leasehold::{BoxFuture, ClientId, Holder, Name, OutagePolicy};

use super::ledger::Promise;
use super::plan::Weather;
use super::process::Process;
use super::slot::Phase;
use super::stage::{Act, Event, Happening, Stage};
use super::time::{Real, nanos};

/// How many nanoseconds after the end of a claim that waited its release has been carried out, if nothing is in its
/// way.
const RELEASED_WITHIN: u64 = 20_000_000;

/// A user that waits, as its process knows it.
pub(super) struct Waiter {
    ticket: WaiterId,
    sleeper: Sleeper,
    is_polling: bool,
    /// What its poll asks of the store's queue.
    pub(super) queued: Option<Queued>,
}

/// A client's subscription: the topics that it began to follow and has not been told of yet.
#[derive(Debug, Default)]
pub(super) struct Subscription(Mutex<Vec<Topic>>);

impl Notices for Subscription {
    fn follow(&self, topic: &Topic) {
        self.0.lock().expect("nobody panics").push(topic.clone());
    }

    fn unfollow(&self, _: &Topic) {}

    fn next(&self) -> BoxFuture<'_, Notice> {
        unreachable!("the simulator tells the registry")
    }
}

/// What is known of the clients that wait, beside what the store and the core know.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The processes that listen, and their lives.
    listening: BTreeMap<ClientId, (usize, u32)>,
    /// Counts how often each server has lost its subscribers.
    epochs: BTreeMap<usize, u32>,
    /// The claim of each place that was not released, and until when the server keeps it by its own clock.
    places: BTreeMap<(Name, ClientId), (Option<Holder>, Instant)>,
    waits: BTreeMap<(Name, ClientId), Wait>,
    /// Clients that stand still or are dead.
    away: BTreeSet<ClientId>,
    /// When each claim ended, or the lease that came of it.
    gone: BTreeMap<Holder, Real>,
    /// Since when a name is free.
    free: BTreeMap<Name, Real>,
}

/// A client that waits.
#[derive(Debug)]
struct Wait {
    /// When the store gave it a place.
    since: Real,
    /// Nothing has happened to it since an answer that told it of its place.
    is_sound: bool,
}

impl Turns {
    /// Something happened to these clients that may cost them their places.
    fn disturb(&mut self, is_disturbed: impl Fn(&Name, ClientId) -> bool) {
        for ((name, client), wait) in &mut self.waits {
            wait.is_sound &= !is_disturbed(name, *client);
        }
    }

    pub(super) fn pauses(&mut self, client: ClientId) {
        self.away.insert(client);
        self.disturb(|_, other| other == client);
    }

    pub(super) fn resumes(&mut self, client: ClientId) {
        self.away.remove(&client);
    }

    pub(super) fn dies(&mut self, client: ClientId) {
        self.listening.remove(&client);
        self.away.insert(client);
        self.waits.retain(|(_, other), _| *other != client);
        self.gone.retain(|holder, _| holder.client() != client);
    }

    /// The claim of this holder, or its lease, is over.
    pub(super) fn ends(&mut self, holder: Holder, now: Real) {
        self.gone.insert(holder, now);
    }

    /// Whose claims wait for these names.
    pub(super) fn holders(&self, is_meant: impl Fn(&Name) -> bool) -> Vec<Holder> {
        let places = self.places.iter().filter(|((name, _), _)| is_meant(name));
        places.filter_map(|(_, (claim, _))| *claim).collect()
    }

    /// A claim of this client is sent to the queue.
    fn claimed(&mut self, claim: &Claim, until: Instant) {
        let place = (claim.name.clone(), claim.holder.client());
        let kept = self.places.entry(place).or_insert((None, until));
        *kept = (Some(claim.holder), until.max(kept.1));
    }
}

impl Stage {
    /// A server answers nothing, or not in time.
    pub(super) fn turns_suffer(&mut self, server: usize) {
        let mut turns = std::mem::take(&mut self.turns);
        turns.disturb(|name, _| self.server_of(name) == server);
        self.turns = turns;
    }

    /// The queue of this name is gone.
    pub(super) fn queue_is_lost(&mut self, name: &Name) {
        self.turns.waits.retain(|(other, _), _| other != name);
        self.turns.places.retain(|(other, _), _| other != name);
    }

    /// A server came back as another one: its queues are gone, and its subscribers subscribe anew.
    pub(super) fn subscribers_are_lost(&mut self, server: usize) {
        for name in self.names.clone() {
            if self.server_of(&name) == server {
                self.queue_is_lost(&name);
            }
        }
        *self.turns.epochs.entry(server).or_default() += 1;
        for (process, life) in self.turns.listening.values().copied().collect::<Vec<_>>() {
            self.tell(process, life, server, &Notice::Reconnected);
        }
    }

    /// Sends a notice, which may be lost, late or doubled.
    fn tell(&mut self, process: usize, life: u32, server: usize, notice: &Notice) {
        let epoch = self.turns.epochs.get(&server).copied().unwrap_or_default();
        let is_cut = self.outages[server].is_some_and(|(_, until)| self.now < until);
        let odds = self.plan.odds;
        let is_lost = self.chance(odds.lost);
        let is_doubled = self.chance(odds.duplicated);
        if is_cut || is_lost {
            self.ledger.fault("notice lost");
            return;
        }
        for _ in 0..=usize::from(is_doubled) {
            let mut after = self.rng.u64(50_000..1_500_000);
            if self.chance(odds.late) {
                self.ledger.fault("notice late");
                after += self.within(self.plan.longer.ttl() * 3 / 2);
            }
            let heard = Happening::Notice(server, epoch, notice.clone());
            self.in_nanos(after, Event::To(process, life, heard));
        }
    }

    fn tell_client(&mut self, name: &Name, client: ClientId, notice: &Notice) {
        if let Some(&(process, life)) = self.turns.listening.get(&client) {
            self.tell(process, life, self.server_of(name), notice);
        }
    }

    /// Keeps the place that a claim has, before it is polled.
    pub(super) fn stay(&mut self, claim: &Claim, ask: Ask) {
        let now = self.now;
        let store = self.store_mut(&claim.name);
        let shown = store.clock.at(now);
        if let (Some(queued), Some(queue)) = (ask.queued, store.queues.get_mut(&claim.name))
            && queue.stay(claim, ask, queued, shown)
        {
            self.turns.claimed(claim, shown.after(queued.term));
        }
    }

    /// Gives a claim that was not granted its place. Answers how many are before it.
    pub(super) fn queue_up(&mut self, claim: &Claim, ask: Ask) -> Option<usize> {
        let (queued, now, client) = (ask.queued?, self.now, claim.holder.client());
        let store = self.store_mut(&claim.name);
        let shown = store.clock.at(now);
        let queue = store.queues.entry(claim.name.clone()).or_default();
        let is_new = !queue.stay(claim, ask, queued, shown);
        let ahead = queue.join(claim, ask, queued, shown);
        self.turns.claimed(claim, shown.after(queued.term));
        let server = self.server_of(&claim.name);
        let is_cut = self.outages[server].is_some_and(|(_, until)| now < until);
        // A claim that arrives after its end has no waiter.
        let is_over = self.turns.gone.contains_key(&claim.holder);
        let is_sound = !is_cut && !is_over && !self.turns.away.contains(&client);
        let wait = (self.turns.waits.entry((claim.name.clone(), client))).or_insert(Wait {
            since: now,
            is_sound,
        });
        if is_new && !wait.is_sound {
            wait.since = now;
        }
        wait.is_sound = is_sound;
        Some(ahead)
    }

    /// Grants a free name to the first live place. Whose claim asks needs no notice.
    pub(super) fn pass_on(&mut self, name: &Name, asking: Option<Holder>) {
        let now = self.now;
        let listening: BTreeSet<_> = self.turns.listening.keys().copied().collect();
        let is_deaf = |waiting: &Waiting| {
            let asks = asking.is_some_and(|holder| holder.client() == waiting.client);
            waiting.listens && !asks && !listening.contains(&waiting.client)
        };
        let Some((holder, token)) = self.store_mut(name).grant_next(name, is_deaf, now) else {
            return self.watch_idle(name);
        };
        self.ledger.fault("name handed over");
        let place = self.turns.places.remove(&(name.clone(), holder.client()));
        let store = self.store(name);
        let ends_at = store.rows[name].ends_at;
        let is_kept = place.is_some_and(|(claim, until)| {
            claim == Some(holder) && store.clock.at(now) < ends_at && ends_at <= until
        });
        // Where nothing is lost, a claim that its caller gave up is released at once.
        let gone = self.turns.gone.get(&holder).copied();
        let is_owed = self.plan.weather == Weather::Calm && self.keeps_turns();
        let is_kept = is_kept && !(is_owed && gone.is_some_and(|at| now > at + RELEASED_WITHIN));
        let promise = Promise::ANameIsHandedToALivePlace;
        self.ledger.check(promise, now, is_kept, || {
            format!("{name} is handed to {holder} until {ends_at:?}, whose place is {place:?}, gone at {gone:?}")
        });
        self.was_granted(name, holder, token);
        if asking != Some(holder) {
            let handover = Handover::new(name.clone(), holder, token);
            let notice = Notice::Granted(Box::new(handover));
            self.tell_client(name, holder.client(), &notice);
        }
    }

    /// A name is kept after its release: the first in its queue may poll when that ends.
    pub(super) fn tell_first(&mut self, name: &Name) {
        let store = self.store(name);
        let queue = store.queues.get(name);
        let first = queue.and_then(|queue| queue.first(store.clock.at(self.now)));
        if let Some(client) = first {
            self.tell_client(name, client, &Notice::Freed(name.clone()));
        }
    }

    pub(super) fn vacate(&mut self, name: &Name, holder: Holder) {
        if let Some(queue) = self.store_mut(name).queues.get_mut(name) {
            queue.vacate(holder);
        }
        let place = (name.clone(), holder.client());
        if let Some((claim, _)) = self.turns.places.get_mut(&place) {
            claim.take_if(|claim| *claim == holder);
        }
    }

    /// A client got the name: nobody who waited before it, and to whom nothing happened, waits any more.
    pub(super) fn check_turn(&mut self, name: &Name, holder: Holder) {
        self.turns.free.remove(name);
        let granted = (name.clone(), holder.client());
        let since = self
            .turns
            .waits
            .remove(&granted)
            .map_or(self.now, |wait| wait.since);
        if !self.keeps_turns() {
            return;
        }
        let passed = self
            .turns
            .waits
            .iter()
            .find(|((other, _), wait)| other == name && wait.is_sound && wait.since < since);
        let promise = Promise::NoWaiterIsPassedOver;
        self.ledger.check(promise, self.now, passed.is_none(), || {
            format!("{name} is granted to {holder}, who came at {since}, before {passed:?}")
        });
    }

    /// Whether no fault of this run may cost a waiting client its place for long.
    fn keeps_turns(&self) -> bool {
        self.plan.is_fair() && self.plan.slow_line.is_zero()
    }

    /// The name is free: who waits for it gets it before a place would end.
    pub(super) fn watch_idle(&mut self, name: &Name) {
        if self.plan.waits && self.keeps_turns() {
            let since = *self.turns.free.entry(name.clone()).or_insert(self.now);
            let within = Queued::new(self.plan.longer.ttl()).term * 11 / 10;
            self.in_nanos(nanos(within), Event::Idle(name.clone(), since));
        }
    }

    pub(super) fn check_idle(&mut self, name: &Name, since: Real) {
        if self.turns.free.get(name) != Some(&since) {
            return;
        }
        let waiting = self
            .turns
            .waits
            .iter()
            .find(|((other, _), wait)| other == name && wait.is_sound && wait.since <= since);
        let promise = Promise::EachWaiterIsServed;
        self.ledger.check(promise, self.now, waiting.is_none(), || {
            format!("{name} is free since {since}, and {waiting:?} waits")
        });
    }
}

impl Process {
    fn key(&self, slot: usize) -> QueueKey {
        QueueKey {
            name: self.slots[slot].name.clone(),
            awaited: WaitFor::Grant,
        }
    }

    /// A user begins to wait, as the last of its process.
    pub(super) fn join(&mut self, stage: &mut Stage, slot: usize) {
        let sleeper = Sleeper::default();
        let ticket = self.registry.join(&self.key(slot), sleeper.clone());
        self.slots[slot].waiter = Some(Waiter {
            ticket,
            sleeper,
            is_polling: false,
            queued: None,
        });
        self.slots[slot].becomes(Phase::Queued);
        if stage.rng.u8(..8) == 0 {
            self.plan(stage, slot, stage.plan.timing.ttl(), Act::DropTheClaim);
        }
        self.step(stage, slot);
    }

    /// Does what the registry says, unless a poll is under way.
    pub(super) fn step(&mut self, stage: &mut Stage, slot: usize) {
        let (key, now) = (self.key(slot), stage.shown(self.id));
        let Some(waiter) = &mut self.slots[slot].waiter else {
            return;
        };
        if waiter.is_polling {
            return;
        }
        let step = (self.registry).step(&key, waiter.ticket, OutagePolicy::WaitOut, now);
        match step {
            Err(_) => self.give_claim_up(stage, slot),
            Ok(Action::Sleep(until)) if until < Instant::FAR_FUTURE => {
                let at = stage.real_at(self.id, until) + stage.rng.u64(1_000..200_000);
                let act = Happening::Act(slot, self.slots[slot].version, Act::Step);
                stage.agenda.add(at, Event::To(self.id, self.life, act));
            }
            Ok(Action::Sleep(_)) => {}
            Ok(Action::Poll(handover)) => {
                waiter.is_polling = true;
                self.polls(stage, slot, handover);
            }
        }
    }

    /// Takes the grant that a notice told of, or asks.
    fn polls(&mut self, stage: &mut Stage, slot: usize, handover: Option<Box<Handover>>) {
        let handover = handover.filter(|_| stage.plan.trusts_notices);
        let seen = self.floors.get(&self.slots[slot].name).copied();
        if let Some(handover) = handover
            && let Phase::Claiming(claiming, enrolled) = &mut self.slots[slot].phase
        {
            if stage.rng.u8(..8) == 0 {
                stage.ledger.fault("given up in the moment of its grant");
                return self.give_claim_up(stage, slot);
            }
            let (now, place) = (stage.shown(self.id), enrolled.place);
            if let Some(lease) = claiming.handed_over(&mut self.schedule, &handover, seen, now) {
                stage.ledger.fault("held by a notice");
                self.granted(stage, slot, &lease, place);
                return self.served(stage, slot);
            }
        }
        let (key, timing) = (self.key(slot), self.slots[slot].timing);
        let queued = self.registry.queued(&key, timing.ttl());
        let waiter = self.slots[slot].waiter.as_mut();
        waiter.expect("it polls").queued = queued;
        match self.slots[slot].phase {
            Phase::Claiming(..) => self.ask(stage, slot),
            _ => {
                let give_up = GiveUp::At(stage.shown(self.id).after(timing.ttl()));
                let request = Some(Claiming::new(None, give_up));
                self.go_on(stage, slot, request);
            }
        }
    }

    /// Its poll found the name held, or nothing.
    pub(super) fn found(&mut self, stage: &mut Stage, slot: usize, found: Found) {
        let (key, now) = (self.key(slot), stage.shown(self.id));
        let Some(waiter) = &mut self.slots[slot].waiter else {
            return;
        };
        waiter.is_polling = false;
        let is_held = found.is_ok();
        let wakes = self.registry.found(&key, found, waiter.queued, now);
        self.wake(stage, wakes);
        if is_held {
            self.follow(stage, &key);
        }
        self.step(stage, slot);
    }

    /// It has the name, and waits no more.
    pub(super) fn served(&mut self, stage: &mut Stage, slot: usize) {
        let (key, now) = (self.key(slot), stage.shown(self.id));
        let ttl = self.slots[slot].timing.ttl();
        if let Some(waiter) = self.slots[slot].waiter.take() {
            let wake = self.registry.granted(&key, waiter.ticket, ttl, now);
            if wake.has_waiter() {
                self.follow(stage, &key);
            }
            self.wake(stage, vec![wake]);
        }
    }

    /// It gives up waiting, if it does.
    pub(super) fn stops_waiting(&mut self, stage: &mut Stage, slot: usize) {
        let key = self.key(slot);
        if let Some(waiter) = self.slots[slot].waiter.take() {
            if waiter.is_polling {
                self.registry.waiters(&key).poll_again(waiter.ticket);
            }
            let client = self.client;
            (stage.turns).disturb(|name, other| *name == key.name && other == client);
            let wake = self.registry.leave(&key, waiter.ticket);
            self.wake(stage, vec![wake]);
        }
    }

    fn follow(&mut self, stage: &mut Stage, key: &QueueKey) {
        self.registry.follow(key);
        let topics = std::mem::take(&mut *self.subscription.0.lock().expect("nobody panics"));
        for topic in topics {
            (stage.turns.listening).insert(self.client, (self.id, self.life));
            stage.tell_client(topic.name(), self.client, &topic.first_notice());
        }
    }

    /// A notice came, by a subscription that is still the last one or is made anew first.
    pub(super) fn heard(&mut self, stage: &mut Stage, server: usize, epoch: u32, notice: Notice) {
        let last = self.epochs.entry(server).or_default();
        if epoch < *last {
            return;
        }
        if std::mem::replace(last, epoch) < epoch {
            let wakes = self.registry.on_notice(Notice::Reconnected);
            self.wake(stage, wakes);
        }
        let wakes = self.registry.on_notice(notice);
        self.wake(stage, wakes);
    }

    /// No user waits any more.
    pub(super) fn stop_waiting(&mut self, stage: &mut Stage) {
        let (_, wakes) = self.registry.close();
        self.wake(stage, wakes);
    }

    /// Wakes users, which go on a little later.
    fn wake(&mut self, stage: &mut Stage, wakes: Vec<Wake>) {
        wakes.into_iter().for_each(Wake::now);
        let mut context = Context::from_waker(Waker::noop());
        for (index, slot) in self.slots.iter().enumerate() {
            let woken = slot
                .waiter
                .as_ref()
                .is_some_and(|waiter| pin!(waiter.sleeper.woken()).poll(&mut context).is_ready());
            if woken {
                let act = Happening::Act(index, slot.version, Act::Step);
                let after = stage.rng.u64(1_000..200_000);
                stage.in_nanos(after, Event::To(self.id, self.life, act));
            }
        }
    }
}

/// What a poll is told to have found.
pub(super) fn taken(held: Box<Held>) -> Found {
    Ok(Arc::from(held))
}
