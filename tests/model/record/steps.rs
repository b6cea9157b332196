//! Which steps are possible, what they lead to, and their names.

use super::clients::leave;
use super::setup::{Kind, Setup, Wrong};
use super::world::{
    Act, Client, Phase, Put, Record, Reply, Sent, State, Step, World, client_of, holder_of,
};
use crate::search::Space;
use crate::serving::Serving;

impl Space for Setup {
    type State = World;
    type Step = Step;

    fn first(&self) -> World {
        let mut world = World {
            faults: self.faults,
            gains: self.gains,
            ..World::default()
        };
        for client in &mut world.clients[..self.clients] {
            client.phase = Phase::Waiting;
        }
        world
    }

    fn steps(&self, world: &World, steps: &mut Vec<Step>) {
        let acts = [
            Act::Read,
            Act::Put,
            Act::CarriedOut(false),
            Act::CarriedOut(true),
            Act::Hear,
            Act::Abandon,
            Act::CarriedOutLate(false),
            Act::CarriedOutLate(true),
            Act::HearLate,
            Act::Leave(false),
            Act::Leave(true),
            Act::Again,
            Act::Anew,
        ];
        for at in 0..self.clients as u8 {
            steps.extend(acts.map(|act| Step::Client(at, act)));
        }
        steps.extend([Step::Tick, Step::Gain]);
        if world.faults == 0 {
            return;
        }
        if self.deaths {
            steps.extend((0..self.clients as u8).map(|at| Step::Client(at, Act::Die)));
        }
        steps.extend(self.evicts.iter().map(|how| Step::Evict(*how)));
    }

    fn go(&self, world: &World, step: Step) -> Option<World> {
        let mut next = *world;
        let is_possible = match step {
            Step::Tick => self.tick(&mut next),
            Step::Gain => self.gain(&mut next),
            Step::Client(at, act) => {
                if act == Act::Die {
                    next.faults -= 1;
                }
                self.act(&mut next, at.into(), act)
            }
            Step::Evict(how) => {
                next.faults -= 1;
                self.evict(&mut next, how)
            }
        };
        is_possible.then_some(next)
    }

    fn settle(&self, world: &mut World) {
        self.forget_idle(world);
        renumber(world);
    }

    fn broken(&self, world: &World) -> Option<&'static str> {
        self.broken_promise(world).map(super::Promise::name)
    }

    fn describe(&self, _: &World, step: Step) -> String {
        match step {
            Step::Client(at, act) => format!("{} {act:?}", char::from(b'A' + at)),
            step => format!("{step:?}"),
        }
    }
}

impl Serving for Setup {
    fn may_need(&self, step: Step) -> bool {
        !matches!(
            step,
            Step::Evict(_) | Step::Client(_, Act::Die | Act::Leave(_) | Act::Again | Act::Anew)
        )
    }

    fn served(&self, world: &World) -> u8 {
        let clients = world.clients[..self.clients].iter().enumerate();
        let is_served = |client: &Client| client.phase != Phase::Waiting;
        clients.fold(0, |served, (at, client)| {
            served | u8::from(is_served(client)) << at
        })
    }

    fn waiters(&self) -> u8 {
        (1 << self.clients) - 1
    }
}

/// Time.
impl Setup {
    fn tick(&self, world: &mut World) -> bool {
        self.tick_store(world);
        for client in &mut world.clients {
            client.left = client.left.saturating_sub(1);
            for sent in client.sent.iter_mut().chain(&mut client.doubt) {
                sent.age = (sent.age + 1).min(self.latest());
            }
            // It knows: the lease is over here.
            if client.phase == Phase::Held && client.left == 0 {
                leave(client, false);
            }
        }
        true
    }

    /// As far as the margin allows.
    fn gain(&self, world: &mut World) -> bool {
        let is_possible = world.gains > 0;
        if is_possible {
            world.gains -= 1;
            self.tick_store(world);
        }
        is_possible
    }

