//! Permits, shared and exclusive leases against a reference counter: many callers, each led by the real
//! [`take`](super::taking), over a store of leases with a queue at the door. Seeded, in virtual milliseconds.
//!
//! Requests and answers are late or lost, and a claim may be carried out long after its caller gave it up. Callers
//! pause and die at any step. What must hold at every moment:
//! - no permit has two holders that believe in it, and there are never more than the greatest number that was asked
//!   for;
//! - no reader believes in its share while a writer believes that it is alone;
//! - no caller that came after a waiter had queued is served before it;
//! - each waiter that is neither paused nor dead is served in the end.
//!
//! That each broken rule of [`take`](super::taking) is found here, rows of `tests/mutants/table.toml` show.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fastrand::Rng;
use leasehold::internals::taking::Access;

use super::taking::{TakeAnswer, TakeStep, Taking};
use super::time::Agenda;

const TTL: u64 = 1_000;
const MARGIN: u64 = 50;
/// The limit of a request.
const LIMIT: u64 = 200;
/// How long a client of the queue counts as alive.
const FORGOTTEN_AFTER: u64 = 700;
/// After so long a waiter must have been served: many times what all others hold and the dead keep.
const STARVED: u64 = 60_000;
const END: u64 = 120_000;
const DOOR: u16 = 0;

#[derive(Debug, Clone)]
enum Request {
    Claim {
        name: u16,
        holder: u64,
        is_queued: bool,
    },
    Check(Vec<u16>),
    Release {
        name: u16,
        holder: u64,
    },
    Renew {
        name: u16,
        holder: u64,
        sent_at: u64,
    },
}

#[derive(Debug, Clone)]
enum Answer {
    Claimed(bool),
    Free(Vec<u16>),
    Released(bool),
    Renewed { holder: u64, until: Option<u64> },
}

#[derive(Debug, Clone)]
enum Event {
    /// A request reaches the store.
    Arrives(usize, u64, Request),
    Answered(usize, u64, Answer),
    /// The limit of a request.
    TimedOut(usize, u64),
    /// The caller goes on by itself.
    Wakes(usize, u64),
    Renews(usize, u64),
}

/// A lease as its holder sees it.
#[derive(Debug, Clone)]
struct Own {
    name: u16,
    holder: u64,
    deadline: u64,
    /// An attempt of its claim had no answer.
    is_doubtful: bool,
}

#[derive(Debug)]
struct Caller {
    access: Access,
    waits: bool,
    found_taken: bool,
    taking: Option<Taking>,
    step: TakeStep,
    /// Answers to another turn come too late.
    turn: u64,
    sent_at: u64,
    claim: Option<Own>,
    permit: Option<Own>,
    door: Option<Own>,
    /// Permits that the checks of this step still have to show, and answers still to come.
    unseen: BTreeSet<u16>,
    is_done: bool,
    began_at: u64,
    /// Since when it is served by its place in the order.
    since: u64,
    queued_at: Option<u64>,
    paused_until: u64,
    is_dead: bool,
}

struct Leased {
    holder: u64,
    ends_at: u64,
    by: usize,
}

/// A client's place in the queue of the door.
#[derive(Debug)]
struct Place {
    by: usize,
    /// When it was last heard of.
    seen: u64,
    since: u64,
}

struct Pool {
    rng: Rng,
    now: u64,
    agenda: Agenda<Event>,
    leases: BTreeMap<u16, Leased>,
    queue: VecDeque<Place>,
    callers: Vec<Caller>,
    last_id: u64,
    served: u64,
    violation: Option<String>,
}

impl Caller {
    fn new(access: Access) -> Self {
        Self {
            access,
            waits: true,
            found_taken: false,
            taking: None,
            step: TakeStep::Refused,
            turn: 0,
            sent_at: 0,
            claim: None,
            permit: None,
            door: None,
            unseen: BTreeSet::new(),
            is_done: false,
            began_at: 0,
            since: 0,
            queued_at: None,
            paused_until: 0,
            is_dead: false,
        }
    }

    fn is_writer(&self) -> bool {
        self.access == Access::Exclusive
    }

