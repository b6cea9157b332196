//! What clients do. Each step returns whether it is possible.

use super::rules::{Claiming, Releasing};
use super::setup::{Setup, Wrong};
use super::world::{
    Act, Client, Phase, Put, Read, Record, Reply, Sent, State, World, has, holder_of,
};

impl Setup {
    pub(super) fn act(&self, world: &mut World, at: usize, act: Act) -> bool {
        let client = &mut world.clients[at];
        let phase = client.phase;
        let is_busy = client.sent.is_some();
        let is_of_network = matches!(act, Act::CarriedOut(_) | Act::CarriedOutLate(_));
        if phase == Phase::Gone && !is_of_network {
            return false;
        }
        match act {
            Act::Read => !is_busy && self.send_poll(world, at),
            Act::Put => !is_busy && self.put_what_it_knows(world, at),
            Act::CarriedOut(by) => self.carried_out(world, at, by, false),
            Act::CarriedOutLate(by) => self.carried_out(world, at, by, true),
            Act::Hear => self.hear(world, at),
            Act::HearLate => self.hear_late(world, at),
            Act::Abandon => {
                self.doubts && is_busy && {
                    abandon(client);
                    true
                }
            }
            Act::Leave(keeps) => {
                let is_possible = match keeps {
                    true => phase == Phase::Held && self.keep > 0,
                    false => matches!(phase, Phase::Waiting | Phase::Held),
                };
                if is_possible {
                    leave(client, keeps);
                }
                is_possible
            }
            Act::Again => {
                let is_done = phase == Phase::Left && claims(client).is_none();
                is_done && self.claim_anew(client)
            }
            Act::Anew => {
                let holder = holder_of(at, client);
                let is_its = claims(client).is_some_and(|lease| lease.holder == holder);
                phase == Phase::Waiting && !is_busy && is_its && self.claim_anew(client)
            }
            Act::Die => {
                abandon(client);
                client.phase = Phase::Gone;
                true
            }
        }
    }

    /// With its other holder.
    fn claim_anew(&self, client: &mut Client) -> bool {
        if self.rounds {
            client.phase = Phase::Waiting;
            client.is_second = !client.is_second;
        }
        self.rounds
    }

    fn send_poll(&self, world: &mut World, at: usize) -> bool {
        let client = &mut world.clients[at];
        let needs = match client.phase {
            Phase::Waiting => true,
            Phase::Held | Phase::Leaving => !client.knows,
            Phase::Left | Phase::Gone => false,
        };
        if needs {
            let mut read = sent(None);
            if self.has(Wrong::StampUnmatched) {
                read.age = world.store.age;
            }
            client.sent = Some(read);
        }
        needs
    }

    /// By what it wrote last.
    fn put_what_it_knows(&self, world: &mut World, at: usize) -> bool {
        let client = &world.clients[at];
        let record = world.store.record;
        let read = Read {
            record,
            is_current: true,
            age: 0,
            ends_in: 1,
            is_doubts: false,
        };
        if !client.knows {
            return false;
        }
        match client.phase {
            Phase::Waiting if record.state == State::Free => self.decide_claim(world, at, &read),
            Phase::Held => self.decide_renewal(world, at, &read),
            Phase::Leaving => self.decide_release(world, at, &read),
            _ => return false,
        }
        true
    }

    fn hear(&self, world: &mut World, at: usize) -> bool {
        let client = &mut world.clients[at];
        let Some((sent, reply)) = client.sent.and_then(|sent| Some((sent, sent.reply?))) else {
            return false;
        };
        client.sent = None;
        match reply {
            Reply::Conflict => client.knows = false,
            Reply::Done(is_current) => {
                let put = sent.put.expect("a put is done");
                client.knows = is_current;
                client.observed = is_current.then_some(0);
                match put.to.state {
                    State::Leased => self.granted(world, at, put.to, sent.age),
                    _ => client.phase = Phase::Left,
                }
            }
            Reply::HasRead(read) => {
                if read.is_current {
                    let first = match self.has(Wrong::SeenFromSend) {
                        true => sent.age,
                        false => 0,
                    };
                    client.observed.get_or_insert(first);
                }
                let late = match self.has(Wrong::ClockFromSend) {
                    true => sent.age as i8,
                    false => 0,
                };
                let read = Read {
                    age: read.age + late,
                    ..read
                };
                match client.phase {
                    Phase::Waiting => self.decide_claim(world, at, &read),
                    Phase::Held => self.decide_renewal(world, at, &read),
                    Phase::Leaving => self.decide_release(world, at, &read),
                    Phase::Left | Phase::Gone => unreachable!("it sent nothing"),
                }
            }
        }
        true
    }

