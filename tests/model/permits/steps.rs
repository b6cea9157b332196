//! Which steps are possible, what they lead to, and their names.

use super::setup::Setup;
use super::world::{Act, Actor, DOOR, Fate, NAMES, Phase, Promise, Step, World, holder_number};
use crate::search::Space;
use crate::serving::Serving;

impl Space for Setup {
    type State = World;
    type Step = Step;

    fn first(&self) -> World {
        World::default()
    }

    fn steps(&self, world: &World, steps: &mut Vec<Step>) {
        for who in 0..self.actors() {
            let add = |act| steps.push(Step::Actor(who as u8, act));
            self.steps_of_actor(world, who, add);
        }
        for name in 0..NAMES as u8 {
            let fates = [Fate::Ends, Fate::EndsEarly, Fate::LeftoverTakes];
            steps.extend(fates.map(|fate| Step::Name(name, fate)));
        }
    }

    fn go(&self, world: &World, step: Step) -> Option<World> {
        let mut next = *world;
        let is_possible = match step {
            Step::Actor(who, act) => self.act(&mut next, who.into(), act),
            Step::Name(name, fate) => self.fate(&mut next, name, fate),
        };
        is_possible.then_some(next)
    }

    fn settle(&self, world: &mut World) {
        if self.fence.is_some() {
            self.renumber(world);
        }
        let mut swapped = *world;
        self.order_actors(world);
        if self.permits.iter().all(|known| *known == 2) {
            swap_permits(&mut swapped);
            self.order_actors(&mut swapped);
            *world = swapped.min(*world);
        }
    }

    fn broken(&self, world: &World) -> Option<&'static str> {
        let broken = self
            .asked
            .iter()
            .find(|asked| !self.is_kept(world, **asked));
        broken.map(|promise| promise.name())
    }

    fn describe(&self, world: &World, step: Step) -> String {
        let name = |name: u8| match name {
            DOOR => "the door".to_owned(),
            permit => format!("p{permit}"),
        };
        match step {
            Step::Name(of, Fate::LeftoverTakes) => format!("a leftover claim takes {}", name(of)),
            Step::Name(of, Fate::Ends) => format!("{} becomes free", name(of)),
            Step::Name(of, Fate::EndsEarly) => format!("{} is evicted", name(of)),
            Step::Actor(who, act) => {
                let who = usize::from(who);
                let actor = &world.actors[who];
                let own = name(actor.permit);
                let does = match act {
                    Act::ClaimPermit(permit) => format!("claims p{permit}"),
                    Act::Join(permit) => format!("claims p{permit} at the turn of another task"),
                    Act::HearPermit => format!("hears of {own}"),
                    Act::LeavePermit => format!("leaves {own}"),
                    Act::ClaimDoor => "claims the door".to_owned(),
                    Act::Granted(of) => format!("gets {}", name(of)),
                    Act::Lapse(of) => format!("is past its deadline of {}", name(of)),
                    Act::PermitIsFree(permit) => format!("sees p{permit} free"),
                    Act::DoorAnswers if actor.phase == Phase::Releasing => {
                        "asks of its door".to_owned()
                    }
                    Act::DoorAnswers => "checks the door".to_owned(),
                    act => format!("{act:?}"),
                };
                match self.is_reader(who) {
                    true => format!("r{} {does}", who + 1),
                    false => format!("w{} {does}", who + 1 - self.readers),
                }
            }
        }
    }
}

impl Serving for Setup {
    fn may_need(&self, step: Step) -> bool {
        let is_bad = |act| matches!(act, Act::Die | Act::GiveUp | Act::Lapse(_));
        match step {
            Step::Actor(_, act) => !is_bad(act),
            Step::Name(_, fate) => fate != Fate::EndsEarly,
        }
    }

    fn served(&self, world: &World) -> u8 {
        let served = (0..self.actors()).filter(|who| self.is_served(world, *who));
        served.fold(0, |served, who| served | 1 << who)
    }

    fn waiters(&self) -> u8 {
        (1 << self.actors()) - 1
    }
}

