//! A user's request on its way to a lease: sends what the core says, and does as the core's verdicts say.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::Instant;
use leasehold::internals::answer_limit;
use leasehold::internals::claiming::{Asked, Claiming, GiveUp, NewLease, USELESS_GRANTS, Verdict};
use leasehold::internals::schedule::Leaving;
use leasehold::internals::signal::Signal;
use leasehold::store::{Answer, Ask, Claim, Failed, Grant, Held, Info};
use leasehold::{ClientId, Error, ErrorKind, Holder, Name};

use super::ledger::{Guard, Promise};
use super::network::{Body, Reply};
use super::planted::Bug;
use super::process::{Call, Process};
use super::slot::{Enrolled, Phase};
use super::stage::{Act, Stage};
use super::turns::taken;

impl Process {
    pub(super) fn claim(&mut self, stage: &mut Stage, slot: usize) {
        if stage.is_ending() {
            return;
        }
        if stage.plan.waits {
            return self.join(stage, slot);
        }
        // As who tries, and as who waits.
        let give_up = match slot % 2 {
            0 => GiveUp::AfterGrants(USELESS_GRANTS),
            _ => GiveUp::At(stage.shown(self.id).after(self.slots[slot].timing.ttl())),
        };
        if self.enroll(stage, slot, Claiming::new(None, give_up)) {
            if stage.rng.u8(..6) == 0 {
                self.plan(stage, slot, stage.plan.timing.ttl() / 3, Act::DropTheClaim);
            }
            self.ask(stage, slot);
        }
    }

    /// Takes a claim in before it is sent. Answers whether the client is open.
    pub(super) fn enroll(
        &mut self,
        stage: &mut Stage,
        slot: usize,
        mut claiming: Claiming,
    ) -> bool {
        let drawn = match stage.plan.bug {
            Some(Bug::HolderReusedAfterFork) => {
                Holder::new(ClientId::from_u128(1), self.calls.len() as u64)
            }
            _ => Holder::new(self.client, stage.rng.u64(..)),
        };
        let signal = Arc::new(Signal::new(stage.shown(self.id)));
        let name = self.slots[slot].name.clone();
        let timing = self.slots[slot].timing;
        let seen = self.floors.get(&name).copied();
        let claim = Claim::new(name, drawn, timing.ttl(), Arc::new(Info::default()));
        let shard = stage.shard_of(&claim.name);
        let schedule = &mut self.schedule;
        let is_open = claiming.enroll(schedule, claim, shard, timing, signal.clone(), seen);
        stage.ledger.check(
            Promise::EveryEnrollmentEndsOnce,
            stage.now,
            is_open != self.is_shut_down,
            || "a client takes claims in exactly until it is shut down".into(),
        );
        if let Some(claim) = claiming.claim() {
            let holder = claim.holder;
            self.enrolled(slot, holder, &signal);
            let enrolled = Enrolled {
                holder,
                signal,
                unanswered_until: None,
                place: None,
            };
            self.slots[slot].becomes(Phase::Claiming(claiming, enrolled));
        }
        is_open
    }

    pub(super) fn ask(&mut self, stage: &mut Stage, slot: usize) {
        let sent_at = stage.shown(self.id);
        let version = self.slots[slot].version;
        let waiter = self.slots[slot].waiter.as_ref();
        let queued = waiter.and_then(|waiter| waiter.queued);
        let Phase::Claiming(claiming, enrolled) = &mut self.slots[slot].phase else {
            return;
        };
        let claim = claiming.claim().expect("it is enrolled").clone();
        let seen = self.floors.get(&claim.name).copied();
        let asked = claiming.sent(&mut self.schedule, queued, seen, sent_at);
        enrolled.place = None;
        let before = enrolled.unanswered_until;
        enrolled.unanswered_until = Some(sent_at.after(claim.ttl));
        stage.ledger.check(
            Promise::EachAttemptCarriesTheFloor,
            stage.now,
            asked.floor == seen,
            || {
                format!(
                    "{} asks above {:?}, knowing {seen:?}",
                    claim.holder, asked.floor
                )
            },
        );
        let ttl = claim.ttl;
        let ask = Ask::default().with_floor(asked.floor);
        let body = Body::Acquire(claim, ask.with_queued(queued));
        let call = Call::Claim {
            slot,
            version,
            asked,
            before,
        };
        self.call(stage, call, &body, answer_limit(ttl));
    }

