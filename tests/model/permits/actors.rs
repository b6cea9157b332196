//! What readers and writers do when they hear an answer, or want something else.

use super::setup::{Fence, GoesOn, Rule, Setup, Within, Wrong};
use super::world::{Act, Actor, Claim, DOOR, LEFTOVER, Phase, World, holder_number};

impl Setup {
    /// Does it, if it is possible.
    pub(super) fn act(&self, world: &mut World, who: usize, act: Act) -> bool {
        let phase = world.actors[who].phase;
        match act {
            Act::ClaimPermit(permit) => self.claim_permit(world, who, permit),
            Act::Join(permit) => self.join(world, who, permit),
            Act::HearPermit => self.hear_permit(world, who),
            Act::LeavePermit => {
                let is_possible = world.actors[who].permit != 0;
                self.leave_permit(world, who);
                is_possible
            }
            Act::ClaimDoor => self.may_claim_door(world, who) && self.claim_door(world, who),
            Act::HearDoor => self.hear_door(world, who),
            Act::HearYes => self.hear_yes(world, who),
            Act::HearNo => self.hear_no(world, who),
            Act::Hold => self.hold(world, who),
            Act::Leave => {
                let waits = matches!(phase, Phase::Checking | Phase::Joined);
                let waits = waits || phase == Phase::Shared && self.has_inner(world, who);
                let is_possible = !waits || world.actors[who].permit_claim == Claim::Lapsed;
                is_possible && self.leave(world, who, Phase::Idle)
            }
            Act::TurnInner => {
                let is_possible = self.within == Some(Within::Joins) && self.believes(world, who);
                world.actors[who].has_inner ^= true;
                is_possible
            }
            Act::GiveUp => self.leave(world, who, Phase::Idle),
            Act::GoOnAsReader => self.go_on(world, who, GoesOn::AsReader),
            Act::GoOnAsWriter => self.go_on(world, who, GoesOn::AsWriter),
            Act::SendWrite => self.send_write(world, who),
            Act::Die => self.leave(world, who, Phase::Dead),
            Act::Lapse(name) => lapse(world, who, name),
            Act::Granted(name) => self.granted(world, who, name),
            Act::DoorAnswers => self.door_answers(world, who),
            Act::PermitIsFree(permit) => self.permit_is_free(world, who, permit),
            Act::Raise => self.raise(world, who),
            Act::Write => self.write(world, who),
        }
    }

    fn claim_permit(&self, world: &mut World, who: usize, permit: u8) -> bool {
        let may_ask = self.may_ask(world, who);
        let actor = &mut world.actors[who];
        let is_late = self.rule == Rule::DeadlineAtClaim && actor.door == Claim::Lapsed;
        let is_possible = match actor.phase {
            Phase::Idle => self.fast && may_ask,
            _ => actor.permit == 0 && !is_late,
        };
        if actor.phase == Phase::Idle {
            actor.phase = Phase::Claiming;
        }
        (actor.permit, actor.permit_claim) = (permit, Claim::Sent);
        is_possible
    }

    fn join(&self, world: &mut World, who: usize, permit: u8) -> bool {
        let has_turn = |other: &Actor| other.phase == Phase::Taking;
        let is_possible = world.actors[..self.readers].iter().any(has_turn);
        let actor = &mut world.actors[who];
        actor.phase = Phase::Joining;
        (actor.permit, actor.permit_claim) = (permit, Claim::Sent);
        is_possible && self.is_reader(who)
    }

    fn hear_permit(&self, world: &mut World, who: usize) -> bool {
        let actor = &mut world.actors[who];
        if actor.permit_claim != Claim::Granted {
            return false;
        }
        actor.permit_claim = Claim::Heard;
        match (actor.phase, self.rule) {
            (Phase::Joining, _) => actor.phase = Phase::Joined,
            (Phase::Claiming, _) if self.checks_no_door(who) => self.share(world, who),
            (Phase::Claiming, _) => actor.phase = Phase::Checking,
            (_, Rule::Deadline) if actor.door == Claim::Lapsed => {
                return self.claim_door(world, who);
            }
            (_, Rule::Deadline | Rule::DeadlineAtClaim | Rule::AtOnce) => self.share(world, who),
            _ => self.release_door(world, who),
        }
        true
    }

