//! What a claim and its holder do: propose, count votes, take back, renew, and believe.

use leasehold::Token;
use leasehold::clock::Instant;
use leasehold::store::quorum::planted::QuorumBug;
use leasehold::store::quorum::{
    Decision, Extension, LastProposal, NextProposal, Proposer, Purpose, Round, SPREAD, TakenBack,
    Tally, Tenure, Vote, Wish, majority,
};

use crate::setup::BASE_US;
use crate::world::{Evicted, Phase, Reply, Said, Sent, What, holder};
use crate::{Clocks, Promise, Setup, World};

impl Setup {
    /// Whether the claim asks again for what it was granted, and its store takes that for lost by the votes that came.
    pub(crate) fn is_lost(&self, world: &World, claim: usize) -> bool {
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
    pub(crate) fn lose(&self, world: &mut World, claim: usize) {
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
    pub(crate) fn ask(&self, world: &mut World, claim: usize, guess: u64) -> Option<()> {
        if self.is_lost(world, claim) {
            self.lose(world, claim);
        }
        let mut proposer = Proposer::new(1, self.planted());
        let at = Instant::ZERO;
        // The proposer adds its spread to the clock.
        let spread_us = u64::try_from(SPREAD.as_micros()).expect("it is short");
        proposer.note_clock(0, BASE_US + guess - spread_us, at);
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
        let sent = self.sent(world, claim);
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
    pub(crate) fn give_up(&self, world: &mut World, claim: usize) {
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

    pub(crate) fn renew(&self, world: &mut World, claim: usize) {
        let Some(token) = world.claims[claim].granted else {
            return;
        };
        world.end_exchange(claim, false);
        let sent = self.sent(world, claim);
        let holder = &mut world.claims[claim];
        holder.renewed += 1;
        holder.phase = Phase::Renewing(token, sent);
        world.send_to_all(claim, What::Renew(token));
    }

    pub(crate) fn hear(&self, world: &mut World, place: usize, reply: Reply) {
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

    pub(crate) fn sent(&self, world: &World, claim: usize) -> Sent {
        Sent {
            at: world.now,
            told: world.told_to_others(claim),
            after: match self.writes {
                0 => 0,
                _ => world.told_claims(),
            },
            is_evicted: world.claims[claim].eviction == Evicted::Everywhere,
        }
    }

    /// Tells the holder that it has the name.
    pub(crate) fn grant(&self, world: &mut World, claim: usize, token: Token, sent: Sent) {
        world.end_exchange(claim, false);
        let others = world.told.iter();
        let is_taken = others
            .clone()
            .any(|(told, to)| *told == token && usize::from(*to) != claim);
        let before = world.claims[claim].granted;
        let is_new = before != Some(token);
        let is_in_time = self.until(world, sent) > world.now;
        if self.keeps_time() && is_new && is_in_time && world.told_to_others(claim) > Some(token) {
            self.is_broken(world, Promise::ToldInOrder);
        }
        if is_taken {
            self.is_broken(world, Promise::OneClaimPerToken);
        }
        let asker = &world.claims[claim];
        let has_it = !asker.has_lost || asker.believes_until > world.now;
        if before.is_some_and(|granted| granted != token) && has_it {
            self.is_broken(world, Promise::SameTokenAgain);
        }
        if is_new && sent.told >= Some(token) {
            self.is_broken(world, Promise::TokensRise);
        }
        let asker = &mut world.claims[claim];
        asker.phase = Phase::Idle;
        asker.granted = Some(token);
        asker.has_lost = false;
        if is_new {
            asker.after = sent.after;
            asker.eviction = Evicted::No;
        }
        if let Some(last) = &mut asker.last {
            last.grant(token);
        }
        self.believe(world, claim, sent);
        let told = (token, u8::try_from(claim).expect("few claims"));
        if let Err(at) = world.told.binary_search(&told) {
            world.told.insert(at, told);
        }
    }

    pub(crate) fn hear_renewal(&self, world: &mut World, claim: usize, token: Token, sent: Sent) {
        let mut tally = Tally::new(world.members.len(), self.planted());
        for (place, member) in world.members.iter().enumerate() {
            if let Some(Said::Extension(extension)) = member.heard[claim] {
                tally.count(place, extension);
            }
        }
        match tally.outcome() {
            Some(Extension::Renewed) => {
                if sent.is_evicted {
                    self.is_broken(world, Promise::EvictedIsNotRenewed);
                }
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

    pub(crate) fn believe(&self, world: &mut World, claim: usize, sent: Sent) {
        if self.clocks == Clocks::Broken {
            return;
        }
        let until = self.until(world, sent);
        let believes_until = &mut world.claims[claim].believes_until;
        if until > world.now {
            *believes_until = until.max(*believes_until);
        }
    }

    /// When the holder counts as over what it sent then.
    pub(crate) fn until(&self, world: &World, sent: Sent) -> u8 {
        let from = match self.has(QuorumBug::DeadlineFromTheReply) {
            true => world.now,
            false => sent.at,
        };
        let margin = match self.has(QuorumBug::NoMargin) {
            true => 0,
            false => self.margin,
        };
        from + self.ttl - margin
    }

    /// The votes that the claim has heard in its present round.
    pub(crate) fn round(&self, world: &World, claim: usize, token: Token) -> Round {
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
