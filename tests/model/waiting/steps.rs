//! Which steps are possible, what they lead to, and their names.

use super::setup::{Kind, Setup};
use super::world::{
    Act, CLAIMS, CLIENTS, Claim, Due, EACH, Fault, NOBODY, NOTICES, Of, Phase, Promise, Row, Step,
    Store, World, claims_of, client_of,
};
use crate::search::Space;

impl Space for Setup {
    type State = World;
    type Step = Step;

    fn first(&self) -> World {
        let mut world = World {
            faults: self.faults,
            gains: self.gains,
            ..World::default()
        };
        for client in 0..CLIENTS {
            let waiters = usize::from(self.waiters[client]);
            for claim in claims_of(client).take(waiters) {
                world.claims[claim].phase = Phase::Waiting;
            }
        }
        world
    }

    fn steps(&self, world: &World, steps: &mut Vec<Step>) {
        let clients = self.waiters.iter().filter(|waiters| **waiters > 0).count();
        for claim in 0..clients * EACH {
            let acts = [
                Act::Poll,
                Act::Renew,
                Act::CarriedOut,
                Act::Hear,
                Act::Abandon,
                Act::CarriedOutLate,
                Act::Leave,
                Act::Released(false),
                Act::Released(true),
            ];
            if world.claims[claim] != Claim::default() {
                steps.extend(acts.map(|act| Step::Claim(claim as u8, act)));
            }
        }
        for client in 0..clients as u8 {
            let notices = 0..NOTICES as u8;
            steps.extend(notices.map(|slot| Step::Client(client, Of::Notice(slot))));
            steps.push(Step::Client(client, Of::Reconnect));
        }
        steps.extend([Step::Tick, Step::Gain, Step::Replicate]);
        if world.faults == 0 {
            return;
        }
        for fault in self.can {
            let of = match fault {
                Fault::Die => Of::Die,
                Fault::Disconnect => Of::Disconnect,
                Fault::SeesToken => Of::SeesToken,
                fault => {
                    steps.push(Step::Store(*fault));
                    continue;
                }
            };
            steps.extend((0..clients as u8).map(|client| Step::Client(client, of)));
        }
    }

    fn go(&self, world: &World, step: Step) -> Option<World> {
        let mut next = *world;
        let is_possible = match step {
            Step::Tick => self.tick(&mut next),
            Step::Gain => self.gain(&mut next),
            Step::Replicate => self.replicate(&mut next),
            Step::Claim(claim, act) => self.act(&mut next, claim.into(), act),
            Step::Client(client, of) => {
                if matches!(of, Of::Die | Of::Disconnect | Of::SeesToken) {
                    next.faults -= 1;
                }
                self.client(&mut next, client.into(), of)
            }
            Step::Store(fault) => {
                next.faults -= 1;
                self.fault(&mut next, fault)
            }
        };
        is_possible.then_some(next)
    }

    fn settle(&self, world: &mut World) {
        if world.faults == 0 {
            world.replica = None;
        }
        self.forget_idle(world);
        self.renumber(world);
    }

    fn broken(&self, world: &World) -> Option<&'static str> {
        self.broken_promise(world).map(Promise::name)
    }

    fn describe(&self, world: &World, step: Step) -> String {
        let name = |claim: u8| {
            let (client, waiter) = (client_of(claim.into()), usize::from(claim) % EACH);
            let client = char::from(b'A' + client as u8);
            format!("{client}{}", waiter + 1)
        };
        match step {
            Step::Claim(claim, act) => format!("{} {act:?}", name(claim)),
            Step::Client(client, Of::Notice(slot)) => {
                let notice = world.clients[usize::from(client)].notices[usize::from(slot)];
                let holder = notice.map_or(0, |notice| notice.holder - 1);
                format!("the notice of {} comes", name(holder))
            }
            Step::Client(client, of) => format!("{} {of:?}", char::from(b'A' + client)),
            step => format!("{step:?}"),
        }
    }
}

