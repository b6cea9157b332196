//! What becomes of claims, leases and checks of the store.

use super::setup::{Fence, Rule, Setup, Wrong};
use super::world::{Claim, DOOR, FREE, Fate, LEFTOVER, Phase, World, holder_number};

impl Setup {
    /// A claim is executed and takes its free name. An actor that knows an earlier grant of it does not know this
    /// token.
    pub(super) fn granted(&self, world: &mut World, who: usize, name: u8) -> bool {
        let claim = *world.claim(who, name);
        let is_claimed = name == DOOR || name == world.actors[who].permit;
        if claim == Claim::None || !is_claimed || world.holders[usize::from(name)] != FREE {
            return false;
        }
        let is_known = matches!(claim, Claim::Sent | Claim::Granted);
        let by_holder = matches!(self.rule, Rule::FreeOrOwn | Rule::OwnByHolder);
        if is_known {
            *world.claim(who, name) = Claim::Granted;
        }
        let is_own = is_known || name == DOOR && by_holder && self.is_reader(who);
        world.holders[usize::from(name)] = if is_own { holder_number(who) } else { LEFTOVER };
        if name == DOOR && self.fence.is_some() {
            world.last += 2;
            if is_known {
                world.actors[who].token = world.last;
            }
        }
        true
    }

    pub(super) fn fate(&self, world: &mut World, name: u8, fate: Fate) -> bool {
        let at = usize::from(name);
        let by = world.holders[at];
        let has_lapsed = by == LEFTOVER
            || by != FREE && *world.claim(usize::from(by) - 1, name) == Claim::Lapsed;
        let is_possible = match fate {
            Fate::Ends => by != FREE && has_lapsed,
            Fate::EndsEarly => self.ends_early && by != FREE && !has_lapsed,
            Fate::LeftoverTakes => by == FREE && world.leftovers >> name & 1 == 1,
        };
        if is_possible {
            world.holders[at] = FREE;
        }
        if is_possible && fate == Fate::LeftoverTakes {
            world.holders[at] = LEFTOVER;
            if name == DOOR && self.fence.is_some() {
                world.last += 2;
            }
        }
        is_possible
    }

    /// A check of the door, or its release, is executed.
    pub(super) fn door_answers(&self, world: &mut World, who: usize) -> bool {
        let actor = &world.actors[who];
        let (phase, has_permit) = (actor.phase, actor.permit_claim == Claim::Granted);
        let is_early = match phase {
            Phase::Claiming => self.has(Wrong::DoorCheckedEarly) || self.one_session && has_permit,
            Phase::Taking => self.one_session && has_permit && self.rule == Rule::FreeOrOwn,
            _ => false,
        };
        if !is_early && !matches!(phase, Phase::Checking | Phase::Releasing) {
            return false;
        }
        let is_behind = matches!(phase, Phase::Taking | Phase::Releasing);
        let says_yes = self.says_yes(world, who, is_behind);
        let raises = self.fence == Some(Fence::AboveTheLast) && says_yes && !is_behind;
        let is_release = phase == Phase::Releasing && self.rule == Rule::Release;
        if is_release && says_yes {
            world.holders[usize::from(DOOR)] = FREE;
        }
        let last = world.last;
        let actor = &mut world.actors[who];
        if raises {
            actor.above = last + 1;
        }
        actor.says_yes |= says_yes || self.has(Wrong::DoorCheckIsStale);
        actor.says_no |= !says_yes;
        true
    }

    /// Whether the door is as the actor needs it: own, or for one that did not come through it free.
    fn says_yes(&self, world: &World, who: usize, is_behind: bool) -> bool {
        let by = world.holders[usize::from(DOOR)];
        let by_client =
            self.has(Wrong::OwnByClient) && who == 0 && by == holder_number(self.actors() - 1);
        let by_reader = by != FREE && by != LEFTOVER && self.is_reader(usize::from(by) - 1);
        if is_behind {
            let is_own = by == holder_number(who) || by_client;
            return is_own || by == FREE && self.rule == Rule::FreeOrOwn;
        }
        by == FREE || by_client || by_reader && self.has(Wrong::ReadersDoorIsFree)
    }

    /// A check of a permit is executed, and shows it free.
    pub(super) fn permit_is_free(&self, world: &mut World, who: usize, permit: u8) -> bool {
        let actor = &world.actors[who];
        let is_stale = self.has(Wrong::PermitCheckIsStale);
        let is_early = actor.phase == Phase::Queueing
            && !self.is_reader(who)
            && (is_stale
                || self.has(Wrong::PermitsCheckedEarly)
                || self.one_session && actor.door == Claim::Granted);
        let is_free = world.holders[usize::from(permit)] == FREE || is_stale;
        if !(is_early || actor.phase == Phase::Inspecting) || !is_free {
            return false;
        }
        world.actors[who].seen |= 1 << (permit - 1);
        true
    }
}
