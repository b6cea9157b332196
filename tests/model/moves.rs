//! Which steps are possible, and what each does.

use leasehold::store::Eviction;
use leasehold::store::quorum::planted::QuorumBug;
use leasehold::store::quorum::{Incarnation, Proposal, Purpose, RunNumber, hold_at};
use stateright::{Model, Property};

use crate::world::{Claiming, Column, Evicted, Phase, Reply, Said, Spent, What, holder};
use crate::{Clocks, GivesUp, Promise, Setup, Step, World};

impl Model for Setup {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let claims = self.asks.len();
        let member = Column {
            row: Some(Incarnation::settled(RunNumber::default(), &self.rules())),
            heard: vec![None; claims],
            ..Column::default()
        };
        let claim = Claiming {
            phase: Phase::Idle,
            asked: 0,
            renewed: 0,
            last: None,
            seen: 0,
            granted: None,
            has_lost: false,
            eviction: Evicted::No,
            after: 0,
            written: 0,
            believes_until: 0,
        };
        vec![World {
            now: 0,
            members: vec![member; self.members],
            claims: vec![claim; claims],
            told: Vec::new(),
            spent: Spent::default(),
            row: None,
            broken: None,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if world.broken.is_some() {
            return;
        }
        for claim in 0..world.claims.len() {
            self.steps_of_claim(world, claim, steps);
        }
        for member in 0..world.members.len() {
            // Members are alike: of several in the same state, one is enough.
            if member == 0 || world.members[member] != world.members[member - 1] {
                self.steps_of_member(world, member, steps);
            }
        }
        if self.evicts.is_some() && !world.spent.has_evicted && !world.told.is_empty() {
            steps.push(Step::Evict);
        }
        if world.now < self.ticks {
            steps.push(Step::Tick);
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        match step {
            Step::Ask(claim, guess) => self.ask(&mut next, claim, guess)?,
            Step::GiveUp(claim) => self.give_up(&mut next, claim),
            Step::Renew(claim) => self.renew(&mut next, claim),
            Step::StopRenewing(claim) => {
                next.end_exchange(claim, false);
                next.claims[claim].phase = Phase::Idle;
            }
            Step::Release(claim) => {
                next.end_exchange(claim, false);
                next.claims[claim].phase = Phase::Ended;
                next.claims[claim].believes_until = 0;
                next.send_to_all(claim, What::Release);
            }
            Step::Write(claim) => self.write(&mut next, claim),
            Step::Evict => self.evict(&mut next),
            Step::CarryOut(member, request) => {
                let reply = self.carry_out(&mut next, member, request);
                next.members[member].requests.remove(request);
                if let Some(reply) = reply {
                    self.deliver(&mut next, member, reply);
                }
            }
            Step::CarryOutUnheard(member, request) => {
                self.carry_out(&mut next, member, request)?;
                next.members[member].requests.remove(request);
            }
            Step::CarryOutTwice(member, request) => {
                next.spent.doubled += 1;
                if let Some(reply) = self.carry_out(&mut next, member, request) {
                    self.deliver(&mut next, member, reply);
                }
            }
            Step::Hear(member, reply) => {
                let reply = next.members[member].replies.remove(reply);
                self.hear(&mut next, member, reply);
            }
            Step::Tick => self.tick(&mut next),
            Step::Gain(member) => {
                next.spent.gains += 1;
                next.members[member].gained += 1;
                self.settle(&mut next, member);
            }
            Step::EndLease(member) => next.members[member].register.expire_early(),
            Step::EndKeepOut(member) => {
                if let Some(row) = &mut next.members[member].row {
                    row.end_keep_out();
                }
            }
            Step::RestartEmpty(member) => {
                next.spent.restarts += 1;
                let member = &mut next.members[member];
                member.run.0 += 1;
                member.register = Default::default();
                member.row = None;
                // A claim of another name may find it at once: its keep-out ends earliest then, and its floor is the lowest.
                let now_us = self.clock_us(world.now, member.gained);
                Incarnation::admit(&mut member.row, member.run, &self.rules(), now_us).err();
            }
            Step::Copy(member) => {
                next.spent.copies += 1;
                let member = &mut next.members[member];
                member.copy = Some(Box::new((member.register, member.row.clone())));
            }
            Step::RestartWithCopy(member) => {
                let member = &mut next.members[member];
                let (register, row) = *member.copy.take()?;
                member.run.0 += u64::from(!self.has(QuorumBug::OldCopyTrusted));
                member.register = register;
                member.row = row;
            }
        }
        if self.keeps_time() && next.believers() > 1 {
            self.is_broken(&mut next, Promise::OneHolder);
        }
        self.check_ends(world, &mut next, step);
        self.normalize(&mut next);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        // One property for each promise would be looked at in each state, and all are about the same field.
        vec![Property::always(
            "every promise",
            |_: &Self, world: &World| world.broken.is_none(),
        )]
    }
}

impl Setup {
    fn steps_of_claim(&self, world: &World, claim: usize, steps: &mut Vec<Step>) {
        let asker = &world.claims[claim];
        let may_ask = asker.asked < self.asks[claim];
        let may_renew = asker.granted.is_some() && asker.renewed < self.renewals[claim];
        match asker.phase {
            Phase::Ended => return,
            Phase::Idle => {}
            Phase::Asking(..) => match self.gives_up {
                GivesUp::Always => steps.push(Step::GiveUp(claim)),
                GivesUp::ToAskAgain if may_ask => steps.push(Step::GiveUp(claim)),
                GivesUp::AfterALoss if asker.has_lost => steps.push(Step::GiveUp(claim)),
                GivesUp::ToAskAgain | GivesUp::AfterALoss | GivesUp::Never => {}
            },
            Phase::Renewing(..) => {
                if may_ask || may_renew {
                    steps.push(Step::StopRenewing(claim));
                }
            }
        }
        let is_free = match asker.phase {
            Phase::Asking(..) => self.hurries || self.is_lost(world, claim),
            _ => matches!(asker.phase, Phase::Idle),
        };
        if may_ask && is_free {
            let guesses = self.guesses[claim].clone();
            steps.extend(guesses.map(|guess| Step::Ask(claim, guess)));
        }
        if may_renew && matches!(asker.phase, Phase::Idle) {
            steps.push(Step::Renew(claim));
        }
        if asker.granted.is_some() && asker.written < self.writes {
            steps.push(Step::Write(claim));
        }
        if self.releases && asker.granted.is_some() {
            steps.push(Step::Release(claim));
        }
    }

    fn steps_of_member(&self, world: &World, place: usize, steps: &mut Vec<Step>) {
        let member = &world.members[place];
        for request in 0..member.requests.len() {
            steps.push(Step::CarryOut(place, request));
            if self.loses_replies && member.requests[request].is_awaited {
                steps.push(Step::CarryOutUnheard(place, request));
            }
            if world.spent.doubled < self.doubled {
                steps.push(Step::CarryOutTwice(place, request));
            }
        }
        steps.extend((0..member.replies.len()).map(|reply| Step::Hear(place, reply)));
        if world.spent.gains < self.gains {
            steps.push(Step::Gain(place));
        }
        if world.spent.restarts < self.restarts {
            steps.push(Step::RestartEmpty(place));
        }
        if member.copy.is_some() {
            steps.push(Step::RestartWithCopy(place));
        } else if world.spent.copies < self.copies {
            steps.push(Step::Copy(place));
        }
        if self.clocks == Clocks::Broken {
            let now_us = self.clock_us(world.now, member.gained);
            if member.register.tenure(now_us).is_some() {
                steps.push(Step::EndLease(place));
            }
            let row = member.row.as_ref();
            if row.is_some_and(|row| row.away(now_us).is_some()) {
                steps.push(Step::EndKeepOut(place));
            }
        }
    }

    /// Returns the reply, if the claim waits for it.
    pub(crate) fn carry_out(
        &self,
        world: &mut World,
        place: usize,
        request: usize,
    ) -> Option<Reply> {
        let member = &mut world.members[place];
        let request = member.requests[request];
        let now_us = self.clock_us(world.now, member.gained);
        let by = holder(request.claim.into());
        let said = match request.what {
            What::EvictMarked | What::EvictNow => {
                let how = match request.what {
                    What::EvictNow => Eviction::Now,
                    _ => Eviction::Marked,
                };
                member.register.evict(how, now_us, self.planted());
                self.note_evicted(world);
                return None;
            }
            What::Hold(token, purpose) => {
                let proposal = Proposal {
                    holder: by,
                    token,
                    ttl: self.ttl(),
                    purpose,
                };
                let vote = hold_at(
                    &mut member.row,
                    member.run,
                    &mut member.register,
                    &proposal,
                    &self.rules(),
                    now_us,
                );
                (purpose == Purpose::Claim).then_some(Said::Vote(vote))
            }
            What::TakeBack(taken) => {
                let register = &mut member.register;
                register.take_back(by, taken, now_us, self.planted());
                None
            }
            What::Release => {
                member.register.release(by, None, now_us);
                None
            }
            What::Renew(token) => {
                let register = &mut member.register;
                let said = register.renew(by, token, self.ttl(), now_us, self.planted());
                Some(Said::Extension(said))
            }
        };
        let asker = &world.claims[usize::from(request.claim)];
        let said = said.filter(|_| request.is_awaited && asker.phase != Phase::Ended)?;
        Some(Reply {
            claim: request.claim,
            said,
        })
    }

    fn deliver(&self, world: &mut World, place: usize, reply: Reply) {
        if !self.has_late_replies {
            self.hear(world, place, reply);
            return;
        }
        let replies = &mut world.members[place].replies;
        if let Err(at) = replies.binary_search(&reply) {
            replies.insert(at, reply);
        }
    }

    pub(crate) fn is_broken(&self, world: &mut World, promise: Promise) {
        if self.only.is_none_or(|only| only == promise) {
            world.broken.get_or_insert(promise);
        }
    }

    fn tick(&self, world: &mut World) {
        world.now += 1;
        for claim in &mut world.claims {
            if claim.believes_until <= world.now {
                claim.believes_until = 0;
            }
        }
        for member in 0..world.members.len() {
            self.settle(world, member);
        }
    }

    /// Forgets what is over at a member, so that states that differ only in it are one.
    fn settle(&self, world: &mut World, member: usize) {
        let member = &mut world.members[member];
        let now_us = self.clock_us(world.now, member.gained);
        member.register.expire(now_us);
        if let Some(row) = &mut member.row {
            row.forget_keep_out(now_us);
        }
    }

    /// Makes one of the states that differ only in the order of the members, or in what a claim knows that never asks again.
    fn normalize(&self, world: &mut World) {
        for (claim, most) in world.claims.iter_mut().zip(&self.asks) {
            let is_done = claim.asked == *most && !matches!(claim.phase, Phase::Asking(..));
            if is_done || claim.phase == Phase::Ended {
                claim.seen = 0;
                claim.last = None;
                claim.has_lost = false;
            }
        }
        world.members.sort_unstable();
    }
}
