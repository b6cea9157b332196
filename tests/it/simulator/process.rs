//! One process: the core, and the loop around it as the watchdog's task has it, without a runtime.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use leasehold::ClientId;
use leasehold::clock::Instant;
use leasehold::internals::RenewalStats;
use leasehold::internals::claiming::Asked;
use leasehold::internals::registry::Registry;
use leasehold::internals::schedule::{
    BATCHES_IN_FLIGHT, Batch, Leaving, Loss, RELEASES_IN_FLIGHT, Schedule, Work,
};
use leasehold::internals::signal::Signal;
use leasehold::store::{Facts, Outcome, Renewed, ServerTime};
use leasehold::{Error, ErrorKind, Holder, LossReason, Name, Token};

use super::ledger::Promise;
use super::network::{Body, Reply, release_in};
use super::plan::Weather;
use super::slot::Slot;
use super::stage::{Event, Happening, Stage};
use super::store::Verdict;
use super::turns::Subscription;
use super::world::HUNG;

/// How many nanoseconds after a wake the loop turns.
const WAKES_WITHIN: Range<u64> = 1_000..200_000;

pub(super) struct Process {
    pub(super) id: usize,
    /// Counts its crashes: what was meant for an earlier life is lost.
    pub(super) life: u32,
    pub(super) client: ClientId,
    pub(super) schedule: Schedule,
    pub(super) slots: Vec<Slot>,
    /// Its users that wait, and what it hears of.
    pub(super) registry: Registry,
    pub(super) subscription: Arc<Subscription>,
    /// The subscription that it last heard of, of each server.
    pub(super) epochs: HashMap<usize, u32>,
    pub(super) floors: HashMap<Name, Token>,
    /// What happened while it was paused; none while it runs.
    pub(super) inbox: Option<Vec<Happening>>,
    pub(super) is_shut_down: bool,
    by_signal: HashMap<*const Signal, (usize, Holder)>,
    pub(super) calls: Vec<Option<Call>>,
    /// Batches and releases in flight, of each server.
    in_flight: Vec<(usize, usize)>,
    wake: u32,
}

/// What a reply is waited for.
pub(super) enum Call {
    Claim {
        slot: usize,
        version: u32,
        asked: Asked,
        /// Until when an earlier attempt may be carried out.
        before: Option<Instant>,
    },
    Renew(Batch),
    /// A batch that was overdue: its reply counts late.
    Late(Batch),
    /// A release of the loop's.
    Release(Leaving),
    /// A release of the user's: reported, unless its future was dropped.
    Farewell {
        slot: usize,
        version: u32,
    },
}

impl Process {
    pub(super) fn new(id: usize, life: u32, slots: Vec<Slot>, stage: &mut Stage) -> Self {
        let client = ClientId::from_u128(stage.rng.u128(..));
        let subscription = Arc::<Subscription>::default();
        let mut registry = Registry::new(client, Facts::new("model").with_queue());
        let listening = registry.begin_listening(None);
        let (listening, _) = listening.expect("nobody listens so far");
        registry.start_notices(&listening, subscription.clone());
        Self {
            id,
            life,
            client,
            registry,
            subscription,
            epochs: HashMap::new(),
            schedule: Schedule::new(stage.rng.u64(..)),
            slots,
            floors: HashMap::new(),
            inbox: None,
            is_shut_down: false,
            by_signal: HashMap::new(),
            calls: Vec::new(),
            in_flight: vec![(0, 0); stage.stores.len()],
            wake: 0,
        }
    }

    pub(super) fn happen(&mut self, stage: &mut Stage, happening: Happening) {
        if let Some(inbox) = &mut self.inbox {
            inbox.push(happening);
            return;
        }
        match happening {
            Happening::Wake(version) if version == self.wake => self.turn(stage),
            Happening::Wake(_) => {}
            Happening::Reply(call, reply) => self.replied(stage, call, Some(&reply)),
            Happening::GiveUp(call) => self.replied(stage, call, None),
            Happening::Notice(server, epoch, notice) => self.heard(stage, server, epoch, notice),
            Happening::Overdue(call) => self.overdue(stage, call),
            Happening::Act(slot, version, act) => self.act(stage, slot, version, act),
            Happening::Due(slot, version) => self.check_told(stage, slot, version),
            Happening::UsedUp(slot, version) => self.check_limits(stage, slot, version),
        }
    }