    /// One request for all tasks whose grant was heard before; the others go back.
    fn release_door(&self, world: &mut World, who: usize) {
        world.actors[who].phase = Phase::Releasing;
        for other in 0..self.readers {
            let is_late = world.actors[other].phase == Phase::Joining;
            if is_late && !self.has(Wrong::LateTasksCount) {
                self.leave(world, other, Phase::Idle);
            }
        }
    }

    fn hear_door(&self, world: &mut World, who: usize) -> bool {
        let is_reader = self.is_reader(who);
        let actor = &mut world.actors[who];
        if actor.door != Claim::Granted {
            return false;
        }
        actor.door = Claim::Heard;
        actor.phase = match actor.phase {
            Phase::Queueing if is_reader => Phase::Taking,
            _ => Phase::Inspecting,
        };
        if actor.phase == Phase::Inspecting && is_reader {
            // It does not check its own.
            actor.seen = 1 << (actor.permit - 1);
        }
        true
    }

    fn hear_yes(&self, world: &mut World, who: usize) -> bool {
        let actor = &world.actors[who];
        let is_possible = actor.says_yes && actor.permit_claim != Claim::Lapsed;
        if is_possible {
            self.share(world, who);
        }
        is_possible
    }

    fn hear_no(&self, world: &mut World, who: usize) -> bool {
        let actor = &mut world.actors[who];
        if !actor.says_no {
            return false;
        }
        if actor.phase == Phase::Checking && self.has(Wrong::PermitKeptInQueue) {
            actor.phase = Phase::Queueing;
            actor.door = Claim::Sent;
            return true;
        }
        let queues = actor.phase == Phase::Releasing || self.may_queue(world, who);
        match queues {
            true => self.claim_door(world, who),
            false => self.leave(world, who, Phase::Idle),
        }
    }

    /// The permit counts, and that of each task that has joined.
    fn share(&self, world: &mut World, who: usize) {
        let is_behind = world.actors[who].door != Claim::None;
        let token = is_behind.then_some(world.actors[who].token);
        for other in 0..self.readers {
            let task = &world.actors[other];
            let has_joined = is_behind && task.phase == Phase::Joined;
            if has_joined && task.permit_claim == Claim::Heard {
                self.begin_to_read(world, other, token);
            }
        }
        if is_behind {
            self.end_turn(world);
        }
        self.begin_to_read(world, who, token);
    }

    fn begin_to_read(&self, world: &mut World, who: usize, token: Option<u8>) {
        leave_door(world, who);
        let actor = &mut world.actors[who];
        actor.phase = Phase::Shared;
        actor.is_fenced = token.is_none() && self.fence == Some(Fence::CountedOn);
        actor.raise = token.unwrap_or(actor.above);
        (actor.token, actor.above, actor.seen) = (0, 0, 0);
        (actor.says_yes, actor.says_no) = (false, false);
    }

    fn hold(&self, world: &mut World, who: usize) -> bool {
        let all = (1 << self.permits[who]) - 1;
        let actor = &mut world.actors[who];
        let is_possible = actor.seen & all == all
            && actor.door == Claim::Heard
            && actor.permit_claim != Claim::Lapsed;
        (actor.phase, actor.seen) = (Phase::Exclusive, 0);
        is_possible
    }

    fn go_on(&self, world: &mut World, who: usize, to: GoesOn) -> bool {
        let actor = &mut world.actors[who];
        let is_possible = match to {
            GoesOn::AsReader => actor.door == Claim::Heard,
            GoesOn::AsWriter => actor.permit_claim == Claim::Heard,
        };
        match to {
            GoesOn::AsReader => actor.phase = Phase::Taking,
            GoesOn::AsWriter => (actor.phase, actor.door) = (Phase::Upgrading, Claim::Sent),
        }
        is_possible && self.goes_on == Some(to)
    }

