//! A claim on its way to a lease, as the client goes it: each attempt noted before it is sent, what comes late left alone.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Token;
use leasehold::clock::{Instant, Timing};
use leasehold::internals::request_limit;
use leasehold::internals::signal::Signal;

use super::ledger::{Guard, Promise};
use super::limits;
use super::network::{Body, Reply};
use super::planted::{self, Bug};
use super::process::{Call, Process};
use super::slot::{Enrolled, Phase, Slot};
use super::stage::{Act, Stage};

impl Process {
    pub(super) fn claim(&mut self, stage: &mut Stage, slot: usize) {
        if stage.is_ending() {
            return;
        }
        self.claims += 1;
        let holder = planted::holder(stage, self, self.claims);
        let now = stage.shown(self.id);
        let signal = Arc::new(Signal::new(now));
        let Slot {
            name,
            timing,
            limits,
            ..
        } = &self.slots[slot];
        let timing = match stage.plan.has(Bug::NoMargin) {
            true => Timing::new(timing.ttl(), Some(Duration::from_nanos(1))).expect("valid"),
            false => *timing,
        };
        let asked_for = limits::asked_for(stage, *limits);
        let enrolled =
            self.schedule
                .enroll(name.clone(), holder, timing, asked_for, signal.clone());
        let is_open = enrolled.is_some();
        stage.ledger.check(
            Promise::EveryEnrollmentEndsOnce,
            stage.now,
            is_open != self.is_shut_down,
            || "a client takes claims in exactly until it is shut down".into(),
        );
        let Some(key) = enrolled else {
            return;
        };
        self.enrolled(slot, &signal);
        self.slots[slot].becomes(Phase::Claiming(Enrolled {
            key,
            holder,
            signal,
            unanswered_until: None,
        }));
        if stage.rng.u8(..6) == 0 {
            self.plan(stage, slot, stage.plan.timing.ttl() / 3, Act::DropTheClaim);
        }
        self.ask(stage, slot);
    }

    pub(super) fn ask(&mut self, stage: &mut Stage, slot: usize) {
        let sent_at = stage.shown(self.id);
        let Slot {
            name,
            timing,
            version,
            ..
        } = &self.slots[slot];
        let (ttl, version) = (timing.ttl(), *version);
        let body = Body::Acquire {
            name: name.clone(),
            holder: self.slots[slot].holder(),
            ttl,
            floor: self.floors.get(name).copied(),
        };
        let enrolled = self.slots[slot].enrolled_mut();
        let before = self.schedule.claim_sent(enrolled.key, sent_at);
        assert_eq!(
            before, enrolled.unanswered_until,
            "the schedule keeps what is unanswered"
        );
        enrolled.unanswered_until = Some(sent_at.after(ttl));
        let call = Call::Claim {
            slot,
            version,
            sent_at,
            before,
        };
        self.call(stage, call, &body, request_limit(ttl), 0);
    }

    /// The reply to an attempt of a claim; nobody's, if the claim was given up.
    pub(super) fn claim_replied(
        &mut self,
        stage: &mut Stage,
        (slot, version): (usize, u32),
        sent_at: Instant,
        before: Option<Instant>,
        reply: &Reply,
    ) {
        if !self.slots[slot].is_at(version) {
            return;
        }
        if !matches!(reply, Reply::Failed) {
            let enrolled = self.slots[slot].enrolled_mut();
            enrolled.unanswered_until = before;
            self.schedule.claim_answered(enrolled.key, before);
        }
        let ttl = stage.plan.timing.ttl();
        match reply {
            Reply::Granted(token) => self.granted(stage, slot, sent_at, *token),
            Reply::Held(_) if stage.rng.u8(..4) == 0 => self.give_claim_up(stage, slot),
            Reply::Held(remaining) => {
                self.plan(stage, slot, (*remaining).min(ttl / 2), Act::AskAgain)
            }
            _ if stage.rng.bool() => self.give_claim_up(stage, slot),
            _ => self.plan(stage, slot, ttl / 2, Act::AskAgain),
        }
    }

    fn granted(&mut self, stage: &mut Stage, slot: usize, sent_at: Instant, token: Token) {
        let Slot {
            name,
            timing,
            limits,
            ..
        } = &self.slots[slot];
        let (name, timing, limits) = (name.clone(), *timing, *limits);
        let Enrolled {
            key,
            holder,
            signal,
            ..
        } = self.slots[slot].enrolled().clone();
        let now = stage.shown(self.id);
        let begins = planted::counted_from(stage, sent_at, now);
        let held = self.schedule.hold(key, begins, now);
        let has_fallen = self.floors.get(&name).is_some_and(|floor| token <= *floor);
        self.wake_if(stage, held.is_ok_and(|is_earlier| is_earlier));
        if has_fallen || held.is_err() {
            self.give_claim_up(stage, slot);
            return;
        }
        self.floors.insert(name.clone(), token);
        let guard = Guard {
            process: self.id,
            name: name.clone(),
            timing,
            limits,
            signal: signal.clone(),
            token,
            granted_at: sent_at,
            progressed_at: sent_at,
            until: timing.term(sent_at).deadline(),
            is_lost: false,
            is_tried: false,
            tried_at: sent_at,
        };
        stage.note(|| format!("p{} holds {name} as {holder} token={token}", self.id));
        stage.ledger.check_guard(stage.now, holder, &guard);
        stage.ledger.guards.insert(holder, guard);
        stage.ledger.check_deadline(stage.now, holder);
        stage.check_freed(&name, holder);
        let enrolled = self.slots[slot].enrolled().clone();
        let version = self.slots[slot].becomes(Phase::Holding(enrolled));
        if let Ok(deadline) = signal.deadline() {
            self.watch_deadline(stage, slot, version, deadline);
        }
        self.plan(stage, slot, stage.plan.timing.ttl() * 2, Act::Leave);
        self.plan(stage, slot, stage.plan.timing.ttl(), Act::Check);
        self.progress(stage, slot);
        self.watch_limits(stage, slot, version);
    }

    /// The claim's future is dropped.
    pub(super) fn give_claim_up(&mut self, stage: &mut Stage, slot: usize) {
        if let Phase::Claiming(enrolled) = &self.slots[slot].phase {
            let enrolled = enrolled.clone();
            self.gone(stage, slot, &enrolled);
            let now = stage.shown(self.id);
            let is_earlier = self.schedule.leave(enrolled.key, now, None);
            self.wake_if(stage, is_earlier);
            self.again(stage, slot);
        }
    }
}