impl Promise {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Apart => "X1",
            Self::OnePermitEach => "X2",
            Self::Fenced => "X4",
            Self::NotRefused => "X5",
            Self::ApartForGood => "X1L",
        }
    }
}

/// Which steps may be possible.
impl Setup {
    fn steps_of_actor(&self, world: &World, who: usize, mut add: impl FnMut(Act)) {
        let actor = &world.actors[who];
        let permits = 1..=self.permits[who];
        if actor.phase == Phase::Taking || actor.phase == Phase::Idle && self.is_reader(who) {
            permits.clone().map(Act::ClaimPermit).for_each(&mut add);
        }
        if self.joins && actor.phase == Phase::Idle {
            permits.clone().map(Act::Join).for_each(&mut add);
        }
        if !self.is_reader(who) || actor.phase == Phase::Inspecting {
            permits.map(Act::PermitIsFree).for_each(&mut add);
        }
        onwards(actor.phase).iter().copied().for_each(&mut add);
        let permit = (actor.permit != 0).then_some(actor.permit);
        for name in permit.into_iter().chain([DOOR]) {
            add(Act::Granted(name));
            add(Act::Lapse(name));
        }
        add(Act::DoorAnswers);
        if self.fence.is_some() {
            add(Act::Raise);
            add(Act::Write);
        }
        if self.deaths && !matches!(actor.phase, Phase::Idle | Phase::Dead) {
            add(Act::Die);
        }
    }

    /// Sorts the actors that are alike.
    fn order_actors(&self, world: &mut World) {
        // Who is served is asked of each actor by its index.
        if self.deaths {
            return;
        }
        for end in 1..self.actors() {
            let mut at = end;
            while at > 0 && self.are_alike(at - 1, at) && key(world, at) < key(world, at - 1) {
                swap_actors(world, at - 1);
                at -= 1;
            }
        }
    }
}

/// What an actor may do next, but for the claim of a permit.
fn onwards(phase: Phase) -> &'static [Act] {
    match phase {
        Phase::Idle => &[Act::ClaimDoor],
        Phase::Claiming => &[Act::HearPermit, Act::Leave, Act::ClaimDoor],
        Phase::Checking => &[Act::HearYes, Act::HearNo, Act::Leave],
        Phase::Shared => &[Act::Leave, Act::TurnInner, Act::GoOnAsWriter],
        Phase::Queueing | Phase::Upgrading => &[Act::HearDoor, Act::GiveUp, Act::ClaimDoor],
        Phase::Taking => &[
            Act::HearPermit,
            Act::LeavePermit,
            Act::GiveUp,
            Act::ClaimDoor,
        ],
        Phase::Releasing => &[Act::HearYes, Act::HearNo, Act::ClaimDoor],
        Phase::Inspecting => &[Act::Hold, Act::GiveUp, Act::ClaimDoor],
        Phase::Exclusive => &[Act::SendWrite, Act::GoOnAsReader, Act::Leave],
        Phase::Joining => &[Act::HearPermit, Act::Leave],
        Phase::Joined => &[Act::Leave],
        Phase::Dead => &[],
    }
}

/// An actor and what it has.
fn key(world: &World, who: usize) -> (&Actor, [bool; NAMES]) {
    (
        &world.actors[who],
        world.holders.map(|by| by == holder_number(who)),
    )
}

/// Exchanges an actor and the one after it.
fn swap_actors(world: &mut World, one: usize) {
    let other = one + 1;
    world.actors.swap(one, other);
    for by in &mut world.holders {
        if *by == holder_number(one) {
            *by = holder_number(other);
        } else if *by == holder_number(other) {
            *by = holder_number(one);
        }
    }
}

fn swap_permits(world: &mut World) {
    // Of bits, the first and the second.
    let swapped = |bits: u8| bits & !3 | (bits & 1) << 1 | bits >> 1 & 1;
    world.holders.swap(1, 2);
    world.leftovers = swapped(world.leftovers >> 1) << 1 | world.leftovers & 1;
    for actor in &mut world.actors {
        actor.permit = swapped(actor.permit);
        actor.seen = swapped(actor.seen);
    }
}
