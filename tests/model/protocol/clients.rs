//! What holders and adopting clients do.

use leasehold::store::quorum::protocol::Absence;

use super::library::{ID, MAX_TTL_US, keep_member};
use super::node::Writing;
use super::rules::Wrong;
use super::setup::Setup;
use super::world::{Adopting, Claimant, Heard, Lease, Promise, World};

impl Setup {
    pub(super) fn claim(&self, world: &mut World, holder: usize, token: u8) -> bool {
        let name = usize::from(self.names[holder]);
        let claimant = &mut world.holders[holder];
        let round = usize::from(claimant.rounds);
        claimant.tokens[round] = token;
        claimant.claims |= 1 << round;
        claimant.rounds += 1;
        claimant.has_ended = false;
        claimant.after = highest(world.granted[name]);
        world.proposed = world.proposed.max(token);
        self.forget_answers(world, holder);
        true
    }

    pub(super) fn renew(&self, world: &mut World, holder: usize, _: u8) -> bool {
        let name = usize::from(self.names[holder]);
        let is_evicted = is_evicted(world, holder);
        let claimant = &mut world.holders[holder];
        let round = usize::from(claimant.rounds);
        let token = claimant.token();
        claimant.tokens[round] = token;
        claimant.overtaken |= u8::from(highest(world.granted[name]) > token) << round;
        claimant.after_eviction |= u8::from(is_evicted) << round;
        claimant.rounds += 1;
        // The eviction is done, or repeated, within its limit: what is evicted lasts one ttl longer than that.
        if !is_evicted && !self.rules.has(Wrong::EvictionNotLonger) {
            for lease in world
                .members
                .iter_mut()
                .map(|server| &mut server.data.leases[name])
            {
                if lease.is_evicted && usize::from(lease.by) == holder + 1 {
                    lease.rounds |= 1 << round;
                }
            }
        }
        self.forget_answers(world, holder);
        true
    }

    /// The answers to earlier rounds do not count; what was vouched for is on its way.
    pub(super) fn forget_answers(&self, world: &mut World, holder: usize) {
        let confirmed = world.holders[holder].confirmed;
        for server in &mut world.members {
            let heard = &mut server.heard[holder];
            let vouched = heard.low.1 > 0 && Claimant::has(confirmed, usize::from(heard.low.1) - 1);
            *heard = Heard {
                yes: if self.rules.has(Wrong::AnyYesCounts) {
                    heard.yes
                } else {
                    0
                },
                low: if vouched {
                    heard.low
                } else {
                    Default::default()
                },
            };
        }
    }

    pub(super) fn has_a_majority(&self, world: &World, holder: usize) -> bool {
        let claimant = &world.holders[holder];
        let round = claimant.last();
        let is_late = Claimant::has(claimant.lapsed, round);
        let is_yes = |server: &&u8| {
            let yes = world.members[usize::from(**server)].heard[holder].yes;
            Claimant::has(yes, round) || self.rules.has(Wrong::AnyYesCounts) && yes != 0
        };
        let yes = self.servers.iter().filter(is_yes).count();
        match Claimant::has(claimant.claims, round) {
            true => self.rules.is_granted(self.servers.len(), yes, is_late),
            false => self.rules.is_renewed(self.servers.len(), yes, is_late),
        }
    }

    pub(super) fn count(&self, world: &mut World, holder: usize) {
        let claimant = world.holders[holder];
        let round = claimant.last();
        let name = usize::from(self.names[holder]);
        world.holders[holder].confirmed |= 1 << round;
        for server in &mut world.members {
            server.heard[holder].yes = 0;
        }
        let token = claimant.tokens[round];
        if Claimant::has(claimant.claims, round) {
            let is_again = world.granted[name] >> token & 1 == 1;
            if token <= claimant.after || is_again {
                self.broke(world, Promise::TokensRise);
            }
            world.granted[name] |= 1 << token;
            if (0..self.names.len()).any(|other| {
                other != holder && self.names[other] == self.names[holder] && is_kept(world, other)
            }) {
                self.broke(world, Promise::KeptIsNotGranted);
            }
        } else if Claimant::has(claimant.overtaken, round) {
            self.broke(world, Promise::OvertakenIsNotRenewed);
        } else if Claimant::has(claimant.after_eviction, round) {
            self.broke(world, Promise::EvictedIsNotRenewed);
        }
        let rivals = (0..self.names.len()).filter(|other| self.names[*other] == self.names[holder]);
        if self.keeps_time && rivals.filter(|other| self.believes(world, *other)).count() > 1 {
            self.broke(world, Promise::OneHolder);
        }
    }

