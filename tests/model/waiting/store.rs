//! What the store does, each in one step.

use super::setup::{Kind, Setup, Wrong};
use super::world::{
    Answer, Due, Holder, Lease, NOBODY, Notice, Place, Promise, Told, World, claim_of, client_of,
};

impl Setup {
    /// A poll: the claim of a client's first waiter.
    pub(super) fn poll(&self, world: &mut World, holder: Holder, floor: u8) -> Answer {
        let client = client_of(claim_of(holder)) as u8;
        let may_grant = world.store.keep_out == 0;
        let lease = &mut world.store.lease;
        let is_own = lease.holder == holder && !lease.is_evicted;
        if is_own && (may_grant || self.has(Wrong::OwnInKeepOut)) {
            lease.left = self.ttl;
            return Answer::Granted(lease.token);
        }
        let mut is_free = may_grant && lease.holder == NOBODY;
        if is_free && !self.has(Wrong::Overtakes) {
            self.refresh(world, client, holder, floor);
            self.grant_next(world, Some(client));
            if world.store.lease.holder == holder {
                world.store.lease.left = self.ttl;
                return Answer::Granted(world.store.lease.token);
            }
            is_free = world.store.lease.holder == NOBODY;
        }
        if is_free {
            let token = self.mint(world, client, floor, Some(client));
            world.store.queue.retain(|place| place.client != client);
            world.store.lease = Lease {
                holder,
                token,
                left: self.ttl,
                is_evicted: false,
            };
            return Answer::Granted(token);
        }
        if self.joins(client) && !self.refresh(world, client, holder, floor) {
            self.join(world, client, holder, floor);
        }
        let queue = world.store.queue;
        let place = queue.items().iter().find(|place| place.client == client);
        Answer::Waiting(Told {
            height: world.mark,
            has_place: place.is_some(),
            join: place.map_or(0, |place| place.join),
        })
    }

    /// Whether the polls of this client make a place.
    fn joins(&self, client: u8) -> bool {
        let last = self.waiters.iter().rposition(|waiters| *waiters > 0);
        !self.tries || last != Some(client.into())
    }

    /// The client's place takes this claim. Returns whether it has a place.
    fn refresh(&self, world: &mut World, client: u8, holder: Holder, floor: u8) -> bool {
        let left = self.term;
        for due in world.due.items_mut() {
            if due.client == client {
                (due.holder, due.left) = (holder, left);
            }
        }
        let queue = &mut world.store.queue;
        let at = queue
            .items()
            .iter()
            .position(|place| place.client == client);
        let Some(at) = at else { return false };
        let place = &mut queue.items_mut()[at];
        (place.holder, place.floor, place.left) = (holder, floor, left);
        if self.has(Wrong::RefreshMoves) {
            let place = *place;
            queue.remove(at);
            queue.push(place);
        }
        true
    }

    fn join(&self, world: &mut World, client: u8, holder: Holder, floor: u8) {
        let left = self.term;
        let join = if !self.wrong.is_some_and(Wrong::numbers_joins) {
            0
        } else if self.has(Wrong::JoinsRepeat) {
            let last = world.store.queue.items().last();
            last.map_or(0, |place| place.join) + 1
        } else if self.has(Wrong::JoinIsToken) {
            world.mark += 1;
            world.mark
        } else {
            world.joins + 1
        };
        world.joins = world.joins.max(join);
        world.store.queue.push(Place {
            client,
            join,
            holder,
            floor,
            left,
        });
        if !world.due.items().iter().any(|due| due.client == client) {
            world.due.push(Due {
                client,
                holder,
                left,
            });
        }
    }

    /// Grants the name to the first place whose term runs, for the rest of it, and tells its client.
    fn grant_next(&self, world: &mut World, asker: Option<u8>) {
        let mut at = 0;
        while let Some(place) = world.store.queue.items().get(at).copied() {
            let is_unheard = self.is_unheard(world, place.client, asker);
            let is_vacant = place.holder == NOBODY;
            let is_known_dead = is_unheard && self.kind == Kind::Local;
            if is_known_dead {
                world.due.retain(|due| due.client != place.client);
            }
            let is_dropped = place.left == 0
                || is_known_dead
                || is_unheard && self.has(Wrong::DropsUnheard)
                || is_vacant && self.has(Wrong::DropsVacant);
            if is_dropped {
                world.store.queue.remove(at);
                continue;
            }
            if is_vacant || is_unheard {
                at += 1;
                continue;
            }
            let token = match self.has(Wrong::JoinIsToken) {
                true => self.granted(world, place.client, place.join, asker),
                false => self.mint(world, place.client, place.floor, asker),
            };
            let short = place.left.min(self.handed());
            let left = match self.wrong {
                Some(Wrong::FullTtl | Wrong::NoticeTtl) => self.ttl,
                Some(Wrong::HandsForLong) => place.left,
                _ => short,
            };
            let to_the_dead = self.kind == Kind::Local
                && world.clients[usize::from(place.client)].is_dead
                && asker != Some(place.client);
            if to_the_dead || left > short && !self.has(Wrong::NoticeTtl) {
                world.breaks(Promise::DeadHeadIsShort);
            }
            let holder = place.holder;
            world.store.lease = Lease {
                holder,
                token,
                left,
                is_evicted: false,
            };
            if !self.has(Wrong::StaysQueued) {
                world.store.queue.remove(at);
            }
            let join = place.join;
            let tells_end = self.kind == Kind::Local;
            let notice = Notice {
                token,
                holder,
                join,
                left: if tells_end { left } else { 0 },
            };
            world.clients[usize::from(place.client)].tell(notice);
            return;
        }
        world.due.retain(|due| due.left > 0);
    }

