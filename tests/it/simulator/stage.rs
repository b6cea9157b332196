//! Where the processes meet: what really is, what is still to happen, and what must hold of the store.

use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use leasehold::ClientId;
use leasehold::clock::Instant;
use leasehold::store::Notice;
use leasehold::{Holder, Name, Token};

use super::ledger::{FAILOVER, Guard, Ledger, Promise};
use super::network::{Outage, Reply, Request};
use super::plan::{Plan, Shape, Weather};
use super::planted::Bug;
use super::store::ModelStore;
use super::time::{Agenda, Drifting, Real, nanos};
use super::turns::Turns;

/// The store's wall clock begins in 2025.
const WALL: u64 = 1_735_689_600_000_000_000;
/// How far the clock of each server is ahead of the one before it.
const APART: u64 = 60_000_000_000;
/// The clocks of processes begin after an hour.
const BOOT: u64 = 3_600_000_000_000;

/// What is to happen.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// To a process, unless it has crashed since.
    To(usize, u32, Happening),
    /// A request is at the store.
    Arrive(Rc<Request>),
    /// A row may have run out.
    Expire(Name),
    /// What no guard holds must be gone.
    Clean(Name, Holder, Real),
    /// A server that keeps out may grant again.
    GrantsAgain(usize),
    /// A name has been free since then, perhaps.
    Idle(Name, Real),
    /// The world does something to a process or a server.
    Disturb(Disturbance),
}

/// What happens to a process.
#[derive(Debug, Clone)]
pub(super) enum Happening {
    /// The loop's timer, or a caller, wakes the loop; stale if another wake was planned since.
    Wake(u32),
    /// The reply to a call.
    Reply(usize, Rc<Reply>),
    /// A call's time is over.
    GiveUp(usize),
    /// A batch has had no answer within its limit.
    Overdue(usize),
    /// A notice of a server, by the subscription of this number.
    Notice(usize, u32, Notice),
    /// The user does something with one of the slots; stale if the slot has moved on.
    Act(usize, u32, Act),
    /// The deadline of this slot's lease has come, perhaps.
    Due(usize, u32),
    /// What the holder of this slot's lease allowed itself is used up, perhaps.
    UsedUp(usize, u32),
}

/// What a user does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Act {
    Claim,
    AskAgain,
    /// Its turn may have come.
    Step,
    DropTheClaim,
    Check,
    Progress,
    Leave,
    DropTheRelease,
}

/// What goes wrong at some moment.
#[derive(Debug, Clone, Copy)]
pub(super) enum Disturbance {
    /// Of one server.
    OutageBegins(usize, Outage, Duration),
    Pause(usize, Duration),
    Resume(usize),
    Crash(usize),
    Shutdown(usize),
    RestartEmpty(usize),
    /// The replica of this server gets no more writes.
    ReplicaStops(usize),
    /// That replica replaces its server.
    FailOver(usize),
    EvictNow,
    EvictMarked,
    Poison(Duration),
    Heal,
    StepServer {
        server: usize,
        forward: bool,
        by: Duration,
    },
    StepClient(usize, Duration),
    /// A name moves, with all that is kept of it, to this server.
    Move(usize, usize),
    EndOfFaults,
}

pub(super) struct Stage {
    pub(super) now: Real,
    pub(super) rng: Rng,
    pub(super) plan: Plan,
    pub(super) agenda: Agenda<Event>,
    /// The servers: each keeps the names of one shard.
    pub(super) stores: Vec<ModelStore>,
    /// The server that keeps each name.
    homes: Vec<usize>,
    pub(super) ledger: Ledger,
    pub(super) clocks: Vec<Drifting>,
    pub(super) names: Vec<Name>,
    pub(super) turns: Turns,
    /// Of each server, until when.
    pub(super) outages: Vec<Option<(Outage, Real)>>,
    is_trace: bool,
}

impl Stage {
    pub(super) fn new(seed: u64, shape: Shape, bug: Option<Bug>, is_trace: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let plan = Plan::draw(shape, bug, seed, &mut rng);
        let clocks = plan.client_rates.iter().enumerate();
        let clocks = clocks.map(|(id, rate)| Drifting::new(BOOT * (1 + id as u64), *rate));
        let names = (0..plan.names).map(|index| Name::new(format!("n{index}")));
        let servers = plan.server_rates.len();
        let stores = (0..).zip(&plan.server_rates).map(|(server, rate)| {
            let mut store = ModelStore::new(Drifting::new(WALL + server * APART, *rate), bug);
            store.ignores_floors = !plan.is_fair() && seed % 4 == 1;
            store.keep_out = plan.keep_out;
            store
        });
        Self {
            now: 0,
            agenda: Agenda::new(),
            stores: stores.collect(),
            homes: (0..plan.names).map(|name| name % servers).collect(),
            ledger: Ledger::checking(bug.map(Bug::breaks)),
            clocks: clocks.collect(),
            names: names.map(|name| name.expect("valid")).collect(),
            turns: Turns::default(),
            outages: vec![None; plan.server_rates.len()],
            is_trace,
            rng,
            plan,
        }
    }

