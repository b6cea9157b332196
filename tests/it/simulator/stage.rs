//! Where the processes meet: the network between them and the store, and what really happens there.

use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use leasehold::store::Renewal;
use leasehold::term::Instant;
use leasehold::{Holder, Name, Token};

use super::ledger::{Guard, Ledger, Promise};
use super::plan::{Plan, Shape, Weather};
use super::planted::Bug;
use super::store::{ModelStore, Taken, Verdict};
use super::time::{Agenda, Drifting, Real, nanos};

/// The store's wall clock begins in 2025.
const WALL: u64 = 1_735_689_600_000_000_000;
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
    /// What nobody holds must be gone.
    Clean(Name, Holder, Real),
    /// The world does something to somebody.
    Disturb(Disturbance),
}

/// What happens to a process.
#[derive(Debug, Clone)]
pub(super) enum Happening {
    /// The loop's timer, or somebody, wakes the loop; stale if another wake was planned since.
    Wake(u32),
    /// The reply to a call.
    Reply(usize, Rc<Reply>),
    /// A call's time is over.
    GiveUp(usize),
    /// The user does something with one of the slots; stale if the slot has moved on.
    Act(usize, u32, Act),
    /// The deadline of this slot's lease has come, perhaps.
    Due(usize, u32),
}

/// What a user does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Act {
    Claim,
    AskAgain,
    DropTheClaim,
    Check,
    Progress,
    Leave,
    DropTheRelease,
}

