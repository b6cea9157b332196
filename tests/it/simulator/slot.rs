//! A user: claims a name, works, asks whether it still has it, and leaves in one way or another. What leaving takes is the
//! core's to say.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{Instant, Timing};
use leasehold::internals::claiming::Claiming;
use leasehold::internals::schedule::{LeaseId, Leaving, Limits};
use leasehold::internals::signal::Signal;
use leasehold::{Holder, LossReason, Name};

use super::ledger::Gone;
use super::network::{Body, Reply, release_in};
use super::process::{Call, Process};
use super::stage::{Act, Event, Happening, Stage};
use super::turns::Waiter;

/// One user of a process.
pub(super) struct Slot {
    pub(super) name: Name,
    pub(super) timing: Timing,
    pub(super) limits: Limits,
    /// Counts its changes of phase: what was meant for an earlier one is stale.
    pub(super) version: u32,
    pub(super) phase: Phase,
    pub(super) waiter: Option<Waiter>,
}

/// What a user is about.
pub(super) enum Phase {
    Idle,
    /// It waits for its turn, and no claim is enrolled.
    Queued,
    Claiming(Claiming, Enrolled),
    Holding(LeaseId, Enrolled),
    /// Its own release is under way; then the request goes on whose grant it gives back.
    Leaving {
        leaving: Leaving,
        request: Option<Claiming>,
        enrolled: Enrolled,
    },
}

/// What is known of a claim or a lease beside the core.
#[derive(Clone)]
pub(super) struct Enrolled {
    pub(super) holder: Holder,
    pub(super) signal: Arc<Signal>,
    /// Until when an attempt without an answer may be carried out.
    pub(super) unanswered_until: Option<Instant>,
    /// When the last attempt was sent that was told of its place, and for how long that is kept.
    pub(super) place: Option<(Instant, Duration)>,
}

impl Slot {
    pub(super) fn new(name: Name, timing: Timing, limits: Limits) -> Self {
        Self {
            name,
            timing,
            limits,
            version: 0,
            phase: Phase::Idle,
            waiter: None,
        }
    }

    pub(super) fn is_at(&self, version: u32) -> bool {
        self.version == version
    }

    pub(super) fn holder(&self) -> Holder {
        self.enrolled().holder
    }

    pub(super) fn signal(&self) -> &Arc<Signal> {
        &self.enrolled().signal
    }

    pub(super) fn enrolled(&self) -> &Enrolled {
        match &self.phase {
            Phase::Claiming(_, enrolled) | Phase::Holding(_, enrolled) => enrolled,
            Phase::Leaving { enrolled, .. } => enrolled,
            Phase::Idle | Phase::Queued => panic!("an idle slot has no claim"),
        }
    }

    pub(super) fn becomes(&mut self, phase: Phase) -> u32 {
        self.phase = phase;
        self.version += 1;
        self.version
    }
}

impl Process {
    /// Plans what this slot does, unless it has moved on by then.
    pub(super) fn plan(&self, stage: &mut Stage, slot: usize, within: Duration, act: Act) {
        let after = stage.within(within) + 1_000;
        let act = Happening::Act(slot, self.slots[slot].version, act);
        stage.in_nanos(after, Event::To(self.id, self.life, act));
    }

    pub(super) fn act(&mut self, stage: &mut Stage, slot: usize, version: u32, act: Act) {
        if !self.slots[slot].is_at(version) {
            return;
        }
        match act {
            Act::Claim => self.claim(stage, slot),
            Act::AskAgain => self.ask(stage, slot),
            Act::Step => self.step(stage, slot),
            Act::DropTheClaim => self.give_claim_up(stage, slot),
            Act::Check => self.look(stage, slot),
            Act::Progress => self.progress(stage, slot),
            Act::Leave => self.leave(stage, slot),
            Act::DropTheRelease => self.drop_release(stage, slot),
        }
    }

    fn look(&mut self, stage: &mut Stage, slot: usize) {
        if !matches!(self.slots[slot].phase, Phase::Holding(..)) {
            return;
        }
        let holder = self.slots[slot].holder();
        let now = stage.shown(self.id);
        let is_held = self.slots[slot].signal().check(now).is_ok();
        stage.ledger.check_answer(stage.now, holder, is_held, now);
        let name = self.slots[slot].name.clone();
        stage.check_freed(&name, holder);
        if is_held {
            self.plan(stage, slot, stage.plan.timing.ttl() / 2, Act::Check);
        } else if stage.rng.bool() {
            self.leave(stage, slot);
        }
    }

    /// The work goes on, mostly.
    pub(super) fn progress(&mut self, stage: &mut Stage, slot: usize) {
        let Some(most) = self.slots[slot].limits.progress_within else {
            return;
        };
        let now = stage.shown(self.id);
        self.slots[slot].signal().note_progress(now);
        stage.ledger.progressed(self.slots[slot].holder(), now);
        if stage.rng.u8(..10) > 0 {
            self.plan(stage, slot, most * 9 / 10, Act::Progress);
        }
    }

