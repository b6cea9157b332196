//! Which steps are possible, and where each is done.

use super::rules::Wrong;
use super::setup::Setup;
use super::world::{Adopting, Claimant, Loss, Promise, Server, Step, World};
use crate::search::Space;

impl Space for Setup {
    type State = World;
    type Step = Step;

    fn first(&self) -> World {
        let mut server = Server::default();
        server.data.came_in = 1;
        server.incarnation = 1;
        let servers = self.servers.iter().max().map_or(0, |server| server + 1);
        World {
            members: vec![server; usize::from(servers)],
            holders: Default::default(),
            adoptions: Default::default(),
            granted: [0; 2],
            proposed: 0,
            losses: 0,
            others: 0,
            broken: None,
        }
    }

    fn steps(&self, world: &World, steps: &mut Vec<Step>) {
        for holder in 0..self.names.len() as u8 {
            self.steps_of_holder(world, holder, steps);
        }
        for member in 0..world.members.len() as u8 {
            self.steps_of_member(world, member, steps);
        }
        for (adoption, adopting) in world.adoptions.iter().enumerate() {
            if adopting.target == 0 {
                continue;
            }
            if !adopting.has_written {
                let members = 0..world.members.len() as u8;
                steps.extend(members.map(|member| Step::Ask(adoption as u8, member)));
            }
            steps.push(Step::Write(adoption as u8));
        }
    }

    fn go(&self, world: &World, step: Step) -> Option<World> {
        let at_member = |member: u8, done: Option<(Server, Option<Promise>)>| {
            let (server, broken) = done?;
            let member = usize::from(member);
            if server == world.members[member] {
                return None;
            }
            let mut next = world.clone();
            next.members[member] = server;
            if let Some(promise) = broken {
                self.broke(&mut next, promise);
            }
            Some(next)
        };
        let with = |change: fn(&Self, &mut World, usize, u8) -> bool, one: u8, other: u8| {
            let mut next = world.clone();
            change(self, &mut next, one.into(), other).then_some(next)
        };
        match step {
            Step::Arrive(holder, round, member) => {
                at_member(member, self.arrive(world, holder, round, member))
            }
            Step::Low(holder, member) => at_member(member, self.low(world, holder, member)),
            Step::Vouched(holder, member) => at_member(member, self.vouched(world, holder, member)),
            Step::Free(holder, round, member) => {
                at_member(member, self.free(world, holder, round, member))
            }
            Step::Evicted(holder, member) => at_member(member, self.evicted(world, holder, member)),
            Step::Expire(member, name) => at_member(member, self.expire(world, member, name)),
            Step::Claim(holder, token) => with(Self::claim, holder, token),
            Step::Renew(holder) => with(Self::renew, holder, 0),
            Step::Count(holder) => self.has_a_majority(world, holder.into()).then(|| {
                let mut next = world.clone();
                self.count(&mut next, holder.into());
                next
            }),
            Step::Lapse(holder, round) => {
                let mut next = world.clone();
                next.holders[usize::from(holder)].lapsed |= 1 << round;
                Some(next)
            }
            Step::End(holder) => {
                let mut next = world.clone();
                let claimant = &mut next.holders[usize::from(holder)];
                claimant.has_ended = true;
                claimant.back |= 1 << claimant.last();
                Some(next)
            }
            Step::Evict(holder) => {
                let mut next = world.clone();
                next.holders[usize::from(holder)].is_evicted = true;
                Some(next)
            }
            Step::Copy(member) => {
                let mut next = world.clone();
                let server = &mut next.members[usize::from(member)];
                server.copy = Some(server.data);
                Some(next)
            }
            Step::Other(member, token) => with(Self::other, member, token),
            Step::Lose(member, loss) => {
                let mut next = world.clone();
                self.lose(&mut next, member.into(), loss).then_some(next)
            }
            Step::Adopt(member) => with(Self::adopt, member, 0),
            Step::Ask(adoption, member) => with(Self::ask, adoption, member),
            Step::Write(adoption) => with(Self::write, adoption, 0),
        }
    }