    /// It runs again: what happened meanwhile is taken in, in any order.
    pub(super) fn resume(&mut self, stage: &mut Stage) {
        let Some(mut happened) = self.inbox.take() else {
            return;
        };
        stage.turns.resumes(self.client);
        // Whether the loop's timer or a reply comes first is open; whether anybody was told is looked at after both, and
        // after the loop was woken in between.
        stage.rng.shuffle(&mut happened);
        for happening in happened {
            match happening {
                Happening::Due(..) | Happening::UsedUp(..) => {
                    let check = Event::To(self.id, self.life, happening);
                    stage.in_nanos(WAKES_WITHIN.end, check);
                }
                happening => self.happen(stage, happening),
            }
        }
    }

    /// One turn of the loop, as the watchdog's task does it.
    fn turn(&mut self, stage: &mut Stage) {
        let now = stage.shown(self.id);
        let turn = self.schedule.turn(now, |name| stage.shard_of(name));
        let losses = self.schedule.take_effects().losses;
        let is_within_room = self.take_off(&turn);
        (stage.ledger).check_turn(stage.now, &turn, losses.len(), is_within_room);
        self.tell(stage, losses);
        for batch in turn.batches {
            self.send_batch(stage, batch);
        }
        for leaving in turn.releases {
            self.send_release(stage, leaving);
        }
        let next = self.schedule.next_wake();
        stage.note(|| {
            format!(
                "p{} turn now={now:?} next={next:?} in_flight={:?}",
                self.id, self.in_flight
            )
        });
        self.wake += 1;
        if next < Instant::FAR_FUTURE {
            // A timer is late by a little, but by less than the loop is armed early.
            let lag = stage.within(Duration::from_millis(3)) + 1;
            let at = stage.real_at(self.id, next) + lag;
            let wake = Happening::Wake(self.wake);
            stage.agenda.add(at, Event::To(self.id, self.life, wake));
        }
    }

    /// Counts what is in flight now. Answers whether there was room for it.
    fn take_off(&mut self, turn: &Work) -> bool {
        for batch in &turn.batches {
            self.in_flight[batch.shard as usize].0 += 1;
        }
        for leaving in &turn.releases {
            self.in_flight[leaving.shard as usize].1 += 1;
        }
        let mut in_flight = self.in_flight.iter();
        in_flight.all(|(batches, releases)| {
            *batches <= BATCHES_IN_FLIGHT && *releases <= RELEASES_IN_FLIGHT
        })
    }

    /// Does what the last change of the schedule asks for.
    pub(super) fn take_effects(&mut self, stage: &mut Stage) {
        let effects = self.schedule.take_effects();
        self.tell(stage, effects.losses);
        if effects.must_wake {
            self.wake += 1;
            let after = stage.rng.u64(WAKES_WITHIN);
            let wake = Happening::Wake(self.wake);
            stage.in_nanos(after, Event::To(self.id, self.life, wake));
        }
    }

    fn tell(&mut self, stage: &mut Stage, losses: Vec<Loss>) {
        for loss in losses {
            loss.signal.cancel();
            let (slot, holder) = self.by_signal[&Arc::as_ptr(&loss.signal)];
            let shown = stage.shown(self.id);
            stage.note(|| format!("p{} lost {holder} {}: {}", self.id, loss.name, loss.reason));
            stage.ledger.check_loss(stage.now, holder, &loss, shown);
            let by_itself = matches!(loss.reason, LossReason::MaxHold | LossReason::NoProgress);
            // The rest of a place's term may be shorter than a gust.
            let is_handed = (stage.ledger.guards.get(&holder)).is_some_and(|guard| guard.is_handed);
            let is_harmless = by_itself
                || is_handed
                || !stage.plan.is_fair()
                || stage.store(&loss.name).poisoned.contains(&loss.name);
            let lost = || format!("{} was lost: {}", loss.name, loss.reason);
            let promise = Promise::TransientFaultsLoseNothing;
            stage.ledger.check(promise, stage.now, is_harmless, lost);
            let is_harmless = by_itself
                || stage.plan.weather != Weather::OneServerHangs
                || stage.server_of(&loss.name) == HUNG;
            let promise = Promise::AHungServerDelaysNoOther;
            stage.ledger.check(promise, stage.now, is_harmless, lost);
            self.unwind(stage, slot);
        }
    }