/// Time and faults.
impl Setup {
    pub(super) fn tick(&self, world: &mut World) -> bool {
        tick_store(world);
        for client in &mut world.clients {
            for notice in client.notices.iter_mut().flatten() {
                notice.left = notice.left.saturating_sub(1);
            }
        }
        for claim in 0..CLAIMS {
            let claim = &mut world.claims[claim];
            claim.left = claim.left.saturating_sub(1);
            claim.doubt = claim.doubt.saturating_sub(1);
            if let Some(sent) = &mut claim.sent {
                sent.age = (sent.age + 1).min(self.ttl);
            }
            // It knows: the lease is over here.
            if claim.phase == Phase::Held && claim.left == 0 {
                claim.phase = Phase::Leaving;
                claim.token = 0;
                claim.sent = None;
            }
        }
        true
    }

    /// As far as the margin allows.
    fn gain(&self, world: &mut World) -> bool {
        let is_possible = world.gains > 0;
        if is_possible {
            world.gains -= 1;
            tick_store(world);
        }
        is_possible
    }

    fn replicate(&self, world: &mut World) -> bool {
        let is_possible = world.faults > 0
            && self.can.contains(&Fault::Failover)
            && world.replica != Some(world.store);
        if is_possible {
            world.replica = Some(world.store);
        }
        for claim in &mut world.claims {
            if let Some(sent) = &mut claim.sent {
                sent.is_acknowledged |= sent.answer.is_some();
            }
        }
        is_possible
    }

    fn fault(&self, world: &mut World, fault: Fault) -> bool {
        let lease = &mut world.store.lease;
        let is_held = lease.holder != NOBODY;
        match fault {
            Fault::EvictMarked => std::mem::replace(&mut lease.is_evicted, is_held) != is_held,
            Fault::EvictNow => {
                world.forgiven = world.forgiven.max(lease.token);
                self.free(world);
                is_held
            }
            Fault::Flush => {
                self.forget(world, Store::default());
                if !self.keeps_out() {
                    world.forgiven = world.mark;
                }
                true
            }
            Fault::Failover => {
                let Some(replica) = world.replica.take() else {
                    return false;
                };
                self.forget(world, replica);
                for client in &mut world.clients {
                    client.listens = false;
                }
                true
            }
            Fault::Die | Fault::Disconnect | Fault::SeesToken => unreachable!("of a client"),
        }
    }

    /// The store has this instead of what it had.
    fn forget(&self, world: &mut World, store: Store) {
        world.store = store;
        world.store.keep_out = if self.keeps_out() { self.ttl } else { 0 };
        world.due = Row::default();
        for place in store.queue.items() {
            world.due.push(Due {
                client: place.client,
                holder: place.holder,
                left: place.left,
            });
        }
        let believed = world.claims.iter().map(|claim| claim.token);
        world.forgiven = match self.kind {
            Kind::Counts | Kind::Plain | Kind::Local => world.mark,
            Kind::Sentinel => believed.max().unwrap_or_default().max(world.forgiven),
            Kind::KeepsOut | Kind::KeepsOutAsked | Kind::Acknowledged => world.forgiven,
        };
        if self.keeps_out() {
            world.forgotten = world.mark;
        }
        let asks_who_is_master = matches!(self.kind, Kind::Sentinel | Kind::Acknowledged);
        for at in 0..CLAIMS {
            let claim = &mut world.claims[at];
            if claim.phase == Phase::Left {
                // What it released may be there again.
                claim.phase = Phase::Gone;
            }
            if asks_who_is_master && claim.sent.is_some_and(|sent| sent.answer.is_some()) {
                self.abandon(world, at);
            }
        }
    }
}

/// The store's clock goes on, and that of its replica.
fn tick_store(world: &mut World) {
    world.store.tick();
    for due in world.due.items_mut() {
        due.left = due.left.saturating_sub(1);
    }
    if let Some(replica) = &mut world.replica {
        replica.tick();
    }
}