    fn may_claim_door(&self, world: &World, who: usize) -> bool {
        let actor = &world.actors[who];
        match actor.phase {
            Phase::Idle | Phase::Claiming => !self.is_reader(who) || self.may_queue(world, who),
            _ => {
                actor.door == Claim::Lapsed
                    || actor.permit_claim == Claim::Lapsed && actor.phase != Phase::Taking
            }
        }
    }

    /// Of the tasks of one client one queues, and who has a share does not where it is refused another.
    fn may_queue(&self, world: &World, who: usize) -> bool {
        let queues = |other: usize| other != who && world.actors[other].door != Claim::None;
        let is_refused = self.is_within(who) && self.within != Some(Within::Queues);
        let is_first = !self.joins || !(0..self.readers).any(queues);
        self.slow && is_first && !is_refused && self.may_ask(world, who)
    }

    /// Whether it may ask for a permit or the door: within a share only while that is held.
    fn may_ask(&self, world: &World, who: usize) -> bool {
        let outer = &world.actors[0];
        let has_outer = outer.phase == Phase::Shared && outer.permit_claim == Claim::Heard;
        !self.is_within(who) || has_outer
    }

    fn checks_no_door(&self, who: usize) -> bool {
        let passes = self.is_within(who) && self.within == Some(Within::PassesTheDoor);
        passes || self.has(Wrong::DoorNotChecked)
    }

    /// Whether it has a share within its own, or asks for one.
    fn has_inner(&self, world: &World, who: usize) -> bool {
        let asks = !matches!(world.actors[1].phase, Phase::Idle | Phase::Dead);
        world.actors[who].has_inner || who == 0 && self.is_within(1) && asks
    }

    fn claim_door(&self, world: &mut World, who: usize) -> bool {
        let seen = world.actors[who].seen;
        self.leave(world, who, Phase::Queueing);
        let actor = &mut world.actors[who];
        actor.door = Claim::Sent;
        if self.has(Wrong::PermitChecksKept) {
            actor.seen = seen;
        }
        true
    }

    /// Gives all back, and forgets all but what is on its way.
    fn leave(&self, world: &mut World, who: usize, phase: Phase) -> bool {
        if world.actors[who].door != Claim::None && self.is_reader(who) {
            self.end_turn(world);
        }
        self.leave_permit(world, who);
        leave_door(world, who);
        let actor = &mut world.actors[who];
        actor.phase = phase;
        (actor.seen, actor.token, actor.above) = (0, 0, 0);
        (actor.is_fenced, actor.has_inner) = (false, false);
        true
    }

    /// The permits of the other tasks do not count.
    fn end_turn(&self, world: &mut World) {
        for other in 0..self.readers {
            if matches!(world.actors[other].phase, Phase::Joining | Phase::Joined) {
                self.leave(world, other, Phase::Idle);
            }
        }
    }

    fn leave_permit(&self, world: &mut World, who: usize) {
        let permit = world.actors[who].permit;
        if permit != 0 {
            leave_name(world, who, permit);
        }
        let actor = &mut world.actors[who];
        actor.permit = 0;
        if !self.has(Wrong::DoorCheckKept) {
            (actor.says_yes, actor.says_no) = (false, false);
        }
    }
}

fn leave_door(world: &mut World, who: usize) {
    if world.actors[who].door != Claim::None {
        leave_name(world, who, DOOR);
    }
}

/// Its claim stays behind.
fn leave_name(world: &mut World, who: usize, name: u8) {
    *world.claim(who, name) = Claim::None;
    world.leftovers |= 1 << name;
    let by = &mut world.holders[usize::from(name)];
    if *by == holder_number(who) {
        *by = LEFTOVER;
    }
}

fn lapse(world: &mut World, who: usize, name: u8) -> bool {
    let claim = world.claim(who, name);
    let is_possible = !matches!(claim, Claim::None | Claim::Lapsed);
    *claim = Claim::Lapsed;
    is_possible
}