    fn send_batch(&mut self, stage: &mut Stage, batch: Batch) {
        let renewals = Rc::new(batch.renewals.clone());
        let shown = stage.shown(self.id);
        for renewal in renewals.iter() {
            let (name, holder) = (&renewal.name, renewal.holder);
            stage.ledger.tried(stage.now, name, holder, shown);
        }
        let (overdue_at, awaited) = (batch.sent_at.after(batch.limit), batch.awaited);
        let overdue_at = stage.real_at(self.id, overdue_at);
        let overdue = Happening::Overdue(self.calls.len());
        (stage.agenda).add(overdue_at, Event::To(self.id, self.life, overdue));
        self.call(stage, Call::Renew(batch), &Body::Renew(renewals), awaited);
    }

    fn send_release(&mut self, stage: &mut Stage, leaving: Leaving) {
        stage.note(|| format!("p{} releases {leaving:?}", self.id));
        let (body, limit) = (Body::release(&leaving), leaving.limit);
        let call = Call::Release(leaving);
        self.call(stage, call, &body, limit);
    }

    /// Sends a request that has so much time: the store ends it then, or hangs and is given up half as much later.
    pub(super) fn call(&mut self, stage: &mut Stage, call: Call, body: &Body, limit: Duration) {
        let index = self.calls.len();
        self.calls.push(Some(call));
        let limit = if stage.rng.u8(..4) == 0 {
            limit + limit / 2
        } else {
            limit
        };
        let give_up = stage.real_at(self.id, stage.shown(self.id).after(limit));
        let give_up_event = Event::To(self.id, self.life, Happening::GiveUp(index));
        stage.agenda.add(give_up, give_up_event);
        stage.send((self.id, self.life), index, body);
    }

    /// A batch has no answer within its limit: its leases are renewed again beside it.
    fn overdue(&mut self, stage: &mut Stage, call: usize) {
        let Some(slot) = self.calls.get_mut(call) else {
            return;
        };
        match slot.take() {
            Some(Call::Renew(batch)) => {
                self.in_flight[batch.shard as usize].0 -= 1;
                let now = stage.shown(self.id);
                let _ = self.schedule.overdue(&batch, now);
                self.calls[call] = Some(Call::Late(batch));
                stage.ledger.fault("overdue batch");
                self.take_effects(stage);
            }
            other => self.calls[call] = other,
        }
    }

    /// A reply came, or the time for it is over. What comes after that is ignored.
    fn replied(&mut self, stage: &mut Stage, call: usize, reply: Option<&Reply>) {
        let Some(call) = self.calls.get_mut(call).and_then(Option::take) else {
            return;
        };
        let reply = reply.unwrap_or(&Reply::Failed);
        match call {
            Call::Claim {
                slot,
                version,
                asked,
                before,
            } => self.claim_replied(stage, (slot, version), asked, before, reply),
            Call::Renew(batch) => {
                self.in_flight[batch.shard as usize].0 -= 1;
                self.settle(stage, &batch, reply, Schedule::settle);
                self.turn(stage);
            }
            Call::Late(batch) => {
                self.settle(stage, &batch, reply, Schedule::settle_late);
                self.turn(stage);
            }
            Call::Release(leaving) => {
                self.in_flight[leaving.shard as usize].1 -= 1;
                let now = stage.shown(self.id);
                // The loop turns after each release that has ended.
                leaving.answered(&mut self.schedule, release_in(reply), now);
                self.turn(stage);
            }
            Call::Farewell { slot, version } => {
                self.farewell_replied(stage, (slot, version), reply);
            }
        }
    }