    /// Forgets what has no effect any more.
    fn forget_idle(&self, world: &mut World) {
        self.forget_times(world);
        let record = world.store.record;
        for at in 0..self.clients {
            let client = &mut world.clients[at];
            let phase = client.phase;
            if phase != Phase::Waiting || record.state == State::Free {
                client.observed = None;
            }
            if client.counted <= record.token {
                client.counted = 0;
            }
            if phase == Phase::Gone {
                client.knows = false;
                (client.counted, client.is_second) = (0, false);
            }
            let may_count = |put: &Put, age: u8, client: &Client| {
                let lease = put.to;
                let is_its =
                    lease.holder == holder_of(at, client) || self.has(Wrong::AnyReplyCounts);
                let is_same = phase == Phase::Held && lease.token == client.token;
                let counts = is_its && (phase == Phase::Waiting || is_same);
                lease.state == State::Leased && counts && self.deadline(lease.ttl, age) > 0
            };
            if let Some(sent) = &mut client.sent {
                self.forget_sent(sent, phase);
            }
            if let Some(mut doubt) = client.doubt.take() {
                self.forget_sent(&mut doubt, phase);
                let put = doubt.put.expect("a put is in doubt");
                let is_open = match doubt.reply {
                    None => true,
                    Some(Reply::Done(_)) => may_count(&put, doubt.age, client),
                    Some(_) => false,
                };
                if is_open {
                    if !may_count(&put, doubt.age, client) {
                        doubt.age = self.latest();
                    }
                    client.doubt = Some(doubt);
                }
            }
            let has_put = client.sent.is_some_and(|sent| sent.put.is_some());
            let has_record = client_of(record.holder) == Some(at);
            if !has_put && client.doubt.is_none() && phase != Phase::Held && !has_record {
                client.is_second = false;
            }
        }
    }

    /// The age from which a put counts for nothing.
    fn latest(&self) -> u8 {
        self.ttl.max(self.keep)
    }

    fn forget_times(&self, world: &mut World) {
        let store = &mut world.store;
        let record = store.record;
        let is_stamped = match record.state {
            State::Leased | State::Evicted => true,
            State::Kept => self.keeps_by_stamp,
            State::Free => false,
        };
        let is_aged = self.kind != Kind::Timeless || !self.evicts.is_empty() && world.faults > 0;
        if !is_aged || record.state == State::Free {
            store.age = 0;
        }
        if self.apart() == 0 || !is_stamped {
            store.is_ahead = false;
        }
        if self.keeps_by_stamp {
            store.ends_in = 0;
        }
        if record.state == State::Free {
            (store.kept, store.ends_in) = (0, 0);
        }
    }

    /// Whether puts are put on whatever version there is.
    fn is_any_version(&self) -> bool {
        matches!(
            self.wrong,
            Some(Wrong::ClaimsAnyVersion | Wrong::ReleasesAnyVersion | Wrong::RenewsAnyVersion)
        )
    }

    /// Whether the age of a read makes a difference.
    fn counts_polls(&self) -> bool {
        matches!(
            self.wrong,
            Some(Wrong::SeenFromSend | Wrong::ClockFromSend | Wrong::StampUnmatched)
        )
    }

    fn forget_sent(&self, sent: &mut Sent, phase: Phase) {
        let is_any = self.is_any_version();
        let Some(put) = &mut sent.put else {
            if !self.counts_polls() {
                sent.age = 0;
            }
            let Some(Reply::HasRead(read)) = &mut sent.reply else {
                return;
            };
            if phase == Phase::Waiting && !read.is_current && !is_any {
                // A put that it decides by this read fails.
                sent.reply = Some(Reply::Conflict);
            } else if phase != Phase::Waiting && !self.has(Wrong::ReleaseLeavesOver) {
                (read.age, read.ends_in) = (0, 0);
            } else if !self.has(Wrong::ClockFromSend) {
                // By the store's clock it is over, or not.
                let is_over = self.is_over(read, 0);
                (read.age, read.ends_in) = match is_over {
                    true => (self.oldest() as i8, -(self.oldest() as i8)),
                    false => (0, self.oldest() as i8),
                };
            }
            return;
        };
        if sent.reply.is_none() && !put.is_current && !is_any {
            sent.reply = Some(Reply::Conflict);
        }
        let is_timeless = !matches!(put.to.state, State::Leased | State::Kept);
        if sent.reply == Some(Reply::Conflict) || is_timeless {
            sent.age = 0;
        }
        if sent.reply.is_some() {
            put.is_current = false;
        }
        if sent.reply == Some(Reply::Conflict) {
            put.to = Record::default();
        }
    }
}

/// Gives tokens the lowest numbers that have the same order.
fn renumber(world: &mut World) {
    let mut used = 1_u64;
    each_token(world, |token| used |= 1 << *token);
    each_token(world, |token| {
        *token = (used & ((2 << *token) - 1)).count_ones() as u8 - 1;
    });
}

fn each_token(world: &mut World, mut change: impl FnMut(&mut u8)) {
    change(&mut world.granted);
    change(&mut world.forgiven);
    change(&mut world.store.record.token);
    for client in &mut world.clients {
        change(&mut client.token);
        change(&mut client.counted);
        for sent in client.sent.iter_mut().chain(&mut client.doubt) {
            if let Some(put) = &mut sent.put {
                change(&mut put.to.token);
            }
            if let Some(Reply::HasRead(read)) = &mut sent.reply {
                change(&mut read.record.token);
            }
        }
    }
}