    /// The reply to an attempt of a claim; ignored if the claim was given up.
    pub(super) fn claim_replied(
        &mut self,
        stage: &mut Stage,
        (slot, version): (usize, u32),
        asked: Asked,
        before: Option<Instant>,
        reply: &Reply,
    ) {
        if !self.slots[slot].is_at(version) {
            return;
        }
        let now = stage.shown(self.id);
        let name = &self.slots[slot].name;
        let seen = self.floors.get(name).copied();
        let answer = answer(name, reply);
        let Phase::Claiming(claiming, enrolled) = &mut self.slots[slot].phase else {
            return;
        };
        if !matches!(reply, Reply::Failed) {
            enrolled.unanswered_until = before;
        }
        if let (Reply::Held(.., Some(place)), Some(queued)) = (reply, asked.queued) {
            let term = place.term(queued);
            enrolled.place = Some((asked.sent_at, term));
            if stage.plan.is_fair() {
                // It may be handed over until then.
                enrolled.unanswered_until = Some(asked.sent_at.after(term));
            }
        }
        let verdict = claiming.answered(&mut self.schedule, asked, answer, seen, now);
        self.take_effects(stage);
        let ttl = stage.plan.timing.ttl();
        match verdict {
            Verdict::Granted(granted) => {
                self.granted(stage, slot, &granted, None);
                self.served(stage, slot);
            }
            Verdict::Taken(_) if stage.rng.u8(..if stage.plan.waits { 16 } else { 4 }) == 0 => {
                self.give_claim_up(stage, slot)
            }
            Verdict::Taken(held) if stage.plan.waits => self.found(stage, slot, taken(held)),
            Verdict::Taken(held) => {
                let remaining = held.remaining.unwrap_or(ttl);
                self.plan(stage, slot, remaining.min(ttl / 2), Act::AskAgain);
            }
            Verdict::Failed(error) if error.kind() == ErrorKind::Closed => {
                self.claim_ended(stage, slot);
                self.again(stage, slot);
            }
            Verdict::Failed(error) if stage.plan.waits => self.found(stage, slot, Err(error)),
            Verdict::Failed(_) if stage.rng.bool() => self.give_claim_up(stage, slot),
            Verdict::Failed(_) => self.plan(stage, slot, ttl / 2, Act::AskAgain),
            Verdict::Again(None) => {
                stage.ledger.fault("grant too late");
                self.ask(stage, slot);
            }
            Verdict::Again(leaving) => self.ask_anew(stage, slot, leaving),
            Verdict::TooLate(leaving) => {
                stage.ledger.fault("every grant too late");
                self.claim_ended(stage, slot);
                let enrolled = self.slots[slot].enrolled().clone();
                self.give_back(stage, slot, (leaving, enrolled), None);
            }
            Verdict::TokenFell { .. } => {
                stage.ledger.fault("token fell");
                self.claim_ended(stage, slot);
                self.again(stage, slot);
            }
        }
    }

    fn ask_anew(&mut self, stage: &mut Stage, slot: usize, leaving: Option<Leaving>) {
        stage.ledger.fault("grant of no use");
        self.claim_ended(stage, slot);
        let phase = std::mem::replace(&mut self.slots[slot].phase, Phase::Idle);
        if let Phase::Claiming(claiming, enrolled) = phase {
            self.give_back(stage, slot, (leaving, enrolled), Some(claiming));
        }
    }

    /// Goes on with a request whose last claim is over; or with the next, if that was all.
    pub(super) fn go_on(&mut self, stage: &mut Stage, slot: usize, request: Option<Claiming>) {
        let is_open = request.is_some_and(|claiming| self.enroll(stage, slot, claiming));
        match is_open {
            true => self.ask(stage, slot),
            false => self.again(stage, slot),
        }
    }

    /// It holds the name, by the answer to a claim or for the rest of the term of this place.
    pub(super) fn granted(
        &mut self,
        stage: &mut Stage,
        slot: usize,
        lease: &NewLease,
        place: Option<(Instant, Duration)>,
    ) {
        let (id, token) = (lease.id, lease.token);
        let name = self.slots[slot].name.clone();
        let (timing, limits) = (self.slots[slot].timing, self.slots[slot].limits);
        let (since, span) = place.unwrap_or((lease.held_since, timing.ttl()));
        let handed_at = stage.shown(self.id);
        self.schedule.limit(id, limits, handed_at);
        self.take_effects(stage);
        let Enrolled { holder, signal, .. } = self.slots[slot].enrolled().clone();
        let until = since.after(span.saturating_sub(timing.margin()));
        // A reading of the server's clock may have taken something off; it is renewed at once then.
        let is_whole = signal.deadline() == Ok(until);
        let guard = Guard {
            process: self.id,
            name: name.clone(),
            timing,
            limits,
            signal: signal.clone(),
            token,
            handed_at,
            progressed_at: handed_at,
            until,
            is_lost: false,
            is_handed: place.is_some(),
            is_tried: false,
            tried_at: if is_whole {
                since
            } else {
                Instant::from_nanos(0)
            },
        };
        stage.note(|| format!("p{} holds {name} as {holder} token={token}", self.id));
        stage.ledger.check_guard(stage.now, holder, &guard);
        let seen = self.floors.insert(name.clone(), token);
        stage.ledger.check_grant(
            stage.now,
            holder,
            &guard,
            seen,
            (span, stage.clocks[self.id].at(stage.now)),
        );
        stage.ledger.guards.insert(holder, guard);
        stage.ledger.check_deadline(stage.now, holder);
        stage.check_freed(&name, holder);
        let enrolled = self.slots[slot].enrolled().clone();
        let version = self.slots[slot].becomes(Phase::Holding(id, enrolled));
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
        if matches!(self.slots[slot].phase, Phase::Queued) {
            return self.again(stage, slot);
        }
        if let Phase::Claiming(claiming, _) = &mut self.slots[slot].phase {
            let now = stage.shown(self.id);
            claiming.given_up(&mut self.schedule, now);
            self.claim_ended(stage, slot);
            self.take_effects(stage);
            self.again(stage, slot);
        }
    }

    fn claim_ended(&mut self, stage: &mut Stage, slot: usize) {
        let enrolled = self.slots[slot].enrolled().clone();
        self.gone(stage, slot, &enrolled);
    }
}

/// What the core is told of a reply.
fn answer(name: &Name, reply: &Reply) -> Result<Answer, Failed> {
    match reply {
        Reply::Granted(token) => Ok(Answer::Granted(Grant::new(*token))),
        Reply::Held(remaining, state, place) => {
            let mut held = Held::new(name.clone());
            held.remaining = Some(*remaining);
            (held.state, held.place) = (*state, *place);
            Ok(Answer::Held(Box::new(held)))
        }
        _ => Err(Failed::perhaps(Error::new(
            ErrorKind::TimedOut,
            "no answer",
        ))),
    }
}