    fn settle(
        &mut self,
        stage: &mut Stage,
        batch: &Batch,
        reply: &Reply,
        settle: fn(&mut Schedule, &Batch, Renewed, Instant) -> RenewalStats,
    ) {
        let now = stage.shown(self.id);
        let (mut verdicts, server_time, read_at) = match reply {
            Reply::Renewed(verdicts, shown, at) => (verdicts.clone(), *shown, *at),
            _ => (Vec::new(), None, 0),
        };
        if server_time.is_some() && stage.rng.u32(..1_000) < stage.plan.odds.short {
            stage.ledger.fault("short answer");
            verdicts.truncate(verdicts.len() / 2);
        }
        let holders = batch.renewals.iter().map(|renewal| renewal.holder);
        let confirmed = holders.zip(&verdicts);
        let confirmed = confirmed.filter(|(_, verdict)| **verdict == Verdict::Renewed);
        let confirmed: Vec<Holder> = confirmed.map(|(holder, _)| holder).collect();
        for holder in &confirmed {
            stage.ledger.confirmed(*holder, batch.sent_at, now);
        }
        let mut reply = Renewed::new(verdicts.iter().map(outcome).collect());
        reply.server_time = server_time;
        let settled = settle(&mut self.schedule, batch, reply, now);
        if let Some(ServerTime { shard, .. }) = server_time {
            let server = shard as usize;
            stage.ledger.check_step(stage.now, settled.step);
            let hiding = &mut stage.ledger.hiding;
            let hidden_since = hiding.get(&(self.client, server)).copied();
            let is_hidden = hidden_since.is_some();
            if hidden_since.is_some_and(|since| batch.sent_at >= since) {
                hiding.remove(&(self.client, server));
            }
            if matches!(settled.step, Some(("forward", _))) && !is_hidden {
                stage.step_was_found(self.client, server, read_at);
            }
        }
        self.take_effects(stage);
        for holder in confirmed {
            stage.ledger.check_deadline(stage.now, holder);
        }
    }

    /// A lease whose deadline has come was told, unless it was renewed meanwhile.
    fn check_told(&mut self, stage: &mut Stage, slot: usize, version: u32) {
        if !self.slots[slot].is_at(version) {
            return;
        }
        let holder = self.slots[slot].holder();
        let signal = self.slots[slot].signal().clone();
        let shown = stage.shown(self.id);
        match signal.deadline() {
            Ok(deadline) if shown < deadline => self.watch_deadline(stage, slot, version, deadline),
            _ => {
                let is_told = signal.is_told();
                stage
                    .ledger
                    .check(Promise::EveryLossToldInTime, stage.now, is_told, || {
                        format!("{holder} is past its deadline and was not told")
                    });
            }
        }
    }

    pub(super) fn watch_deadline(
        &mut self,
        stage: &mut Stage,
        slot: usize,
        version: u32,
        deadline: Instant,
    ) {
        let at = stage.real_at(self.id, deadline);
        let due = Happening::Due(slot, version);
        stage.agenda.add(at, Event::To(self.id, self.life, due));
    }

    /// The loop's timer ends although nothing else happened: its clock has moved.
    pub(super) fn awoken(&mut self) {
        let wake = Happening::Wake(self.wake);
        self.inbox
            .iter_mut()
            .for_each(|inbox| inbox.push(wake.clone()));
    }

    /// Records the slot and the holder that this signal belongs to, for when a loss is told.
    pub(super) fn enrolled(&mut self, slot: usize, holder: Holder, signal: &Arc<Signal>) {
        self.by_signal.insert(Arc::as_ptr(signal), (slot, holder));
    }

    pub(super) fn shut_down(&mut self, stage: &mut Stage) {
        self.is_shut_down = true;
        self.schedule.close(LossReason::Shutdown);
        self.take_effects(stage);
        self.stop_waiting(stage);
    }
}

fn outcome(verdict: &Verdict) -> Outcome {
    match verdict {
        Verdict::Renewed => Outcome::Renewed,
        Verdict::Refused => Outcome::Refused,
        Verdict::Evicted => Outcome::Evicted,
        Verdict::Unknown => Outcome::Unknown(Error::new(ErrorKind::TimedOut, "no answer")),
    }
}
