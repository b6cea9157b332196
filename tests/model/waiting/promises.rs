//! The promises that are checked in every state.

use super::setup::Setup;
use super::world::{Act, CLAIMS, CLIENTS, NOBODY, NOTICES, Of, Phase, Promise, World, holder_of};
use crate::search::fingerprint;

impl Promise {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::OneHolder => "OneHolder",
            Self::TokensRise => "TokensRise",
            Self::InTurn => "InTurn",
            Self::LeftIsLeft => "LeftIsLeft",
            Self::DeadHeadIsShort => "DeadHeadIsShort",
            Self::Served => "Served",
        }
    }
}

/// More ticks than it takes to serve all.
const ENOUGH: usize = 40;

impl Setup {
    pub(super) fn broken_promise(&self, world: &World) -> Option<Promise> {
        if world.broken.is_some() {
            return world.broken;
        }
        if !has_one_holder(world) {
            return Some(Promise::OneHolder);
        }
        for claim in 0..CLAIMS {
            if world.claims[claim].phase == Phase::Left && is_there(world, claim) {
                return Some(Promise::LeftIsLeft);
            }
        }
        let is_read = self.served_of > 0 && fingerprint(world).is_multiple_of(self.served_of);
        (is_read && !self.serves_all(world)).then_some(Promise::Served)
    }

    /// Whether all are served and nothing is left once all goes well: nobody dies, and each request is carried out and
    /// answered at once. A subscription that is broken stays so.
    fn serves_all(&self, world: &World) -> bool {
        let mut world = *world;
        for _ in 0..ENOUGH {
            let mut is_done = true;
            for _ in 0..3 {
                for client in 0..CLIENTS {
                    for slot in 0..NOTICES {
                        self.client(&mut world, client, Of::Notice(slot as u8));
                    }
                }
                for claim in 0..CLAIMS {
                    self.act(&mut world, claim, Act::Poll);
                    self.act(&mut world, claim, Act::CarriedOut);
                    world.replica = None;
                    if let Some(sent) = &mut world.claims[claim].sent {
                        sent.is_acknowledged = true;
                    }
                    self.act(&mut world, claim, Act::Hear);
                    self.act(&mut world, claim, Act::Released(true));
                }
            }
            for claim in 0..CLAIMS {
                is_done &= matches!(world.claims[claim].phase, Phase::Left | Phase::Gone);
                if world.claims[claim].phase == Phase::Held {
                    self.act(&mut world, claim, Act::Leave);
                    self.act(&mut world, claim, Act::Released(true));
                }
            }
            if is_done && world.store.lease.holder == NOBODY {
                let queue = world.store.queue;
                if queue.items().iter().all(|place| place.left == 0) {
                    return true;
                }
            }
            self.tick(&mut world);
            if world.broken.is_some() {
                return false;
            }
        }
        false
    }
}

/// Whether at most one believes to hold, and has the lease unless the store forgot it.
fn has_one_holder(world: &World) -> bool {
    let lease = &world.store.lease;
    let mut believers = 0;
    for (at, claim) in world.claims.iter().enumerate() {
        if claim.phase != Phase::Held || claim.left == 0 || claim.token <= world.forgiven {
            continue;
        }
        believers += 1;
        let is_holder = lease.holder == holder_of(at) && lease.token == claim.token;
        if !is_holder && claim.token > world.forgotten {
            return false;
        }
    }
    believers <= 1
}

/// Whether the store has anything of this claim.
fn is_there(world: &World, claim: usize) -> bool {
    let holder = holder_of(claim);
    let queue = world.store.queue;
    let has_place = queue.items().iter().any(|place| place.holder == holder);
    has_place || world.store.lease.holder == holder
}
