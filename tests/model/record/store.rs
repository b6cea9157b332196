//! What the store does: reads, puts, time, and what an operator writes.

use super::clients::claims;
use super::setup::{Kind, Setup, Wrong};
use super::world::{
    Evict, NOBODY, Promise, Put, Read, Record, Reply, Sent, State, Store, World, holder_of,
};

impl Setup {
    /// Whether the request that a client waits for, or has given up, is carried out.
    pub(super) fn carried_out(
        &self,
        world: &mut World,
        at: usize,
        is_ahead: bool,
        is_late: bool,
    ) -> bool {
        let client = &world.clients[at];
        let slot = if is_late { client.doubt } else { client.sent };
        let is_server = !is_ahead || self.apart() > 0;
        let Some(sent) = slot.filter(|sent| sent.reply.is_none() && is_server) else {
            return false;
        };
        let reply = match sent.put {
            None => Reply::HasRead(self.read(world, at, is_ahead)),
            Some(put) => self.put(world, put, sent.age, is_ahead),
        };
        let reply = Some(reply);
        let client = &mut world.clients[at];
        let slot = match is_late {
            true => &mut client.doubt,
            false => &mut client.sent,
        };
        *slot = Some(Sent { reply, ..sent });
        true
    }

    fn read(&self, world: &World, at: usize, is_ahead: bool) -> Read {
        let client = &world.clients[at];
        let Store {
            record,
            age,
            is_ahead: wrote_ahead,
            ends_in,
            ..
        } = world.store;
        let apart = self.apart() as i8;
        let ahead = i8::from(is_ahead) * apart;
        let shown = match self.wrong {
            Some(Wrong::ClientsClock) => age as i8 + 2,
            Some(Wrong::StampUnmatched) => client.sent.map_or(0, |sent| sent.age as i8),
            _ => age as i8 + ahead - i8::from(wrote_ahead) * apart,
        };
        if self.has(Wrong::StalePoll) && record.token > 0 {
            return Read::default();
        }
        let is_for_this = client
            .doubt
            .is_some_and(|doubt| doubt.put.is_some_and(|put| put.is_current));
        let holder = holder_of(at, client);
        let is_its = claims(client).is_some_and(|lease| lease.holder == holder);
        Read {
            record,
            is_current: true,
            age: shown,
            ends_in: ends_in - ahead,
            is_doubts: is_for_this && is_its,
        }
    }

    fn put(&self, world: &mut World, put: Put, age: u8, is_ahead: bool) -> Reply {
        let was = world.store.record;
        let to = put.to;
        let is_any = match to.state {
            State::Leased if put.is_renewal => self.has(Wrong::RenewsAnyVersion),
            State::Leased => self.has(Wrong::ClaimsAnyVersion),
            _ => self.has(Wrong::ReleasesAnyVersion),
        };
        if !put.is_current && !is_any {
            return Reply::Conflict;
        }
        if put.is_renewal && was.state == State::Evicted {
            world.breaks(Promise::EvictedIsNotRenewed);
        }
        if to.state == State::Leased && !put.is_renewal {
            if to.token <= world.granted {
                world.breaks(Promise::TokensRise);
            }
            if world.store.kept > 0 {
                world.breaks(Promise::KeptIsKept);
            }
            world.granted = world.granted.max(to.token);
        }
        let is_silent = self.kind == Kind::Ending || self.has(Wrong::NoBeat);
        let is_same = is_silent && put.is_renewal && was.state == State::Leased;
        self.write(world, to, is_ahead, is_same);
        if self.kind == Kind::Ending && !put.is_renewal || self.stamps_early {
            // It began to run when the put was sent, at the earliest.
            world.store.age = age + u8::from(self.has(Wrong::EndsBeforePut));
        }
        if to.state == State::Kept {
            world.store.kept = self.keep.saturating_sub(age);
            world.store.ends_in = (self.keep + u8::from(is_ahead) * self.apart()) as i8 - age as i8;
        }
        Reply::Done(true)
    }

    fn write(&self, world: &mut World, record: Record, is_ahead: bool, is_same: bool) {
        world.store = Store {
            record,
            is_ahead,
            ..Store::default()
        };
        if !is_same {
            self.change(world);
        }
    }

    /// The record has another version from now on.
    fn change(&self, world: &mut World) {
        let observed = world.clients.map(|client| client.observed);
        world.changed();
        if self.has(Wrong::ObservationKept) {
            for (client, observed) in world.clients.iter_mut().zip(observed) {
                client.observed = observed;
            }
        }
    }

    pub(super) fn evict(&self, world: &mut World, how: Evict) -> bool {
        let Store { record, age, .. } = world.store;
        let (observed, is_ahead) = match how {
            Evict::Now if !matches!(record.state, State::Free) => {
                world.forgiven = world.forgiven.max(record.token);
                let free = Record {
                    state: State::Free,
                    holder: NOBODY,
                    ttl: 0,
                    ..record
                };
                self.write(world, free, false, false);
                return true;
            }
            Evict::Now => return false,
            Evict::Fresh(is_ahead) => (0, is_ahead),
            Evict::Observed(is_ahead) => (age, is_ahead),
        };
        let is_possible = record.state == State::Leased && (!is_ahead || self.apart() > 0);
        if is_possible {
            let observed = match self.wrong {
                Some(Wrong::EvictsFromSend) => observed + 2,
                Some(Wrong::EvictsShort) => record.ttl - 1,
                _ => observed,
            };
            let ttl = record.ttl.saturating_sub(observed).max(1);
            let state = State::Evicted;
            let evicted = Record {
                state,
                ttl,
                ..record
            };
            self.write(world, evicted, is_ahead, false);
        }
        is_possible
    }

    /// The clocks of the store and of observers go on.
    pub(super) fn tick_store(&self, world: &mut World) {
        let latest = self.apart() + self.skew();
        let store = &mut world.store;
        store.age = (store.age + 1).min(self.oldest());
        store.kept = store.kept.saturating_sub(1);
        if store.record.state == State::Kept {
            store.ends_in = (store.ends_in - 1).max(-(latest as i8));
        }
        let record = store.record;
        let ends = self.kind == Kind::Ending && record.state != State::Free;
        if ends && store.age >= record.ttl {
            let free = Record {
                state: State::Free,
                holder: NOBODY,
                ttl: 0,
                ..record
            };
            self.write(world, free, false, false);
        }
        let longest = self.ttl.max(self.keep);
        for client in &mut world.clients {
            if let Some(observed) = &mut client.observed {
                *observed = (*observed + 1).min(longest);
            }
        }
    }
}
