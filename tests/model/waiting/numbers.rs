//! Brings states that no run can tell apart into one form: what cannot count any more is forgotten, and tokens and
//! joins are numbered by their order.

use super::setup::{Setup, Wrong};
use super::world::{
    Answer, NOBODY, Notice, Phase, Store, Told, World, claim_of, client_of, holder_of,
};

impl Setup {
    /// Forgets what has no effect any more, by the rules as they are meant.
    pub(super) fn forget_idle(&self, world: &mut World) {
        for at in 0..world.claims.len() {
            let seen = world.clients[client_of(at)].seen;
            let claim = &mut world.claims[at];
            if let Some(sent) = &mut claim.sent {
                let is_late = |time| self.deadline(time, sent.age) == 0;
                match &mut sent.answer {
                    Some(Answer::Granted(token))
                        if *token > seen && is_late(self.ttl) && !sent.is_renewal =>
                    {
                        sent.answer = Some(Answer::Waiting(Told::default()));
                    }
                    Some(Answer::Waiting(told)) if is_late(self.term) => *told = Told::default(),
                    _ => {}
                }
                if sent.floor <= world.mark {
                    sent.floor = 0;
                }
            }
        }
        let mark = world.mark;
        for place in stores(world).flat_map(|store| store.queue.items_mut()) {
            if place.floor <= mark {
                place.floor = 0;
            }
        }
        for at in 0..world.claims.len() {
            let is_done = world.claims[at].phase == Phase::Leaving && world.claims[at].doubt == 0;
            let is_asked_again = self.has(Wrong::LeaveByClient);
            if is_done && !is_asked_again && !stores(world).any(|store| has_left_over(store, at)) {
                world.claims[at].phase = Phase::Left;
            }
            let claim = &mut world.claims[at];
            if claim.left == 0 && !self.has(Wrong::RefreshAdds) {
                (claim.height, claim.join) = (0, 0);
            }
        }
        if self.wrong.is_some_and(Wrong::counts_more) {
            return;
        }
        for at in 0..world.clients.len() {
            for slot in 0..world.clients[at].notices.len() {
                let notice = world.clients[at].notices[slot];
                if notice.is_some_and(|notice| !self.may_count(world, notice)) {
                    world.clients[at].notices[slot] = None;
                }
            }
            world.clients[at].notices.sort_unstable();
        }
    }

    /// Whether this notice may still count as a grant.
    fn may_count(&self, world: &World, notice: Notice) -> bool {
        let at = claim_of(notice.holder);
        let claim = world.claims[at];
        let seen = world.clients[client_of(at)].seen;
        if claim.phase != Phase::Waiting || notice.token <= seen || self.confirms_first() {
            return false;
        }
        let answer = claim.sent.and_then(|sent| sent.answer);
        let is_above = |told: Told| told.has_place && notice.token > told.height;
        let may_confirm = matches!(answer, Some(Answer::Waiting(told)) if is_above(told));
        may_confirm || claim.left > 0 && notice.token > claim.height
    }

    /// Gives tokens and joins the lowest numbers that have the same order.
    pub(super) fn renumber(&self, world: &mut World) {
        if self.has(Wrong::JoinIsToken) {
            return;
        }
        let mut used = 1_u64;
        each_token(world, |token| used |= 1 << *token);
        used |= 1 << world.mark | 1 << world.granted;
        // What was seen or forgiven counts only against tokens that are there.
        each_height(world, |height, is_above_all| {
            if is_above_all {
                used |= 1 << *height;
            }
        });
        each_token(world, |token| *token = rank(used, *token));
        each_height(world, |height, _| *height = rank(used, *height));
        world.mark = rank(used, world.mark);
        world.granted = rank(used, world.granted);
        if self.has(Wrong::JoinsRepeat) {
            return;
        }
        let mut used = 1_u64;
        each_join(world, |join| used |= 1 << *join);
        each_join(world, |join| *join = rank(used, *join));
        world.joins = rank(used, world.joins);
    }
}

/// Whether the store has anything that a release of this claim would take away.
fn has_left_over(store: &Store, claim: usize) -> bool {
    let (client, holder) = (client_of(claim) as u8, holder_of(claim));
    let mut places = store.queue.items().iter();
    let is_its = |holder_of: u8| holder_of == holder || holder_of == NOBODY;
    store.lease.holder == holder
        || places.any(|place| place.client == client && is_its(place.holder))
}

/// The greatest number that is used and not above this one, counted from 0.
fn rank(used: u64, number: u8) -> u8 {
    (used & ((2 << number) - 1)).count_ones() as u8 - 1
}

fn stores(world: &mut World) -> impl Iterator<Item = &mut Store> {
    [&mut world.store].into_iter().chain(&mut world.replica)
}

/// The tokens that were given away.
fn each_token(world: &mut World, mut change: impl FnMut(&mut u8)) {
    for store in stores(world) {
        change(&mut store.lease.token);
    }
    for client in &mut world.clients {
        let notices = client.notices.iter_mut().flatten();
        notices.for_each(|notice| change(&mut notice.token));
    }
    for claim in &mut world.claims {
        change(&mut claim.token);
        if let Some(Answer::Granted(token)) =
            claim.sent.as_mut().and_then(|sent| sent.answer.as_mut())
        {
            change(token);
        }
    }
}

/// What tokens are compared with, and whether it may be above all of them.
fn each_height(world: &mut World, mut change: impl FnMut(&mut u8, bool)) {
    let mark = world.mark;
    change(&mut world.forgiven, false);
    change(&mut world.forgotten, false);
    for place in stores(world).flat_map(|store| store.queue.items_mut()) {
        let is_above_all = place.floor > mark;
        change(&mut place.floor, is_above_all);
    }
    for client in &mut world.clients {
        let is_above_all = client.seen > mark;
        change(&mut client.seen, is_above_all);
    }
    for claim in &mut world.claims {
        change(&mut claim.height, false);
        if let Some(sent) = &mut claim.sent {
            let is_above_all = sent.floor > mark;
            change(&mut sent.floor, is_above_all);
            if let Some(Answer::Waiting(told)) = &mut sent.answer {
                change(&mut told.height, false);
            }
        }
    }
}

fn each_join(world: &mut World, mut change: impl FnMut(&mut u8)) {
    for place in stores(world).flat_map(|store| store.queue.items_mut()) {
        change(&mut place.join);
    }
    for client in &mut world.clients {
        let notices = client.notices.iter_mut().flatten();
        notices.for_each(|notice| change(&mut notice.join));
    }
    for claim in &mut world.claims {
        change(&mut claim.join);
        if let Some(Answer::Waiting(told)) =
            claim.sent.as_mut().and_then(|sent| sent.answer.as_mut())
        {
            change(&mut told.join);
        }
    }
}