    pub(super) fn believes(&self, world: &World, holder: usize) -> bool {
        let claimant = &world.holders[holder];
        let lapsed = match self.rules.has(Wrong::BelievesLonger) {
            true => claimant.lapsed & !(1 << claimant.last()),
            false => claimant.lapsed,
        };
        claimant.present() & claimant.confirmed & !lapsed != 0 && !claimant.has_ended
    }

    pub(super) fn adopt(&self, world: &mut World, member: usize, _: u8) -> bool {
        let server = &world.members[member];
        if !self.has_kept_out(world, server) && !self.rules.has(Wrong::AdoptionAsksEarly) {
            return false;
        }
        let found = server.incarnation;
        let free = world
            .adoptions
            .iter_mut()
            .find(|adopting| adopting.target == 0);
        *free.expect("counted") = Adopting {
            target: member as u8 + 1,
            found,
            ..Adopting::default()
        };
        true
    }

    pub(super) fn ask(&self, world: &mut World, adoption: usize, member: u8) -> bool {
        let member = usize::from(member);
        let adopting = world.adoptions[adoption];
        let bit = 1 << member;
        let is_target = usize::from(adopting.target) == member + 1;
        // Two names of one server: the other name is one that is asked.
        let is_other = !is_target
            || self
                .servers
                .iter()
                .filter(|server| usize::from(**server) == member)
                .count()
                > 1;
        if !is_other || (adopting.inside | adopting.outside) & bit != 0 {
            return false;
        }
        let server = world.members[member];
        let is_in = self
            .node(&server)
            .look(ID, &self.at(world, &server))
            .is_ok();
        let proposed = world.proposed;
        let adopting = &mut world.adoptions[adoption];
        match is_in {
            true => {
                adopting.inside |= bit;
                adopting.highest = adopting.highest.max(server.data.max);
            }
            false => adopting.outside |= bit,
        }
        if self.has_a_clock {
            adopting.clock = proposed;
        }
        true
    }

    pub(super) fn write(&self, world: &mut World, adoption: usize, _: u8) -> bool {
        let adopting = world.adoptions[adoption];
        let member = usize::from(adopting.target) - 1;
        let is_target = |server: &u8| usize::from(*server) == member;
        let target = self.servers.iter().position(is_target);
        let absent = || Some(Err(Absence::Away(0)));
        let told = |(index, server): (usize, &u8)| {
            if Some(index) == target {
                absent()
            } else if adopting.inside >> server & 1 == 1 {
                Some(Ok(adopting.highest.into()))
            } else if adopting.outside >> server & 1 == 1 {
                absent()
            } else {
                None
            }
        };
        let answers: Vec<_> = self.servers.iter().enumerate().map(told).collect();
        let Some(highest) = self.rules.highest(&answers, adopting.clock.into()) else {
            return false;
        };
        let writing = Writing {
            id: ID,
            max_ttl_us: MAX_TTL_US,
            found: adopting.found,
            highest,
        };
        let server = world.members[member];
        let at = self.at(world, &server);
        let mut node = self.node(&server);
        self.rules.adopt(&mut node, &writing, &at);
        let before = world.clone();
        world.adoptions[adoption].has_written = true;
        let server = &mut world.members[member];
        let was_out = server.data.came_in != server.incarnation;
        keep_member(&node, &mut server.data);
        if was_out && server.data.came_in == server.incarnation {
            if self.rules.has(Wrong::AdoptionKeepsLeases) {
                for lease in &mut server.data.leases {
                    lease.floor = server.data.floor;
                }
            }
            // What does not count any more needs no room.
            for lease in &mut server.data.leases {
                let is_kept = lease.is_kept && !self.rules.has(Wrong::AdoptionForgetsKept);
                if lease.floor != server.data.floor && !is_kept {
                    *lease = Lease::default();
                }
            }
            server.given_up = Default::default();
            server.over = Default::default();
            server.asked_to_evict = 0;
            if !self.evictions_last {
                server.evicted = 0;
            }
        }
        *world != before
    }

    pub(super) fn broke(&self, world: &mut World, promise: Promise) {
        if self.asked.contains(&promise) {
            world.broken = Some(promise);
        }
    }
}

/// Whether a majority has evicted a holder.
pub(super) fn is_evicted(world: &World, holder: usize) -> bool {
    let evicted = world
        .members
        .iter()
        .filter(|server| server.evicted >> holder & 1 == 1);
    evicted.count() > world.members.len() / 2
}

/// Whether a majority has kept the name of a holder taken.
fn is_kept(world: &World, holder: usize) -> bool {
    let kept = world
        .members
        .iter()
        .filter(|server| server.kept >> holder & 1 == 1);
    kept.count() > world.members.len() / 2
}

pub(super) fn highest(tokens: u16) -> u8 {
    15_u32.saturating_sub(tokens.leading_zeros()) as u8
}