    fn settle(&self, world: &mut World) {
        if self.servers.len() != world.members.len() {
            return;
        }
        let role = |member: usize| {
            let of = |adopting: Adopting| {
                let bit = |bits: u8| bits >> member & 1;
                let is_target = usize::from(adopting.target) == member + 1;
                (is_target, bit(adopting.inside), bit(adopting.outside))
            };
            world.adoptions.map(of)
        };
        let mut order: Vec<usize> = (0..world.members.len()).collect();
        order.sort_by_key(|member| (world.members[*member], role(*member)));
        if order.is_sorted() {
            world.adoptions.sort();
            return;
        }
        let position = |member: usize| order.iter().position(|other| *other == member);
        let moved = |bits: u8| {
            let is_set = |position: &usize| bits >> order[*position] & 1 == 1;
            (0..order.len())
                .filter(is_set)
                .fold(0, |bits, position| bits | 1 << position)
        };
        for adopting in &mut world.adoptions {
            if let Some(member) = usize::from(adopting.target).checked_sub(1) {
                adopting.target = position(member).expect("a member") as u8 + 1;
            }
            adopting.inside = moved(adopting.inside);
            adopting.outside = moved(adopting.outside);
        }
        world.adoptions.sort();
        world.members = order.iter().map(|member| world.members[*member]).collect();
    }

    fn broken(&self, world: &World) -> Option<&'static str> {
        let is_asked = |promise: Promise| self.asked.contains(&promise);
        let promise = if let Some(promise) = world.broken {
            promise
        } else if is_asked(Promise::GrantedInTheEnd) && !self.is_granted_in_the_end(world) {
            Promise::GrantedInTheEnd
        } else if is_asked(Promise::Repaired) && !self.is_repaired(world) {
            Promise::Repaired
        } else {
            return None;
        };
        Some(match promise {
            Promise::OneHolder => "P1 (one holder)",
            Promise::TokensRise => "P2 (tokens rise)",
            Promise::GivenUpStaysGivenUp => "P3 (given up, and back)",
            Promise::OvertakenIsNotRenewed => "Z (overtaken, and renewed)",
            Promise::EvictedIsNotRenewed => "E (evicted, and renewed)",
            Promise::GrantedInTheEnd => "P4 (never granted again)",
            Promise::Repaired => "R (cannot be repaired)",
            Promise::KeptIsNotGranted => "K",
            Promise::ReachesARepair => "(reached)",
        })
    }

    fn describe(&self, world: &World, step: Step) -> String {
        let member = |member: u8| char::from(b'A' + member);
        let round = |holder: u8, round: u8| {
            let claimant = &world.holders[usize::from(holder)];
            let token = claimant.tokens[usize::from(round)];
            match Claimant::has(claimant.claims, round.into()) {
                true => format!("h{}'s claim {token}", holder + 1),
                false => format!("h{}'s renewal {round} of {token}", holder + 1),
            }
        };
        match step {
            Step::Claim(holder, token) => format!("h{} sends claim {token}", holder + 1),
            Step::Renew(holder) => format!("h{} sends a renewal", holder + 1),
            Step::Arrive(holder, at, to) => format!("{} reaches {}", round(holder, at), member(to)),
            Step::Low(holder, to) => {
                let last = world.holders[usize::from(holder)].last() as u8;
                format!("{} is too low at {}", round(holder, last), member(to))
            }
            Step::Vouched(holder, to) => {
                format!("h{}'s vouched repair reaches {}", holder + 1, member(to))
            }
            Step::Count(holder) => format!("h{} counts a majority", holder + 1),
            Step::Lapse(holder, at) => format!("one ttl since {}", round(holder, at)),
            Step::Expire(at, name) => format!("name {name} expires at {}", member(at)),
            Step::End(holder) => format!("h{} takes back or releases", holder + 1),
            Step::Free(holder, at, to) => {
                format!(
                    "the release of {} reaches {}",
                    round(holder, at),
                    member(to)
                )
            }
            Step::Evict(holder) => format!("h{} is to be evicted", holder + 1),
            Step::Evicted(holder, at) => format!("{} evicts h{}", member(at), holder + 1),
            Step::Other(at, token) => format!("another name takes {token} at {}", member(at)),
            Step::Lose(at, loss) => format!("{} is lost ({loss:?})", member(at)),
            Step::Copy(at) => format!("a copy of {} is made", member(at)),
            Step::Adopt(at) => format!("a client finds {} after its keep-out", member(at)),
            Step::Ask(adoption, of) => format!("adopter {adoption} asks {}", member(of)),
            Step::Write(adoption) => {
                let target = world.adoptions[usize::from(adoption)].target;
                format!("adopter {adoption} writes {}", member(target - 1))
            }
        }
    }
}