    /// Whether the store knows that no one would hear a notice to this client, and the client does not ask by itself.
    fn is_unheard(&self, world: &World, client: u8, asker: Option<u8>) -> bool {
        let asks = asker == Some(client) && !self.has(Wrong::PassesAsker);
        let counts = matches!(self.kind, Kind::Counts | Kind::Local) || self.keeps_out();
        let counts = counts && !self.has(Wrong::HandsToTheDead);
        counts && !world.clients[usize::from(client)].listens && !asks
    }

    /// Returns the token of a grant to this client.
    fn mint(&self, world: &mut World, client: u8, floor: u8, asker: Option<u8>) -> u8 {
        world.mark = world.mark.max(floor) + 1;
        self.granted(world, client, world.mark, asker)
    }

    /// A client is granted the name: whether it is its turn, and the token rises.
    fn granted(&self, world: &mut World, client: u8, token: u8, asker: Option<u8>) -> u8 {
        if token <= world.granted {
            world.breaks(Promise::TokensRise);
        }
        world.granted = world.granted.max(token);
        let mut at = 0;
        while let Some(due) = world.due.items().get(at).copied() {
            if due.client == client {
                world.due.remove(at);
                break;
            }
            if due.left == 0 {
                world.due.remove(at);
                continue;
            }
            // Even where the rule that is replaced passes the asker over.
            let asks = asker == Some(due.client);
            if due.holder != NOBODY && (asks || !self.is_unheard(world, due.client, asker)) {
                world.breaks(Promise::InTurn);
            }
            at += 1;
        }
        token
    }

    /// The release of a claim, by a client that waits with others or not: of its place, and of its lease.
    pub(super) fn release(&self, world: &mut World, holder: Holder, has_others: bool) {
        let client = client_of(claim_of(holder)) as u8;
        for at in (0..world.due.items().len()).rev() {
            let due = &mut world.due.items_mut()[at];
            let is_own = due.holder == holder || due.holder == NOBODY && !has_others;
            if due.client == client && is_own {
                due.holder = NOBODY;
                if !has_others {
                    world.due.remove(at);
                }
            }
        }
        let had_place = self.release_place(world, client, holder, has_others);
        if had_place && self.has(Wrong::ReleaseEither) || world.store.lease.holder != holder {
            return;
        }
        self.free(world);
    }

    /// Returns whether the client had a place with this claim.
    fn release_place(
        &self,
        world: &mut World,
        client: u8,
        holder: Holder,
        has_others: bool,
    ) -> bool {
        let queue = &mut world.store.queue;
        let at = queue
            .items()
            .iter()
            .position(|place| place.client == client);
        let Some(at) = at.filter(|_| !self.has(Wrong::ReleaseLeaseOnly)) else {
            return false;
        };
        let place = &mut queue.items_mut()[at];
        let is_its = place.holder == holder || self.has(Wrong::LeaveByClient);
        let is_vacant = place.holder == NOBODY;
        let stays =
            has_others && !self.has(Wrong::ReleaseDropsPlace) && !self.has(Wrong::LeaveByClient);
        match (is_its, is_vacant) {
            (true, _) if stays => (place.holder, place.floor) = (NOBODY, 0),
            (true, _) => queue.remove(at),
            (false, true) if !has_others => queue.remove(at),
            _ => return false,
        }
        is_its
    }

    /// Nobody has the name any more.
    pub(super) fn free(&self, world: &mut World) {
        world.store.lease = Lease::default();
        let grants = match self.kind {
            Kind::KeepsOut => false,
            Kind::KeepsOutAsked => world.store.keep_out == 0,
            _ => true,
        };
        if grants || self.has(Wrong::GrantsInKeepOut) {
            self.grant_next(world, None);
        }
    }

    /// A renewal: compares, and never creates.
    pub(super) fn renew(&self, world: &mut World, holder: Holder, token: u8) -> Answer {
        let lease = &mut world.store.lease;
        if lease.holder != holder || lease.token != token || lease.is_evicted {
            return Answer::Refused;
        }
        lease.left = self.ttl;
        Answer::Granted(token)
    }
}

impl super::world::Store {
    /// The store's clock goes on.
    pub(super) fn tick(&mut self) {
        self.keep_out = self.keep_out.saturating_sub(1);
        self.lease.left = self.lease.left.saturating_sub(1);
        if self.lease.left == 0 {
            self.lease = Lease::default();
        }
        for place in self.queue.items_mut() {
            place.left = place.left.saturating_sub(1);
        }
    }
}

impl super::world::Client {
    fn tell(&mut self, notice: Notice) {
        if !self.listens {
            return;
        }
        // The slots are in order: the oldest is lost.
        self.notices.rotate_left(1);
        let last = self.notices.last_mut().expect("there is more than one");
        *last = Some(notice);
    }
}