    fn believes(&self, now: u64) -> Option<u16> {
        let own = if self.is_writer() {
            &self.door
        } else {
            &self.permit
        };
        let own = own
            .as_ref()
            .filter(|own| self.is_done && now < own.deadline)?;
        Some(own.name)
    }

    fn owns(&mut self, holder: u64) -> Option<&mut Own> {
        let all = [&mut self.permit, &mut self.door];
        all.into_iter().flatten().find(|own| own.holder == holder)
    }
}

impl Pool {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let callers = match rng.bool() {
            true => {
                let count = rng.u16(1..=3);
                let grown = count + u16::from(rng.bool());
                let number = rng.usize(2..=5);
                let accesses = (0..number).map(|caller| match caller % 2 {
                    0 => Access::Permit(count),
                    _ => Access::Permit(grown),
                });
                accesses.collect::<Vec<_>>()
            }
            false => {
                let readers = rng.usize(1..=3);
                let writers = rng.usize(1..=2);
                let reader = [Access::Shared, Access::SharedFenced];
                let readers: Vec<_> = (0..readers)
                    .map(|_| reader[usize::from(rng.u8(..4) == 0)])
                    .collect();
                readers
                    .into_iter()
                    .chain((0..writers).map(|_| Access::Exclusive))
                    .collect()
            }
        };
        let mut pool = Self {
            rng,
            now: 1,
            agenda: Agenda::new(),
            leases: BTreeMap::new(),
            queue: VecDeque::new(),
            callers: callers.into_iter().map(Caller::new).collect(),
            last_id: 0,
            served: 0,
            violation: None,
        };
        for caller in 0..pool.callers.len() {
            let at = pool.rng.u64(1..500);
            pool.push(at, Event::Wakes(caller, 0));
        }
        pool
    }

    fn id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn push(&mut self, after: u64, event: Event) {
        self.agenda.add(self.now + after, event);
    }

    fn run(mut self) -> Self {
        while let Some((at, event)) = self.agenda.next() {
            if at > END || self.violation.is_some() {
                break;
            }
            self.now = at;
            self.happens(event);
            self.check();
        }
        self
    }

    fn happens(&mut self, event: Event) {
        let (caller, turn) = match &event {
            Event::Arrives(caller, turn, request) => {
                let (caller, turn) = (*caller, *turn);
                let answer = self.carry_out(caller, request.clone());
                if self.rng.u16(..300) > 0 {
                    let after = self.delay();
                    self.push(after, Event::Answered(caller, turn, answer));
                }
                return;
            }
            Event::Answered(caller, turn, _)
            | Event::TimedOut(caller, turn)
            | Event::Wakes(caller, turn)
            | Event::Renews(caller, turn) => (*caller, *turn),
        };
        let state = &self.callers[caller];
        if state.is_dead {
            return;
        }
        if state.paused_until > self.now {
            let after = state.paused_until - self.now;
            return self.push(after, event);
        }
        if self.rng.u16(..400) == 0 {
            // Through all of its leases, or only through a check.
            let paused = self.rng.u64(1..2 * TTL);
            self.callers[caller].paused_until = self.now + paused;
            self.callers[caller].queued_at = None;
            return self.push(paused, event);
        }
        if self.rng.u16(..4_000) == 0
            && self.callers.iter().filter(|caller| !caller.is_dead).count() > 1
        {
            self.callers[caller].is_dead = true;
            return;
        }
        let is_current = turn == self.callers[caller].turn;
        match event {
            Event::Answered(_, _, Answer::Renewed { holder, until }) => {
                self.renewed(caller, holder, until)
            }
            Event::Answered(_, _, answer) if is_current => self.answered(caller, answer),
            Event::TimedOut(..) if is_current => self.timed_out(caller),
            Event::Wakes(..) if is_current => self.wakes(caller),
            Event::Renews(_, holder) => self.renew(caller, holder),
            _ => {}
        }
    }

    /// Mostly short; sometimes longer than any caller waits.
    fn delay(&mut self) -> u64 {
        match self.rng.u16(..300) {
            0 => self.rng.u64(1..3 * TTL),
            1..10 => self.rng.u64(1..LIMIT),
            _ => self.rng.u64(1..6),
        }
    }

    fn send(&mut self, caller: usize, request: Request) {
        let turn = self.callers[caller].turn;
        if self.rng.u16(..300) > 0 {
            let after = self.delay();
            self.push(after, Event::Arrives(caller, turn, request.clone()));
        }
        if matches!(request, Request::Claim { .. }) && self.rng.u8(..60) == 0 {
            let after = self.rng.u64(1..4 * TTL);
            self.push(after, Event::Arrives(caller, 0, request));
        }
    }

    // What the store does.

    fn leased(&mut self, name: u16) -> Option<&Leased> {
        let now = self.now;
        // Who is not heard of in time has lost its turn.
        let ended = |lease: &Leased| lease.ends_at <= now;
        let gone: Vec<u16> = self
            .leases
            .iter()
            .filter(|(_, lease)| ended(lease))
            .map(|(name, _)| *name)
            .collect();
        for name in gone {
            let by = self.leases.remove(&name).expect("it was found").by;
            if name == DOOR {
                self.callers[by].queued_at = None;
            }
        }
        while let Some(dead) = self
            .queue
            .iter()
            .position(|place| place.seen + FORGOTTEN_AFTER <= now)
        {
            let Place { by, .. } = self.queue.remove(dead).expect("it was found");
            self.callers[by].queued_at = None;
        }
        self.leases.get(&name)
    }

    fn carry_out(&mut self, by: usize, request: Request) -> Answer {
        let now = self.now;
        match request {
            Request::Claim {
                name,
                holder,
                is_queued,
            } => Answer::Claimed(self.claim(by, name, holder, is_queued)),
            Request::Check(names) => {
                let is_free = |name: &u16| self.is_free(*name);
                Answer::Free(names.into_iter().filter(is_free).collect())
            }
            Request::Release { name, holder } => {
                let is_held = self
                    .leased(name)
                    .is_some_and(|lease| lease.holder == holder);
                if is_held {
                    self.leases.remove(&name);
                }
                if name == DOOR {
                    self.callers[by].queued_at = None;
                }
                Answer::Released(is_held)
            }
            Request::Renew {
                name,
                holder,
                sent_at,
            } => {
                let is_held = self
                    .leased(name)
                    .is_some_and(|lease| lease.holder == holder);
                if is_held {
                    self.leases.get_mut(&name).expect("it is held").ends_at = now + TTL;
                }
                Answer::Renewed {
                    holder,
                    until: is_held.then_some(sent_at + TTL - MARGIN),
                }
            }
        }
    }

    fn claim(&mut self, by: usize, name: u16, holder: u64, is_queued: bool) -> bool {
        let now = self.now;
        let other = self
            .leased(name)
            .is_some_and(|lease| lease.holder != holder);
        if name == DOOR && is_queued {
            match self.queue.iter_mut().find(|place| place.by == by) {
                Some(place) => place.seen = now,
                None => {
                    self.queue.push_back(Place {
                        by,
                        seen: now,
                        since: now,
                    });
                    let caller = &mut self.callers[by];
                    if matches!(caller.step, TakeStep::TakeDoor) && caller.paused_until <= now {
                        caller.queued_at.get_or_insert(now);
                    }
                }
            }
        }
        let is_turn = name != DOOR || self.queue.front().is_none_or(|first| first.by == by);
        let is_granted = !other && is_turn;
        if is_granted {
            if name == DOOR
                && let Some(place) = self.queue.iter().position(|place| place.by == by)
            {
                // Its client may have had the place since an earlier acquisition.
                let place = self.queue.remove(place).expect("it was found");
                let caller = &mut self.callers[by];
                caller.since = caller.since.min(place.since);
            }
            self.leases.insert(
                name,
                Leased {
                    holder,
                    ends_at: now + TTL,
                    by,
                },
            );
        }
        is_granted
    }

    fn is_free(&mut self, name: u16) -> bool {
        let has_queue = name == DOOR && {
            self.leased(name);
            !self.queue.is_empty()
        };
        !has_queue && self.leased(name).is_none()
    }

    // What a caller does.

    fn wakes(&mut self, caller: usize) {
        let state = &self.callers[caller];
        match (state.is_done, &state.taking, state.step) {
            (true, ..) => self.ends(caller),
            (false, None, _) => self.begins(caller),
            (false, Some(_), TakeStep::TakeDoor | TakeStep::AwaitFree) => self.send_step(caller),
            _ => {}
        }
    }

    fn begins(&mut self, caller: usize) {
        let access = self.callers[caller].access;
        let waits = self.rng.u8(..4) > 0;
        let guesses = self.rng.choose_multiple(1..=access.permits().min(8), 2);
        let now = self.now;
        let state = &mut self.callers[caller];
        let (taking, step) = Taking::begin(access, waits, state.found_taken, guesses);
        (state.taking, state.waits) = (Some(taking), waits);
        (state.began_at, state.since, state.queued_at) = (now, now, None);
        self.goes_on(caller, step);
    }

    fn hears(&mut self, caller: usize, answer: TakeAnswer) {
        let taking = self.callers[caller].taking.as_mut().expect("it is taking");
        let step = taking.hear(answer);
        self.goes_on(caller, step);
    }

    fn goes_on(&mut self, caller: usize, step: TakeStep) {
        let turn = self.id();
        let now = self.now;
        let state = &mut self.callers[caller];
        (state.turn, state.step, state.claim) = (turn, step, None);
        match step {
            TakeStep::Done => {
                state.is_done = true;
                self.notes_service(caller);
                let hold = self.rng.u64(1..TTL * 2);
                self.push(hold, Event::Wakes(caller, turn));
            }
            TakeStep::Refused => {
                state.taking = None;
                let pause = self.rng.u64(1..300);
                self.push(pause, Event::Wakes(caller, turn));
            }
            _ => {
                state.sent_at = now;
                self.send_step(caller);
            }
        }
    }

    fn send_step(&mut self, caller: usize) {
        let holder = self.id();
        let now = self.now;
        let state = &mut self.callers[caller];
        state.sent_at = now;
        let turn = state.turn;
        match state.step {
            TakeStep::CheckDoor => self.send(caller, Request::Check(vec![DOOR])),
            TakeStep::Claim(name) => {
                state.claim = Some(Own {
                    name,
                    holder,
                    deadline: now + TTL - MARGIN,
                    is_doubtful: false,
                });
                let is_queued = false;
                let claim = Request::Claim {
                    name,
                    holder,
                    is_queued,
                };
                self.send(caller, claim);
            }
            TakeStep::TakeDoor => return self.claim_door(caller, holder),
            TakeStep::Survey | TakeStep::AwaitFree => return self.checks(caller),
            TakeStep::GiveBack => {
                let Own { name, holder, .. } = state.permit.take().expect("it was granted");
                self.send(caller, Request::Release { name, holder });
            }
            TakeStep::LeaveDoor => {
                let holder = state.door.as_ref().expect("it was granted").holder;
                self.send(caller, Request::Release { name: DOOR, holder });
            }
            TakeStep::Done | TakeStep::Refused => unreachable!("these send nothing"),
        }
        self.push(LIMIT, Event::TimedOut(caller, turn));
    }

    /// Each attempt is a turn of its own: an answer counts for its own attempt only.
    fn claim_door(&mut self, caller: usize, attempt: u64) {
        let now = self.now;
        let state = &mut self.callers[caller];
        let is_queued = state.waits;
        state.turn = attempt;
        let own = Own {
            name: DOOR,
            holder: attempt,
            deadline: 0,
            is_doubtful: false,
        };
        let own = state.claim.get_or_insert(own);
        own.deadline = now + TTL - MARGIN;
        let holder = own.holder;
        let claim = Request::Claim {
            name: DOOR,
            holder,
            is_queued,
        };
        self.send(caller, claim);
        self.push(LIMIT, Event::TimedOut(caller, attempt));
    }

    /// In some parts, each of which is carried out at its own time.
    fn checks(&mut self, caller: usize) {
        let state = &mut self.callers[caller];
        let (turn, permits) = (state.turn, state.access.permits());
        if state.unseen.is_empty() {
            state.unseen = (1..=permits).collect();
        }
        let all: Vec<u16> = state.unseen.iter().copied().collect();
        let parts = self.rng.usize(1..=3);
        for part in all.chunks(all.len().div_ceil(parts)) {
            self.send(caller, Request::Check(part.to_vec()));
        }
        let again = self.rng.u64(20..LIMIT / 2);
        self.push(again, Event::Wakes(caller, turn));
        if self.callers[caller].step == TakeStep::Survey {
            self.push(LIMIT, Event::TimedOut(caller, turn));
        }
    }

    fn seen(&mut self, caller: usize, free: Vec<u16>) {
        let now = self.now;
        let state = &mut self.callers[caller];
        if state.door.as_ref().is_some_and(|door| now >= door.deadline) {
            state.door = None;
            state.unseen.clear();
            return self.hears(caller, TakeAnswer::DoorLost);
        }
        if free.is_empty() && state.step == TakeStep::AwaitFree {
            return;
        }
        state.unseen.retain(|permit| !free.contains(permit));
        self.hears(caller, TakeAnswer::Free(free));
    }

    fn door_is(&mut self, caller: usize, is_free: bool) {
        let now = self.now;
        let state = &mut self.callers[caller];
        state.found_taken = !is_free;
        let is_permit_held = state
            .permit
            .as_ref()
            .is_some_and(|permit| now < permit.deadline);
        self.hears(
            caller,
            TakeAnswer::Door {
                is_free,
                is_permit_held,
            },
        );
    }

    fn answered(&mut self, caller: usize, answer: Answer) {
        let now = self.now;
        let state = &mut self.callers[caller];
        match (state.step, answer) {
            (TakeStep::CheckDoor, Answer::Free(free)) => self.door_is(caller, !free.is_empty()),
            (TakeStep::Claim(_), Answer::Claimed(is_granted)) => {
                let claim = state.claim.take();
                match claim.filter(|own| is_granted && now < own.deadline) {
                    Some(own) => {
                        self.begin_renewals(caller, &own);
                        self.callers[caller].permit = Some(own);
                        self.hears(caller, TakeAnswer::Granted);
                    }
                    None => self.hears(caller, TakeAnswer::Taken),
                }
            }
            (TakeStep::TakeDoor, Answer::Claimed(is_granted)) => {
                self.door_claimed(caller, is_granted)
            }
            (TakeStep::Survey | TakeStep::AwaitFree, Answer::Free(free)) => self.seen(caller, free),
            (TakeStep::GiveBack, Answer::Released(_)) => self.hears(caller, TakeAnswer::GaveBack),
            (TakeStep::LeaveDoor, Answer::Released(is_held)) => {
                let door = state.door.take().expect("it was granted");
                let was_held = is_held && now < door.deadline && !door.is_doubtful;
                self.door_left(caller, was_held);
            }
            _ => {}
        }
    }

    fn door_claimed(&mut self, caller: usize, is_granted: bool) {
        let now = self.now;
        let state = &mut self.callers[caller];
        let turn = state.turn;
        let claim = state
            .claim
            .clone()
            .filter(|own| is_granted && now < own.deadline);
        match (claim, state.waits) {
            (Some(own), _) => {
                self.begin_renewals(caller, &own);
                let state = &mut self.callers[caller];
                state.door = Some(own);
                state.unseen.clear();
                self.hears(caller, TakeAnswer::DoorGranted);
            }
            (None, true) => {
                let again = self.rng.u64(50..150);
                self.push(again, Event::Wakes(caller, turn));
            }
            (None, false) => {
                state.found_taken = true;
                self.hears(caller, TakeAnswer::DoorTaken);
            }
        }
    }

    fn door_left(&mut self, caller: usize, was_held: bool) {
        let now = self.now;
        let state = &mut self.callers[caller];
        state.door = None;
        let is_permit_held = state
            .permit
            .as_ref()
            .is_some_and(|permit| now < permit.deadline);
        self.hears(
            caller,
            TakeAnswer::DoorLeft {
                was_held,
                is_permit_held,
            },
        );
    }

    fn timed_out(&mut self, caller: usize) {
        let state = &mut self.callers[caller];
        if self.now < state.sent_at + LIMIT {
            return;
        }
        match state.step {
            TakeStep::TakeDoor if state.waits => {
                if let Some(own) = &mut state.claim {
                    own.is_doubtful = true;
                }
                state.queued_at = None;
                self.send_step(caller);
            }
            TakeStep::GiveBack => self.hears(caller, TakeAnswer::GaveBack),
            TakeStep::LeaveDoor => self.door_left(caller, false),
            TakeStep::AwaitFree | TakeStep::Done | TakeStep::Refused => {}
            // As after an error of the store: all is given up.
            _ => self.ends(caller),
        }
    }

    /// Releases everything, and begins again later.
    fn ends(&mut self, caller: usize) {
        let turn = self.id();
        let state = &mut self.callers[caller];
        let all = [state.permit.take(), state.door.take(), state.claim.take()];
        (state.turn, state.taking, state.is_done, state.queued_at) = (turn, None, false, None);
        state.unseen.clear();
        for Own { name, holder, .. } in all.into_iter().flatten() {
            self.send(caller, Request::Release { name, holder });
        }
        let pause = self.rng.u64(1..400);
        self.push(pause, Event::Wakes(caller, turn));
    }

    fn begin_renewals(&mut self, caller: usize, own: &Own) {
        self.push(TTL / 3, Event::Renews(caller, own.holder));
    }

    fn renew(&mut self, caller: usize, holder: u64) {
        let now = self.now;
        let Some(own) = self.callers[caller].owns(holder) else {
            return;
        };
        if now < own.deadline {
            let name = own.name;
            self.send(
                caller,
                Request::Renew {
                    name,
                    holder,
                    sent_at: now,
                },
            );
            self.push(TTL / 8, Event::Renews(caller, holder));
        }
    }

    fn renewed(&mut self, caller: usize, holder: u64, until: Option<u64>) {
        let now = self.now;
        if let Some(own) = self.callers[caller].owns(holder) {
            match until {
                Some(until) if now < own.deadline => own.deadline = own.deadline.max(until),
                Some(_) => {}
                None => own.deadline = 0,
            }
        }
    }

    // What must hold.

    fn notes_service(&mut self, served: usize) {
        self.served += 1;
        let now = self.now;
        let since = self.callers[served].since;
        self.callers[served].queued_at = None;
        let overtaken = self.callers.iter().position(|caller| {
            !caller.is_dead
                && caller.paused_until <= now
                && caller.queued_at.is_some_and(|queued_at| queued_at < since)
        });
        if let Some(overtaken) = overtaken {
            self.fail(format!(
                "{served} came after {overtaken} had queued, and was served before"
            ));
        }
    }

    fn check(&mut self) {
        let now = self.now;
        let mut held = BTreeSet::new();
        let (mut readers, mut writers) = (0, 0);
        for caller in &self.callers {
            match caller.believes(now) {
                Some(DOOR) => writers += 1,
                Some(permit) if !held.insert(permit) => {
                    return self.fail(format!("two hold permit {permit}"));
                }
                Some(_) => readers += 1,
                None => {}
            }
        }
        let most = self
            .callers
            .iter()
            .map(|caller| caller.access.permits())
            .max();
        if writers > 1 || writers == 1 && readers > 0 {
            return self.fail(format!("{writers} writers and {readers} readers"));
        }
        if readers > usize::from(most.unwrap_or_default()) {
            return self.fail(format!("{readers} hold permits"));
        }
        let starved = self.callers.iter().position(|caller| {
            let is_well = !caller.is_dead && caller.paused_until <= now && !caller.is_done;
            is_well && caller.taking.is_some() && caller.began_at + STARVED < now
        });
        if let Some(starved) = starved {
            self.fail(format!("{starved} is never served"));
        }
    }

    fn fail(&mut self, what: String) {
        let holders: Vec<_> = self
            .leases
            .iter()
            .map(|(name, lease)| (name, lease.by))
            .collect();
        self.violation = Some(format!(
            "at {}: {what}; the store has {holders:?}",
            self.now
        ));
    }
}

/// Runs this many schedules, each of which keeps every rule.
pub(crate) fn pools(count: u64) {
    let mut served = 0;
    for seed in 0..count {
        let pool = Pool::new(seed).run();
        assert!(
            pool.violation.is_none(),
            "seed {seed}: {}",
            pool.violation.unwrap()
        );
        served += pool.served;
    }
    println!("{count} schedules, {served} served");
    assert!(
        served > count * 20,
        "too few were served for the rules to be tested"
    );
}

#[test]
fn three_hundred_schedules_of_permits_and_shared_names_keep_every_rule() {
    pools(300);
}