    pub(super) fn note(&self, what: impl FnOnce() -> String) {
        if self.is_trace {
            println!("{:>12.6} {}", self.now as f64 / 1e9, what());
        }
    }

    /// What the clock of this process shows.
    pub(super) fn shown(&self, process: usize) -> Instant {
        self.clocks[process].at(self.now)
    }

    fn shown_at(&self, process: usize, real: Real) -> Instant {
        self.clocks[process].at(real.max(self.now))
    }

    /// When the clock of this process will show this; now, if it does already.
    pub(super) fn real_at(&self, process: usize, shown: Instant) -> Real {
        self.clocks[process].real_at(shown).max(self.now)
    }

    pub(super) fn in_nanos(&mut self, after: u64, event: Event) {
        self.agenda.add(self.now + after, event);
    }

    pub(super) fn within(&mut self, most: Duration) -> u64 {
        self.rng.u64(..=nanos(most))
    }

    pub(super) fn is_ending(&self) -> bool {
        self.now >= self.plan.horizon
    }

    pub(super) fn chance(&mut self, of_a_thousand: u32) -> bool {
        !self.is_ending() && of_a_thousand > 0 && self.rng.u32(..1_000) < of_a_thousand
    }

    pub(super) fn outage_begins(&mut self, server: usize, outage: Outage, lasts: Duration) {
        self.outages[server] = Some((outage, self.now + nanos(lasts)));
        self.turns_suffer(server);
    }

    /// The server that keeps this name.
    pub(super) fn server_of(&self, name: &Name) -> usize {
        let digits = name.as_str().trim_start_matches('n');
        let index: usize = digits.parse().expect("names are numbered");
        self.homes[index]
    }

    /// The same, as the store numbers its shards.
    pub(super) fn shard_of(&self, name: &Name) -> u32 {
        u32::try_from(self.server_of(name)).expect("servers are few")
    }

    /// Moves a name to this server. What is left of its lease is the same there.
    pub(super) fn move_name(&mut self, index: usize, to: usize) {
        let name = self.names[index].clone();
        let from = std::mem::replace(&mut self.homes[index], to);
        if from == to {
            return;
        }
        self.ledger.fault("name moved");
        self.queue_is_lost(&name);
        let moved = self.stores[from].give_away(&name, self.now);
        self.stores[to].take_over(name.clone(), moved, self.now);
        self.watch_expiry(&name);
    }

    pub(super) fn store(&self, name: &Name) -> &ModelStore {
        &self.stores[self.server_of(name)]
    }

    pub(super) fn store_mut(&mut self, name: &Name) -> &mut ModelStore {
        let server = self.server_of(name);
        &mut self.stores[server]
    }

    /// One of the servers.
    pub(super) fn draw_server(&mut self) -> usize {
        match self.stores.len() {
            1 => 0,
            servers => self.rng.usize(..servers),
        }
    }

    /// The store could grant this name to another from now on: then its holder must not be told yes.
    pub(super) fn check_freed(&mut self, name: &Name, holder: Holder) {
        let Some(guard) = self.ledger.guards.get(&holder) else {
            return;
        };
        let shown = self.shown(guard.process);
        let is_kept = self.ledger.excused.contains(&holder)
            || self.ledger.stepped.contains_key(&holder)
            || self.store(name).is_kept_for(name, holder, self.now)
            || self.store(name).is_keeping_out(self.now)
            || !self.ledger.says_yes(holder, shown);
        self.ledger.check(
            Promise::NoYesWhileTheStoreCouldGrantToAnother,
            self.now,
            is_kept,
            || format!("{name} is free, but {holder} is told yes"),
        );
    }

    /// The store has granted this name.
    pub(super) fn was_granted(&mut self, name: &Name, holder: Holder, token: Token) {
        let shown_us = self.store(name).clock.at(self.now).as_nanos() / 1_000;
        (self.ledger).check_token(self.now, name, holder, token, shown_us);
        self.check_alone(name, holder);
        self.check_turn(name, holder);
        self.watch_expiry(name);
        self.watch_cleaning(name, holder);
    }

