//! The storage that writers write to and readers read, with its fence.

use super::setup::Setup;
use super::world::{Claim, Phase, Promise, World};

impl Setup {
    /// A writer sends one write with each token.
    pub(super) fn send_write(&self, world: &mut World, who: usize) -> bool {
        let actor = &mut world.actors[who];
        let is_possible = self.fence.is_some()
            && actor.phase == Phase::Exclusive
            && actor.door != Claim::Lapsed
            && actor.write != actor.token;
        if is_possible {
            actor.write = actor.token;
        }
        is_possible
    }

    /// A write arrives. It must be refused while another one reads that raised the fence.
    pub(super) fn write(&self, world: &mut World, who: usize) -> bool {
        let token = std::mem::take(&mut world.actors[who].write);
        if token == 0 {
            return false;
        }
        let actor = world.actors[who];
        if token < world.mark {
            let is_due = actor.phase == Phase::Exclusive && actor.token == token;
            if is_due && self.believes(world, who) {
                world.broken = Some(Promise::NotRefused);
            }
            return true;
        }
        world.mark = token;
        let reads = |other: usize| {
            let is_fenced = other != who && world.actors[other].is_fenced;
            is_fenced && self.believes(world, other)
        };
        if (0..self.actors()).any(reads) {
            world.broken = Some(Promise::Fenced);
        }
        true
    }

    /// A raise arrives. A reader reads after it.
    pub(super) fn raise(&self, world: &mut World, who: usize) -> bool {
        let actor = &mut world.actors[who];
        let token = std::mem::take(&mut actor.raise);
        if token >= world.mark {
            world.mark = world.mark.max(token);
            actor.is_fenced |= token > 0 && actor.phase == Phase::Shared;
        }
        token > 0
    }

    /// Tokens count by their order: the even ones, which are granted, and with each the odd one above it.
    pub(super) fn renumber(&self, world: &mut World) {
        let mut used = 1_u64;
        each_token(world, |token| used |= 1 << (*token / 2));
        each_token(world, |token| {
            let below = used & ((1 << (*token / 2)) - 1);
            *token = 2 * below.count_ones() as u8 + *token % 2;
        });
    }
}

fn each_token(world: &mut World, mut change: impl FnMut(&mut u8)) {
    change(&mut world.last);
    change(&mut world.mark);
    for actor in &mut world.actors {
        change(&mut actor.token);
        change(&mut actor.above);
        change(&mut actor.raise);
        change(&mut actor.write);
    }
}
