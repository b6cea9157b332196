//! The promises that are checked in every state.

use super::setup::Setup;
use super::world::{Claim, DOOR, Phase, Promise, World, holder_number};

impl Setup {
    /// Whether the actor believes to hold.
    pub(super) fn believes(&self, world: &World, who: usize) -> bool {
        let actor = &world.actors[who];
        match actor.phase {
            Phase::Exclusive => actor.door == Claim::Heard,
            Phase::Shared | Phase::Upgrading => actor.permit_claim == Claim::Heard,
            // It has its permit still.
            Phase::Inspecting => self.is_reader(who) && actor.permit_claim == Claim::Heard,
            _ => false,
        }
    }

    /// Whether it is served: it believes and waits for nothing. Who asks within a share only may want none.
    pub(super) fn is_served(&self, world: &World, who: usize) -> bool {
        let phase = world.actors[who].phase;
        let holds = matches!(phase, Phase::Shared | Phase::Exclusive) && self.believes(world, who);
        let wants_none = phase == Phase::Idle && self.is_within(who);
        holds || wants_none || phase == Phase::Dead
    }

    pub(super) fn is_kept(&self, world: &World, promise: Promise) -> bool {
        let believers = || (0..self.actors()).filter(|who| self.believes(world, *who));
        let writes = |who: &usize| world.actors[*who].phase == Phase::Exclusive;
        let is_apart = |writers: usize, all: usize| writers == 0 || all == 1;
        match promise {
            Promise::Apart => is_apart(believers().filter(writes).count(), believers().count()),
            Promise::OnePermitEach => {
                let readers = || believers().filter(|who| !writes(who));
                let taken =
                    readers().fold(0_u8, |taken, who| taken | 1 << world.actors[who].permit);
                let most = self.permits[..self.actors()].iter().max();
                let count = taken.count_ones() as usize;
                readers().count() == count && Some(count as u8) <= most.copied()
            }
            Promise::ApartForGood => {
                let kept = || believers().filter(|who| has_lease(world, *who));
                is_apart(kept().filter(writes).count(), kept().count())
            }
            Promise::Fenced | Promise::NotRefused => world.broken != Some(promise),
        }
    }
}

/// Whether the store has its lease, with the token that it knows.
fn has_lease(world: &World, who: usize) -> bool {
    let actor = &world.actors[who];
    let name = match actor.phase {
        Phase::Exclusive => DOOR,
        _ => actor.permit,
    };
    world.holders[usize::from(name)] == holder_number(who)
}