    fn hear_late(&self, world: &mut World, at: usize) -> bool {
        let client = &mut world.clients[at];
        let doubt = client.doubt.filter(|doubt| doubt.reply.is_some());
        let Some(Sent {
            put: Some(put),
            age,
            ..
        }) = doubt
        else {
            return false;
        };
        client.doubt = None;
        let is_its = put.to.holder == holder_of(at, client) || self.has(Wrong::AnyReplyCounts);
        if is_its && put.to.state == State::Leased {
            self.granted(world, at, put.to, age);
        }
        true
    }

    /// The reply to a claim or a renewal that was sent this long ago.
    fn granted(&self, world: &mut World, at: usize, lease: Record, age: u8) {
        let client = &mut world.clients[at];
        let left = self.deadline(lease.ttl, age);
        match client.phase {
            // It came too late: the same holder asks again.
            Phase::Waiting if left == 0 => {}
            Phase::Waiting => {
                if client.sent.is_some() {
                    abandon(client);
                }
                client.phase = Phase::Held;
                (client.token, client.left) = (lease.token, left);
                client.counted = client.counted.max(lease.token);
            }
            Phase::Held if client.token == lease.token => client.left = client.left.max(left),
            _ => {}
        }
    }

    fn decide_claim(&self, world: &mut World, at: usize, read: &Read) {
        let client = &mut world.clients[at];
        let holder = holder_of(at, client);
        if self.has(Wrong::PollGrants) && has(read.record, holder) {
            return self.granted(world, at, read.record, 0);
        }
        let ttl = self.ttl_of(at);
        let observed = client.observed.filter(|_| read.is_current);
        let mut read = *read;
        if self.has(Wrong::OwnTtl) {
            read.record.ttl = ttl;
        }
        match self.claim(holder, ttl, client.counted, &read, observed.unwrap_or(0)) {
            Claiming::Put(to) => {
                let is_own = (to.holder, to.token) == (read.record.holder, read.record.token);
                client.sent = Some(put(to, &read, is_own));
            }
            Claiming::Wait if self.is_fresh && at == self.clients - 1 => client.observed = None,
            Claiming::Wait => {}
        }
    }

    fn decide_renewal(&self, world: &mut World, at: usize, read: &Read) {
        let client = &mut world.clients[at];
        let holder = holder_of(at, client);
        match self.renewal(holder, client.token, read.record) {
            Some(to) => client.sent = Some(put(to, read, true)),
            None => leave(client, false),
        }
    }

    fn decide_release(&self, world: &mut World, at: usize, read: &Read) {
        let client = &mut world.clients[at];
        let holder = holder_of(at, client);
        let has_doubt = claims(client).is_some();
        match self.release(holder, client.keeps, read, has_doubt) {
            Releasing::Put(to) => client.sent = Some(put(to, read, false)),
            Releasing::NotHeld => client.phase = Phase::Left,
        }
    }
}

/// The lease that its doubtful put takes or renews.
pub(super) fn claims(client: &Client) -> Option<Record> {
    let put = client.doubt.filter(|doubt| doubt.reply.is_none())?.put?;
    (put.to.state == State::Leased).then_some(put.to)
}

fn sent(put: Option<Put>) -> Sent {
    Sent {
        put,
        age: 0,
        reply: None,
    }
}

fn put(to: Record, read: &Read, is_renewal: bool) -> Sent {
    sent(Some(Put {
        is_current: read.is_current,
        to,
        is_renewal,
    }))
}

/// Gives up the request under way. Where one is in doubt already, this one is lost, if it was not carried out.
fn abandon(client: &mut Client) {
    let Some(sent) = client.sent.take() else {
        return;
    };
    if sent.put.is_some() {
        client.doubt.get_or_insert(sent);
    }
    client.knows = false;
}

pub(super) fn leave(client: &mut Client, keeps: bool) {
    abandon(client);
    client.phase = Phase::Leaving;
    client.keeps = keeps;
    (client.token, client.left) = (0, 0);
}