/// What goes wrong at some moment.
#[derive(Debug, Clone, Copy)]
pub(super) enum Disturbance {
    OutageBegins(Outage, Duration),
    Pause(usize, Duration),
    Resume(usize),
    Crash(usize),
    Shutdown(usize),
    RestartEmpty,
    EvictNow,
    EvictMarked,
    Poison(Duration),
    Heal,
    StepServer { forward: bool, by: Duration },
    StepClient(usize, Duration),
    EndOfFaults,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outage {
    /// Requests or replies vanish.
    BlackHole,
    /// Everything fails at once.
    Failing,
    /// The server stands still, and does then what it was asked.
    Hanging,
}

#[derive(Debug)]
pub(super) struct Request {
    from: (usize, u32),
    call: usize,
    body: Body,
    /// How long the reply travels; nothing if it is lost.
    reply_after: Option<u64>,
    is_failing: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Body {
    Acquire {
        name: Name,
        holder: Holder,
        ttl: Duration,
        floor: Option<Token>,
    },
    Renew(Rc<Vec<Renewal>>),
    Release {
        name: Name,
        holder: Holder,
        keep_for: Option<Duration>,
    },
}

#[derive(Debug)]
pub(super) enum Reply {
    Granted(Token),
    Held(Duration),
    Renewed(Vec<Verdict>, Duration),
    Released,
    Failed,
}

pub(super) struct Stage {
    pub(super) now: Real,
    pub(super) rng: Rng,
    pub(super) plan: Plan,
    pub(super) agenda: Agenda<Event>,
    pub(super) store: ModelStore,
    pub(super) ledger: Ledger,
    pub(super) clocks: Vec<Drifting>,
    pub(super) names: Vec<Name>,
    outage: Option<(Outage, Real)>,
    is_trace: bool,
}

impl Stage {
    pub(super) fn new(seed: u64, shape: Shape, bug: Option<Bug>, is_trace: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let plan = Plan::draw(seed, shape, bug, &mut rng);
        let clocks = plan.client_rates.iter().enumerate();
        let clocks = clocks.map(|(id, rate)| Drifting::new(BOOT * (1 + id as u64), *rate));
        let names = (0..plan.names).map(|index| Name::new(format!("n{index}")));
        Self {
            now: 0,
            agenda: Agenda::new(),
            store: ModelStore::new(Drifting::new(WALL, plan.server_rate), bug),
            ledger: Ledger::default(),
            clocks: clocks.collect(),
            names: names.map(|name| name.expect("valid")).collect(),
            outage: None,
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

    fn chance(&mut self, of_a_thousand: u32) -> bool {
        !self.is_ending() && of_a_thousand > 0 && self.rng.u32(..1_000) < of_a_thousand
    }

    pub(super) fn outage_begins(&mut self, outage: Outage, lasts: Duration) {
        self.outage = Some((outage, self.now + nanos(lasts)));
    }

    /// Puts a request on its way, or loses it.
    pub(super) fn send(&mut self, from: (usize, u32), call: usize, body: &Body, put_off: u64) {
        let travel = |stage: &mut Self| stage.rng.u64(50_000..1_500_000);
        let (mut there, mut back) = (Some(travel(self) + put_off), Some(travel(self)));
        let mut is_failing = false;
        match self.outage.filter(|(_, until)| self.now < *until) {
            Some((Outage::BlackHole, _)) if self.rng.bool() => there = None,
            Some((Outage::BlackHole, _)) => back = None,
            Some((Outage::Failing, _)) => is_failing = true,
            Some((Outage::Hanging, until)) => {
                there = there.map(|there| there + until - self.now);
            }
            None => {}
        }
        let odds = self.plan.odds;
        if self.chance(odds.lost) {
            self.ledger.fault("lost");
            *(if self.rng.bool() {
                &mut there
            } else {
                &mut back
            }) = None;
        }
        if self.chance(odds.failed) {
            self.ledger.fault("failed batch or call");
            is_failing = true;
        }
        for leg in [&mut there, &mut back] {
            if self.chance(odds.late) {
                self.ledger.fault("late and out of order");
                let by = self.within(self.plan.longer.ttl() * 3 / 2);
                *leg = leg.map(|leg| leg + by);
            }
        }
        let request = Rc::new(Request {
            from,
            call,
            body: body.clone(),
            reply_after: back,
            is_failing,
        });
        if let Some(there) = there {
            if self.chance(odds.duplicated) {
                self.ledger.fault("duplicated");
                let by = self.within(self.plan.timing.ttl());
                self.in_nanos(there + by, Event::Arrive(request.clone()));
            }
            self.in_nanos(there, Event::Arrive(request));
        }
    }

    /// Carries a request out.
    pub(super) fn arrive(&mut self, request: &Rc<Request>) {
        // A call that fails may have been carried out all the same.
        let is_done = !request.is_failing || self.rng.bool();
        let reply = if is_done {
            self.carry_out(&request.body)
        } else {
            Reply::Failed
        };
        self.note(|| {
            format!(
                "store: {:?} -> {reply:?} failing={}",
                request.body, request.is_failing
            )
        });
        let reply = if request.is_failing {
            Reply::Failed
        } else {
            reply
        };
        if let Some(after) = request.reply_after {
            let (process, life) = request.from;
            let reply = Happening::Reply(request.call, Rc::new(reply));
            self.in_nanos(after, Event::To(process, life, reply));
        }
    }

    fn carry_out(&mut self, body: &Body) -> Reply {
        match body {
            Body::Acquire {
                name,
                holder,
                ttl,
                floor,
            } => self.acquire(name, *holder, *ttl, *floor),
            Body::Renew(renewals) => {
                let verdicts = renewals.iter().map(|renewal| self.renew(renewal)).collect();
                let shown = self.store.clock.at(self.now);
                Reply::Renewed(verdicts, Duration::from_nanos(shown.as_nanos()))
            }
            Body::Release {
                name,
                holder,
                keep_for,
            } => self.release(name, *holder, *keep_for),
        }
    }

    fn acquire(
        &mut self,
        name: &Name,
        holder: Holder,
        ttl: Duration,
        floor: Option<Token>,
    ) -> Reply {
        match self.store.acquire(name, holder, ttl, floor, self.now) {
            Taken::Held(remaining) => Reply::Held(remaining),
            Taken::Again(token) => Reply::Granted(token),
            Taken::Fresh(token) => {
                let shown_us = self.store.clock.at(self.now).as_nanos() / 1_000;
                self.ledger
                    .check_token(self.now, name, holder, token, shown_us);
                self.watch_expiry(name);
                self.watch_cleaning(name, holder);
                Reply::Granted(token)
            }
        }
    }

    fn renew(&mut self, renewal: &Renewal) -> Verdict {
        let was_live = self.store.is_live(&renewal.name, renewal.holder, self.now);
        let verdict = self.store.renew(renewal, self.now);
        match verdict {
            Verdict::Renewed => {
                self.ledger.excused.remove(&renewal.holder);
                self.ledger.check(
                    Promise::NothingIsCreatedByARenewal,
                    self.now,
                    was_live,
                    || {
                        format!(
                            "a renewal of {} created the lease of {}",
                            renewal.holder, renewal.name
                        )
                    },
                );
            }
            Verdict::Refused | Verdict::Evicted => {
                self.ledger.refused.insert(renewal.holder);
            }
            Verdict::Unknown => {}
        }
        verdict
    }

    fn release(&mut self, name: &Name, holder: Holder, keep_for: Option<Duration>) -> Reply {
        let has_guard = self.ledger.guards.contains_key(&holder);
        self.ledger.check(
            Promise::NoReleaseWhileTheGuardIsThere,
            self.now,
            !has_guard,
            || format!("{name} was released under the guard of {holder}"),
        );
        if self.store.release(name, holder, keep_for, self.now) {
            self.watch_expiry(name);
            self.check_freed(name, holder);
        }
        Reply::Released
    }

    /// The store could grant this name to another from now on: then its holder must not be told yes.
    pub(super) fn check_freed(&mut self, name: &Name, holder: Holder) {
        let Some(guard) = self.ledger.guards.get(&holder) else {
            return;
        };
        let shown = self.shown(guard.process);
        let is_kept = self.ledger.excused.contains(&holder)
            || self.store.is_kept_for(name, holder, self.now)
            || !self.ledger.says_yes(holder, shown);
        self.ledger.check(
            Promise::NoYesWhileTheStoreCouldGrantToAnother,
            self.now,
            is_kept,
            || format!("{name} is free, but {holder} is told yes"),
        );
    }

    pub(super) fn watch_expiry(&mut self, name: &Name) {
        if let Some(row) = self.store.rows.get(name) {
            let at = self.store.clock.real_at(row.ends_at).max(self.now);
            self.agenda.add(at, Event::Expire(name.clone()));
        }
    }

    /// A row may have run out, or have been renewed since.
    pub(super) fn expire(&mut self, name: &Name) {
        let Some(row) = self.store.rows.get(name).copied() else {
            return;
        };
        if row.ends_at > self.store.clock.at(self.now) {
            self.watch_expiry(name);
        } else {
            self.store.rows.remove(name);
            self.check_freed(name, row.holder);
        }
    }

    /// If nobody holds this any more, it must be gone before long, as long as the store can be reached.
    pub(super) fn watch_cleaning(&mut self, name: &Name, holder: Holder) {
        let is_watched = self.is_ending() || self.plan.is_fair();
        let is_gone = is_watched && self.ledger.gone.contains_key(&holder);
        let row = self.store.row(name, self.now);
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
        let row = self.store.row(name, self.now);
        let is_same = row.is_some_and(|row| row.since == landed_at);
        let is_clean = !is_same || !self.store.is_live(name, holder, self.now);
        self.ledger
            .check(Promise::ADoubtfulClaimIsCleaned, self.now, is_clean, || {
                format!("{name} is still held by {holder}, whose guard is gone")
            });
    }

    pub(super) fn step_server(&mut self, forward: bool, by: Duration) {
        let is_wild = forward && by > self.plan.step_within_margin;
        self.ledger.fault(match (is_wild, forward) {
            (true, _) => "wild clock",
            (_, true) => "server clock forward, within the margin",
            (_, false) => "server clock back",
        });
        self.store.clock.step(self.now, forward, by);
        let rows: Vec<_> = self
            .store
            .rows
            .iter()
            .map(|(name, row)| (name.clone(), row.holder))
            .collect();
        for (name, holder) in rows {
            if is_wild {
                self.ledger.excused.insert(holder);
            }
            self.watch_expiry(&name);
        }
    }

    pub(super) fn restart_empty(&mut self) {
        self.ledger.fault("restart empty");
        let rows = self.store.rows.values();
        self.ledger.excused.extend(rows.map(|row| row.holder));
        self.store.restart_empty();
    }

    pub(super) fn evict(&mut self, is_now: bool) {
        let Some(index) = self.rng.usize(..).checked_rem(self.store.rows.len()) else {
            return;
        };
        let (name, row) = self.store.rows.iter().nth(index).expect("within the rows");
        let (name, holder) = (name.clone(), row.holder);
        if is_now {
            self.ledger.fault("evicted now");
            self.ledger.excused.insert(holder);
            self.store.rows.remove(&name);
        } else {
            self.ledger.fault("evicted marked");
            self.store.mark_evicted(&name);
        }
    }

    pub(super) fn poison(&mut self) {
        self.ledger.fault("poisoned key");
        let index = self.rng.usize(..self.names.len());
        self.store.poisoned.insert(self.names[index].clone());
    }

    /// From now on nothing fails any more, but for the keys that are poisoned.
    pub(super) fn faults_end(&mut self) {
        self.outage = None;
        let rows: Vec<_> = self
            .store
            .rows
            .iter()
            .map(|(name, row)| (name.clone(), row.holder))
            .collect();
        for (name, holder) in rows {
            self.watch_cleaning(&name, holder);
        }
    }

    pub(super) fn is_wild(&self) -> bool {
        self.plan.weather == Weather::WildClock
    }
}
