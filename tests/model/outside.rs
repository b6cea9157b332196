//! What is around the quorum: an operator, a storage with a fence, and a look at when all that the members have ends.

use leasehold::Name;
use leasehold::fence::{Pass, judge};
use leasehold::store::Eviction;

use crate::world::{Claiming, Column, Evicted, What, holder};
use crate::{Promise, Setup, Step, World};

/// What stands for the claim in the requests of an operator.
const OPERATOR: usize = 255;

impl Setup {
    /// An operator evicts the holder: the name, whoever has it.
    pub(crate) fn evict(&self, world: &mut World) {
        world.spent.has_evicted = true;
        for claim in &mut world.claims {
            if claim.granted.is_some() {
                claim.eviction = Evicted::UnderWay;
            }
        }
        let what = match self.evicts {
            Some(Eviction::Now) => What::EvictNow,
            _ => What::EvictMarked,
        };
        world.send_to_all(OPERATOR, what);
    }

    /// Notes what was evicted, if no other member has still to do it.
    pub(crate) fn note_evicted(&self, world: &mut World) {
        let requests = world.members.iter().flat_map(|member| &member.requests);
        let is_eviction = |what| matches!(what, What::EvictMarked | What::EvictNow);
        if requests.filter(|request| is_eviction(request.what)).count() > 1 {
            return;
        }
        for claim in &mut world.claims {
            if claim.eviction == Evicted::UnderWay {
                claim.eviction = Evicted::Everywhere;
            }
        }
    }

    /// The holder writes, whether it believes in its lease or not.
    pub(crate) fn write(&self, world: &mut World, claim: usize) {
        let Some(token) = world.claims[claim].granted else {
            return;
        };
        let name = Name::new("n").expect("a valid name");
        let pass = |(token, of)| Pass::new(name.clone(), holder(usize::from(of)), token);
        let by = u8::try_from(claim).expect("few claims");
        let row = world.row.map(pass);
        let is_taken = judge(row.as_ref(), &pass((token, by))).is_ok();
        let has_written = |other: &Claiming| other.written > 0;
        let mut others = world
            .claims
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != claim);
        let is_overtaken = others
            .clone()
            .any(|(_, other)| has_written(other) && other.after & (1 << claim) != 0);
        // All that have written were told of their grants before its claim was sent.
        let is_last = others
            .all(|(other, at)| !has_written(at) || world.claims[claim].after & (1 << other) != 0);
        if is_taken && is_overtaken || !is_taken && is_last {
            self.is_broken(world, Promise::OvertakenWritesAreRefused);
        }
        let writer = &mut world.claims[claim];
        writer.written += 1;
        if is_taken {
            world.row = Some((token, by));
        }
    }

    /// What a member has ends one ttl after a request to it, and nothing else makes it longer.
    pub(crate) fn check_ends(&self, before: &World, next: &mut World, step: Step) {
        let (asked, is_request) = match step {
            Step::CarryOut(member, _)
            | Step::CarryOutUnheard(member, _)
            | Step::CarryOutTwice(member, _) => (member, true),
            // It ended then already in the copy.
            Step::RestartWithCopy(_) => return,
            _ => (0, false),
        };
        let ends = |member: &Column| {
            let tenure = member
                .register
                .tenure(self.clock_us(next.now, member.gained));
            tenure.map(|tenure| tenure.ends_at_us)
        };
        let ttl_us = u64::try_from(self.ttl().as_micros()).expect("few ticks");
        let is_kept = |(place, (before, after)): (usize, (&Column, &Column))| {
            let is_asked = is_request && place == asked;
            let most = self.clock_us(next.now, after.gained) + ttl_us;
            let ends_at = ends(after);
            ends_at <= ends(before) || is_asked && ends_at <= Some(most)
        };
        let mut members = before.members.iter().zip(&next.members).enumerate();
        if !members.all(is_kept) {
            self.is_broken(next, Promise::RunsOut);
        }
    }
}