/// Which steps are possible.
impl Setup {
    fn steps_of_holder(&self, world: &World, holder: u8, steps: &mut Vec<Step>) {
        let index = usize::from(holder);
        let claimant = &world.holders[index];
        let members = world.members.len() as u8;
        let last = claimant.last();
        let is_confirmed = Claimant::has(claimant.confirmed, last);
        let is_claiming = claimant.rounds > 0 && Claimant::has(claimant.claims, last);
        let believes = self.believes(world, index);
        // Of holders that are alike, one begins first.
        let waits = claimant.rounds == 0
            && index > 0
            && world.holders[index - 1].rounds == 0
            && (self.names[index], self.rounds[index], self.claims[index])
                == (
                    self.names[index - 1],
                    self.rounds[index - 1],
                    self.claims[index - 1],
                )
            && self.tokens[index] == self.tokens[index - 1];
        let has_rounds = claimant.rounds < self.rounds[index];
        if has_rounds
            && !waits
            && !believes
            && claimant.claims.count_ones() < u32::from(self.claims[index])
        {
            let again = claimant.rounds > 0 && !self.rules.has(Wrong::SameTokenAgain);
            let least = claimant.token() + u8::from(again || claimant.rounds == 0);
            let tokens = self.tokens[index].iter().filter(|token| **token >= least);
            steps.extend(tokens.map(|token| Step::Claim(holder, *token)));
        }
        for round in 0..claimant.rounds {
            steps.extend((0..members).map(|member| Step::Arrive(holder, round, member)));
            if Claimant::has(claimant.back, round.into()) {
                steps.extend((0..members).map(|member| Step::Free(holder, round, member)));
            }
            if self.keeps_time && !Claimant::has(claimant.lapsed, round.into()) {
                steps.push(Step::Lapse(holder, round));
            }
        }
        if claimant.rounds == 0 {
            return;
        }
        if !is_confirmed && !claimant.has_ended {
            steps.push(Step::Count(holder));
        }
        if !is_claiming {
            steps.extend((0..members).map(|member| Step::Low(holder, member)));
        }
        steps.extend((0..members).map(|member| Step::Vouched(holder, member)));
        if claimant.confirmed != 0 && !claimant.has_ended {
            let may_renew = !self.keeps_time || believes || self.renews_late;
            // After a new claim its own grant comes first.
            if has_rounds && may_renew && (is_confirmed || !is_claiming) {
                steps.push(Step::Renew(holder));
            }
            if self.evictions && !claimant.is_evicted {
                steps.push(Step::Evict(holder));
            }
        }
        // Where names are kept, only what was granted is given up: for the sake of room.
        let may_end = is_confirmed || !self.keeps_names;
        if self.releases && may_end && !claimant.has_ended {
            steps.push(Step::End(holder));
        }
        if claimant.is_evicted {
            steps.extend((0..members).map(|member| Step::Evicted(holder, member)));
        }
    }

    fn steps_of_member(&self, world: &World, member: u8, steps: &mut Vec<Step>) {
        let server = &world.members[usize::from(member)];
        for (name, lease) in server.data.leases.iter().enumerate() {
            if lease.by != 0 {
                steps.push(Step::Expire(member, name as u8));
            }
        }
        if world.others < self.others {
            let mark = server.data.mark.max(server.data.floor);
            let highest = self.tokens.iter().flatten().max().expect("some tokens");
            let tokens = mark + 1..=(mark + 1).max(*highest);
            steps.extend(tokens.map(|token| Step::Other(member, token)));
        }
        if world.losses < self.losses {
            steps.extend(self.kinds.iter().map(|loss| Step::Lose(member, *loss)));
            let copies = self
                .kinds
                .iter()
                .any(|loss| matches!(loss, Loss::Copy | Loss::LateCopy));
            if copies && world.members.iter().all(|server| server.copy.is_none()) {
                steps.push(Step::Copy(member));
            }
        }
        let adopting = world
            .adoptions
            .iter()
            .filter(|adopting| adopting.target != 0);
        if server.data.came_in != server.incarnation && adopting.count() < self.adoptions.into() {
            steps.push(Step::Adopt(member));
        }
    }
}
