//! Which steps are possible, and what each does.

use leasehold::Token;
use leasehold::clock::Instant;
use leasehold::store::quorum::planted::QuorumBug;
use leasehold::store::quorum::{
    Decision, Extension, Incarnation, LastProposal, NextProposal, Proposal, Proposer, Purpose,
    Round, RunNumber, TakenBack, Tally, Tenure, Vote, Wish, hold_at, majority,
};
use stateright::{Model, Property};

use crate::setup::BASE_US;
use crate::world::{Claiming, Column, Phase, Reply, Said, Sent, Spent, What, holder};
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
            believes_until: 0,
        };
        vec![World {
            now: 0,
            members: vec![member; self.members],
            claims: vec![claim; claims],
            told: Vec::new(),
            spent: Spent::default(),
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
        if self.clocks == Clocks::Kept && next.believers() > 1 {
            self.is_broken(&mut next, Promise::OneHolder);
        }
        self.normalize(&mut next);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("T1", |_: &Self, world: &World| {
                world.broken != Some(Promise::OneClaimPerToken)
            }),
            Property::always("T2", |_: &Self, world: &World| {
                world.broken != Some(Promise::TokensRise)
            }),
            Property::always("X", |_: &Self, world: &World| {
                world.broken != Some(Promise::OneHolder)
            }),
            Property::always("Z", |_: &Self, world: &World| {
                world.broken != Some(Promise::OvertakenIsNotRenewed)
            }),
            Property::always("I", |_: &Self, world: &World| {
                world.broken != Some(Promise::SameTokenAgain)
            }),
        ]
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

    /// Whether the claim asks again for what it was granted, and its store takes that for lost by the votes that came.
    fn is_lost(&self, world: &World, claim: usize) -> bool {
        let asker = &world.claims[claim];
        let Phase::Asking(token, _) = asker.phase else {
            return false;
        };
        let round = || self.round(world, claim, token);
        asker.granted == Some(token)
            && matches!(round().close(), Decision::Low { .. })
            && round().is_lost()
    }

    /// Notes that the store takes the grant for lost. A majority that has it all the same breaks a promise.
    fn lose(&self, world: &mut World, claim: usize) {
        let Some(token) = world.claims[claim].granted else {
            return;
        };
        let having = world.having(claim, token, |member| {
            self.clock_us(world.now, member.gained)
        });
        if having >= majority(world.members.len()) {
            self.is_broken(world, Promise::SameTokenAgain);
        }
        let asker = &mut world.claims[claim];
        asker.has_lost = true;
        if let Some(last) = &mut asker.last {
            last.lose();
        }
    }

    /// Proposes a token as the store does. The guess stands for the members' clocks, which may have told anything.
    fn ask(&self, world: &mut World, claim: usize, guess: u64) -> Option<()> {
        if self.is_lost(world, claim) {
            self.lose(world, claim);
        }
        let mut proposer = Proposer::new(1, self.planted());
        let at = Instant::ZERO;
        // The proposer adds its spread to the clock.
        proposer.note_clock(0, BASE_US + guess - 20_000, at);
        let asker = &world.claims[claim];
        let wish = Wish {
            floor: None,
            seen: asker.seen,
        };
        let last = asker.last;
        let next = last.map_or(NextProposal::Fresh, |last| last.next(self.planted()));
        let token = proposer.propose(wish, next, at).ok()??;
        // Several guesses may come to the same.
        let is_the_least = guess == *self.guesses[claim].start() || token.get() == BASE_US + guess;
        if !is_the_least {
            return None;
        }
        let sent = Sent {
            at: world.now,
            told: world.told_to_others(claim),
        };
        world.end_exchange(claim, self.has(QuorumBug::AnyYesCounts));
        let asker = &mut world.claims[claim];
        asker.asked += 1;
        asker
            .last
            .get_or_insert(LastProposal::sent(token))
            .send(token);
        asker.phase = Phase::Asking(token, sent);
        world.send_to_all(claim, What::Hold(token, Purpose::Claim));
        Some(())
    }

    /// Ends a round without a grant: takes back what it may have taken, unless that was granted before.
    fn give_up(&self, world: &mut World, claim: usize) {
        let Phase::Asking(token, _) = world.claims[claim].phase else {
            return;
        };
        let asker = &world.claims[claim];
        let is_granted = asker.granted == Some(token);
        if let Some(last) = asker.last
            && (!is_granted || self.has(QuorumBug::GrantTakenBack))
        {
            let taken = match is_granted {
                true => TakenBack::up_to(token),
                false => last.taking_back(token, self.planted()),
            };
            let round = self.round(world, claim, token);
            for member in round.to_take_back().collect::<Vec<_>>() {
                world.send(member, claim, What::TakeBack(taken));
            }
        }
        world.end_exchange(claim, self.has(QuorumBug::AnyYesCounts));
        world.claims[claim].phase = Phase::Idle;
    }

    fn renew(&self, world: &mut World, claim: usize) {
        let Some(token) = world.claims[claim].granted else {
            return;
        };
        world.end_exchange(claim, false);
        let sent = Sent {
            at: world.now,
            told: world.told_to_others(claim),
        };
        let holder = &mut world.claims[claim];
        holder.renewed += 1;
        holder.phase = Phase::Renewing(token, sent);
        world.send_to_all(claim, What::Renew(token));
    }

    /// Returns the reply, if the claim waits for it.
    fn carry_out(&self, world: &mut World, place: usize, request: usize) -> Option<Reply> {
        let member = &mut world.members[place];
        let request = member.requests[request];
        let now_us = self.clock_us(world.now, member.gained);
        let by = holder(request.claim.into());
        let said = match request.what {
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

    fn hear(&self, world: &mut World, place: usize, reply: Reply) {
        let claim = usize::from(reply.claim);
        if world.members[place].heard[claim].is_some() {
            return;
        }
        match (reply.said, world.claims[claim].phase) {
            (Said::Vote(vote), Phase::Asking(token, sent)) => {
                let is_repeated = world.claims[claim].granted == Some(token);
                world.members[place].heard[claim] = Some(Said::Vote(counted(vote, is_repeated)));
                if let Vote::Low { floor, .. } = vote {
                    let seen = &mut world.claims[claim].seen;
                    *seen = floor.max(*seen);
                }
                let decision = self.round(world, claim, token).decision();
                if let Some(Decision::Granted(token)) = decision {
                    self.grant(world, claim, token, sent);
                }
            }
            (Said::Extension(_), Phase::Renewing(token, sent)) => {
                world.members[place].heard[claim] = Some(reply.said);
                self.hear_renewal(world, claim, token, sent);
            }
            _ => {}
        }
    }

    /// Tells the holder that it has the name.
    fn grant(&self, world: &mut World, claim: usize, token: Token, sent: Sent) {
        world.end_exchange(claim, false);
        let others = world.told.iter();
        let is_taken = others
            .clone()
            .any(|(told, to)| *told == token && usize::from(*to) != claim);
        let before = world.claims[claim].granted;
        if is_taken {
            self.is_broken(world, Promise::OneClaimPerToken);
        }
        let asker = &world.claims[claim];
        let has_it = !asker.has_lost || asker.believes_until > world.now;
        if before.is_some_and(|granted| granted != token) && has_it {
            self.is_broken(world, Promise::SameTokenAgain);
        }
        if before != Some(token) && sent.told >= Some(token) {
            self.is_broken(world, Promise::TokensRise);
        }
        let asker = &mut world.claims[claim];
        asker.phase = Phase::Idle;
        asker.granted = Some(token);
        asker.has_lost = false;
        if let Some(last) = &mut asker.last {
            last.grant(token);
        }
        self.believe(world, claim, sent);
        let told = (token, u8::try_from(claim).expect("few claims"));
        if let Err(at) = world.told.binary_search(&told) {
            world.told.insert(at, told);
        }
    }

    fn hear_renewal(&self, world: &mut World, claim: usize, token: Token, sent: Sent) {
        let mut tally = Tally::new(world.members.len(), self.planted());
        for (place, member) in world.members.iter().enumerate() {
            if let Some(Said::Extension(extension)) = member.heard[claim] {
                tally.count(place, extension);
            }
        }
        match tally.outcome() {
            Some(Extension::Renewed) => {
                if sent.told > Some(token) {
                    self.is_broken(world, Promise::OvertakenIsNotRenewed);
                }
                self.believe(world, claim, sent);
                for member in tally.to_repair().collect::<Vec<_>>() {
                    world.send(member, claim, What::Hold(token, Purpose::Repair));
                }
            }
            Some(Extension::Refused | Extension::Evicted) => {
                world.end_exchange(claim, false);
                world.claims[claim].phase = Phase::Ended;
                world.claims[claim].believes_until = 0;
            }
            Some(Extension::Unknown) | None => {}
        }
    }

    fn is_broken(&self, world: &mut World, promise: Promise) {
        if self.only.is_none_or(|only| only == promise) {
            world.broken.get_or_insert(promise);
        }
    }

    fn believe(&self, world: &mut World, claim: usize, sent: Sent) {
        if self.clocks == Clocks::Broken {
            return;
        }
        let from = match self.has(QuorumBug::DeadlineFromTheReply) {
            true => world.now,
            false => sent.at,
        };
        let margin = match self.has(QuorumBug::NoMargin) {
            true => 0,
            false => self.margin,
        };
        let until = from + self.ttl - margin;
        let believes_until = &mut world.claims[claim].believes_until;
        if until > world.now {
            *believes_until = until.max(*believes_until);
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
            }
        }
        world.members.sort_unstable();
    }

    /// The votes that the claim has heard in its present round.
    fn round(&self, world: &World, claim: usize, token: Token) -> Round {
        let members = world.members.len();
        let mut round = Round::new(holder(claim), token, members, self.planted());
        for (place, member) in world.members.iter().enumerate() {
            if let Some(Said::Vote(vote)) = member.heard[claim] {
                round.count(place, vote);
            }
        }
        round
    }
}

/// What the claim keeps of a vote. All refusals are one, as far as a later vote is concerned, but for a holder that asks
/// again for its grant: it counts the members that do not have it.
fn counted(vote: Vote, is_repeated: bool) -> Vote {
    match vote {
        Vote::Yes(_) => vote,
        Vote::Low { .. } if is_repeated => Vote::Low {
            floor: 0,
            of_server: 0,
        },
        Vote::Held(tenure) if is_repeated => Vote::Held(Tenure {
            ends_at_us: 0,
            ..tenure
        }),
        _ => Vote::Ahead,
    }
}