    /// It was told that it lost what it held, or that it is not to hold it: its work unwinds.
    pub(super) fn unwind(&mut self, stage: &mut Stage, slot: usize) {
        match self.slots[slot].phase {
            Phase::Holding(..) => self.plan(stage, slot, stage.plan.timing.ttl() / 2, Act::Leave),
            Phase::Claiming(..) => self.plan(stage, slot, Duration::ZERO, Act::DropTheClaim),
            _ => {}
        }
    }

    pub(super) fn again(&mut self, stage: &mut Stage, slot: usize) {
        self.slots[slot].becomes(Phase::Idle);
        self.stops_waiting(stage, slot);
        self.plan(stage, slot, stage.plan.timing.ttl(), Act::Claim);
    }

    /// Its guard goes: by a release that is waited for, or by being dropped.
    fn leave(&mut self, stage: &mut Stage, slot: usize) {
        let Phase::Holding(id, enrolled) = &self.slots[slot].phase else {
            return;
        };
        let (id, enrolled) = (*id, enrolled.clone());
        let now = stage.shown(self.id);
        let leaving = if stage.rng.bool() {
            self.schedule.leave(id, None, now);
            None
        } else {
            let ttl = self.slots[slot].timing.ttl();
            let keep_for = (stage.rng.u8(..6) == 0).then_some(ttl / 4);
            self.schedule.withdraw(id, keep_for, now).0
        };
        self.take_effects(stage);
        self.gone(stage, slot, &enrolled);
        self.give_back(stage, slot, (leaving, enrolled), None);
    }

    /// Sends this release, if there is one, before the request goes on.
    pub(super) fn give_back(
        &mut self,
        stage: &mut Stage,
        slot: usize,
        (leaving, enrolled): (Option<Leaving>, Enrolled),
        request: Option<Claiming>,
    ) {
        let Some(leaving) = leaving else {
            self.go_on(stage, slot, request);
            return;
        };
        let (body, limit) = (Body::release(&leaving), leaving.limit);
        let version = self.slots[slot].becomes(Phase::Leaving {
            leaving,
            request,
            enrolled,
        });
        self.call(stage, Call::Farewell { slot, version }, &body, limit);
        if stage.rng.u8(..4) == 0 {
            self.plan(stage, slot, limit / 4, Act::DropTheRelease);
        }
    }

    /// The reply to the user's own release.
    pub(super) fn farewell_replied(
        &mut self,
        stage: &mut Stage,
        (slot, version): (usize, u32),
        reply: &Reply,
    ) {
        if !self.slots[slot].is_at(version) {
            return;
        }
        let phase = std::mem::replace(&mut self.slots[slot].phase, Phase::Idle);
        if let Phase::Leaving {
            leaving, request, ..
        } = phase
        {
            let now = stage.shown(self.id);
            leaving.answered(&mut self.schedule, release_in(reply), now);
            self.take_effects(stage);
            self.go_on(stage, slot, request);
        }
    }

    /// The future of the release, or of the request that waits for it, is dropped.
    fn drop_release(&mut self, stage: &mut Stage, slot: usize) {
        let phase = std::mem::replace(&mut self.slots[slot].phase, Phase::Idle);
        if let Phase::Leaving { leaving, .. } = phase {
            let now = stage.shown(self.id);
            leaving.given_up(&mut self.schedule, now);
            self.take_effects(stage);
            self.again(stage, slot);
        }
    }

    /// From now on no guard holds it; what it left in the store has to go.
    pub(super) fn gone(&mut self, stage: &mut Stage, slot: usize, enrolled: &Enrolled) {
        let holder = enrolled.holder;
        stage.note(|| format!("p{} leaves {} as {holder}", self.id, self.slots[slot].name));
        let guard = stage.ledger.guards.remove(&holder);
        let is_refused = enrolled.signal.deadline() == Err(LossReason::Refused);
        let unanswered = enrolled.unanswered_until;
        let gone = Gone {
            // Nothing is sent after a refusal, and little shortly before the lease runs out by itself.
            since: guard
                .filter(|guard| !is_refused && stage.has_time_to_release(guard))
                .map_or(0, |_| stage.now),
            // What the copy of a request that was answered brings runs out by itself.
            until: unanswered.map_or(0, |until| stage.real_at(self.id, until)),
        };
        stage.ledger.gone.insert(holder, gone);
        stage.turns.ends(holder, stage.now);
        let name = self.slots[slot].name.clone();
        stage.watch_cleaning(&name, holder);
    }

    /// The faults are over, and everybody goes home.
    pub(super) fn go_home(&mut self, stage: &mut Stage) {
        for slot in 0..self.slots.len() {
            let soon = stage.plan.timing.ttl() / 4;
            match self.slots[slot].phase {
                Phase::Holding(..) => self.plan(stage, slot, soon, Act::Leave),
                Phase::Queued | Phase::Claiming(..) => {
                    self.plan(stage, slot, soon, Act::DropTheClaim);
                }
                _ => {}
            }
        }
    }
}