    /// The store has granted this name to this holder: no other one is told yes.
    pub(super) fn check_alone(&mut self, name: &Name, holder: Holder) {
        let ledger = &self.ledger;
        let others = ledger.guards.iter().filter(|(other, guard)| {
            let is_open = ledger.excused.contains(other) || ledger.stepped.contains_key(other);
            guard.name == *name && **other != holder && !is_open
        });
        let mut others = others.map(|(other, guard)| (*other, self.shown(guard.process)));
        let rival = others.find(|(other, shown)| ledger.says_yes(*other, *shown));
        let promise = Promise::NoTwoHolders;
        self.ledger.check(promise, self.now, rival.is_none(), || {
            format!("{name} is granted to {holder}, and {rival:?} is told yes")
        });
    }

    pub(super) fn watch_expiry(&mut self, name: &Name) {
        let store = self.store(name);
        if let Some(row) = store.rows.get(name) {
            let at = store.clock.real_at(row.ends_at).max(self.now);
            self.agenda.add(at, Event::Expire(name.clone()));
        }
    }

    /// A row may have run out, or have been renewed since.
    pub(super) fn expire(&mut self, name: &Name) {
        let Some(row) = self.store(name).rows.get(name).copied() else {
            return;
        };
        if row.ends_at > self.store(name).clock.at(self.now) {
            self.watch_expiry(name);
        } else {
            self.store_mut(name).rows.remove(name);
            self.check_freed(name, row.holder);
            self.watch_idle(name);
        }
    }

    /// If no guard holds this any more, it must be gone before long, as long as the store can be reached.
    pub(super) fn watch_cleaning(&mut self, name: &Name, holder: Holder) {
        let is_watched = self.is_ending() || self.plan.is_fair();
        let is_gone = is_watched && self.ledger.gone.contains_key(&holder);
        let row = self.store(name).row(name, self.now);
        if let Some(row) = row.filter(|row| is_gone && row.holder == holder) {
            let clean = Event::Clean(name.clone(), holder, row.since);
            let after = nanos(self.plan.time_to_clean());
            self.in_nanos(after, clean);
        }
    }

    /// Whether a release that is lost now, or just before the faults end, is repeated after them.
    pub(super) fn has_time_to_release(&self, guard: &Guard) -> bool {
        let runs_out = self.real_at(guard.process, guard.until);
        runs_out >= self.now.max(self.plan.horizon) + nanos(self.plan.last_release())
    }

    /// It was there a while ago. What landed after the last release that the watchdog owes runs out by itself.
    pub(super) fn check_clean(&mut self, name: &Name, holder: Holder, landed_at: Real) {
        let Some(gone) = self.ledger.gone.get(&holder) else {
            return;
        };
        let watched_at = self.now - nanos(self.plan.time_to_clean());
        let is_in_time = watched_at + nanos(self.plan.last_release()) <= gone.until;
        if landed_at > gone.since && !is_in_time {
            return;
        }
        let row = self.store(name).row(name, self.now);
        let is_same = row.is_some_and(|row| row.since == landed_at);
        let is_clean = !is_same || !self.store(name).is_live(name, holder, self.now);
        self.ledger
            .check(Promise::ADoubtfulClaimIsCleaned, self.now, is_clean, || {
                format!("{name} is still held by {holder}, whose guard is gone")
            });
    }

    pub(super) fn step_server(&mut self, server: usize, forward: bool, by: Duration) {
        let is_wild = forward && by > self.plan.step_within_margin;
        self.ledger.fault(match (is_wild, forward) {
            (true, _) => "wild clock",
            (_, true) => "server clock forward, within the margin",
            (_, false) => "server clock back",
        });
        self.stores[server].clock.step(self.now, forward, by);
        let rows: Vec<_> = self.stores[server]
            .rows
            .iter()
            .map(|(name, row)| (name.clone(), row.holder))
            .collect();
        for (name, holder) in rows {
            if is_wild {
                self.ledger.stepped.insert(holder, self.now);
            }
            self.watch_expiry(&name);
        }
        if is_wild {
            let waiting = self.turns.holders(|name| self.server_of(name) == server);
            let now = self.now;
            (self.ledger.stepped).extend(waiting.into_iter().map(|holder| (holder, now)));
        }
        if is_wild {
            // It grants again earlier, too.
            let forgotten = self.ledger.forgotten.iter();
            let forgotten = forgotten.filter(|(_, of)| **of == server);
            let stepped = forgotten.map(|(holder, _)| (*holder, self.now));
            self.ledger.stepped.extend(stepped);
        }
        self.watch_keep_out(server);
    }

    /// A client has found out, by a reply that was made then, that the clock of this server stepped: from now on its leases
    /// there end in time again.
    pub(super) fn step_was_found(&mut self, client: ClientId, server: usize, read_at: Real) {
        self.ledger.has_taken_off |= self.ledger.faults.contains_key("server clock back");
        let mut stepped = std::mem::take(&mut self.ledger.stepped);
        stepped.retain(|holder, at| {
            let is_elsewhere = self.stores.len() > 1
                && (self.ledger.guards.get(holder))
                    .is_none_or(|guard| self.server_of(&guard.name) != server);
            holder.client() != client || *at > read_at || is_elsewhere
        });
        self.ledger.stepped = stepped;
        let names: Vec<_> = self.stores[server].rows.keys().cloned().collect();
        for name in names {
            self.check_ends_in_time(&name);
        }
    }

    /// The holder of this row is told no before the store could grant the name to another.
    fn check_ends_in_time(&mut self, name: &Name) {
        let row = self.store(name).rows[name];
        let Some(guard) = self.ledger.guards.get(&row.holder) else {
            return;
        };
        let excused = self.ledger.excused.contains(&row.holder);
        let is_open = excused || self.ledger.stepped.contains_key(&row.holder);
        let store = self.store(name);
        let ends_at = store
            .clock
            .real_at(row.ends_at)
            .max(store.grants_again_at());
        let ends_at = self.shown_at(guard.process, ends_at);
        let is_kept = is_open || !guard.signal.deadline().is_ok_and(|until| until > ends_at);
        self.ledger.check(
            Promise::NoYesWhileTheStoreCouldGrantToAnother,
            self.now,
            is_kept,
            || {
                format!(
                    "{name} ends at {ends_at:?}, but {} is told yes for longer",
                    row.holder
                )
            },
        );
    }

    pub(super) fn restart_empty(&mut self, server: usize) {
        self.ledger.fault("restart empty");
        let forgotten = self.stores[server].restart_empty(self.now);
        self.has_forgotten(server, forgotten);
        self.subscribers_are_lost(server);
    }

    pub(super) fn fail_over(&mut self, server: usize) {
        let Some(forgotten) = self.stores[server].fail_over(self.now) else {
            return;
        };
        self.ledger.fault(FAILOVER);
        self.subscribers_are_lost(server);
        self.has_forgotten(server, forgotten);
        let names: Vec<_> = self.stores[server].rows.keys().cloned().collect();
        for name in names {
            self.watch_expiry(&name);
        }
    }

    /// A server has forgotten these leases. If it keeps out, their holders need no excuse.
    fn has_forgotten(&mut self, server: usize, holders: Vec<Holder>) {
        match self.plan.keep_out {
            Some(_) => {
                let forgotten = holders.into_iter().map(|holder| (holder, server));
                self.ledger.forgotten.extend(forgotten);
            }
            None => self.ledger.excused.extend(holders),
        }
        self.watch_keep_out(server);
    }

    fn watch_keep_out(&mut self, server: usize) {
        if self.stores[server].is_keeping_out(self.now) {
            let at = self.stores[server].grants_again_at();
            self.agenda.add(at, Event::GrantsAgain(server));
        }
    }

    /// A server may have kept out for long enough: whom it has forgotten is told no by now.
    pub(super) fn grants_again(&mut self, server: usize) {
        if self.stores[server].is_keeping_out(self.now) {
            return;
        }
        let guards = self.ledger.guards.iter();
        let guards: Vec<_> = guards
            .map(|(holder, guard)| (guard.name.clone(), *holder))
            .collect();
        for (name, holder) in guards {
            if self.server_of(&name) == server {
                self.check_freed(&name, holder);
            }
        }
    }

    pub(super) fn evict(&mut self, is_now: bool) {
        let count = self.stores.iter().map(|store| store.rows.len()).sum();
        let Some(index) = self.rng.usize(..).checked_rem(count) else {
            return;
        };
        let mut rows = self.stores.iter().flat_map(|store| &store.rows);
        let (name, row) = rows.nth(index).expect("within the rows");
        let (name, holder) = (name.clone(), row.holder);
        if is_now {
            self.ledger.fault("evicted now");
            self.ledger.excused.insert(holder);
            self.store_mut(&name).rows.remove(&name);
            self.pass_on(&name, None);
        } else {
            self.ledger.fault("evicted marked");
            self.store_mut(&name).mark_evicted(&name);
        }
    }

    pub(super) fn poison(&mut self) {
        self.ledger.fault("poisoned id");
        let index = self.rng.usize(..self.names.len());
        let name = self.names[index].clone();
        self.store_mut(&name).poisoned.insert(name);
    }

    /// From now on nothing fails any more, but for the ids that are poisoned.
    pub(super) fn faults_end(&mut self) {
        self.outages.fill(None);
        let rows = self.stores.iter().flat_map(|store| &store.rows);
        let rows: Vec<_> = rows.map(|(name, row)| (name.clone(), row.holder)).collect();
        for (name, holder) in rows {
            self.watch_cleaning(&name, holder);
        }
    }

    pub(super) fn is_wild(&self) -> bool {
        self.plan.weather == Weather::WildClock
    }
}
