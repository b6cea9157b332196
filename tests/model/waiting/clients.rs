//! What waiters and their clients do. Each step returns whether it is possible.

use super::setup::{Kind, Setup, Wrong};
use super::world::{
    Act, Answer, Client, Of, Phase, Promise, Sent, World, claims_of, client_of, holder_of,
};

impl Setup {
    pub(super) fn act(&self, world: &mut World, claim: usize, act: Act) -> bool {
        let client = client_of(claim);
        if world.clients[client].is_dead && act != Act::CarriedOutLate {
            return false;
        }
        let phase = world.claims[claim].phase;
        match act {
            Act::Poll => {
                let is_first = world.first(client) == Some(claim);
                phase == Phase::Waiting && is_first && send(world, claim, false)
            }
            Act::Renew => phase == Phase::Held && send(world, claim, true),
            Act::CarriedOut => self.carried_out(world, claim),
            Act::Hear => self.hear(world, claim),
            Act::Abandon => self.doubts && self.abandon(world, claim),
            Act::CarriedOutLate => self.carried_out_late(world, claim),
            Act::Leave => {
                let is_possible = matches!(phase, Phase::Waiting | Phase::Held);
                if is_possible {
                    self.leave(world, claim, Phase::Leaving);
                }
                is_possible
            }
            Act::Released(is_heard) => self.released(world, claim, is_heard),
        }
    }

    fn carried_out(&self, world: &mut World, claim: usize) -> bool {
        let Some(sent) = world.claims[claim]
            .sent
            .filter(|sent| sent.answer.is_none())
        else {
            return false;
        };
        let (holder, token) = (holder_of(claim), world.claims[claim].token);
        let answer = match sent.is_renewal {
            true => self.renew(world, holder, token),
            false => self.poll(world, holder, sent.floor),
        };
        world.claims[claim].sent = Some(Sent {
            answer: Some(answer),
            is_acknowledged: world.replica.is_none(),
            ..sent
        });
        true
    }

    fn hear(&self, world: &mut World, at: usize) -> bool {
        let client = client_of(at);
        let claim = &mut world.claims[at];
        let Some((sent, answer)) = claim.sent.and_then(|sent| Some((sent, sent.answer?))) else {
            return false;
        };
        let is_yes = matches!(answer, Answer::Granted(_));
        if is_yes && self.kind == Kind::Acknowledged && !sent.is_acknowledged {
            return false;
        }
        claim.sent = None;
        let left = self.deadline(self.ttl, sent.age);
        match answer {
            Answer::Granted(_) if sent.is_renewal => claim.left = claim.left.max(left),
            Answer::Refused => self.leave(world, at, Phase::Leaving),
            Answer::Granted(token) if token <= world.clients[client].seen => {
                self.leave(world, at, Phase::GivingBack);
            }
            // It came too late: the same holder asks again.
            Answer::Granted(_) if left == 0 => claim.left = 0,
            Answer::Granted(token) => self.hold(world, at, token, left),
            Answer::Waiting(told) => {
                let is_fresh = sent.is_fresh || self.has(Wrong::OldAnswerConfirms);
                let confirms = is_fresh && told.has_place;
                claim.left = match confirms {
                    true => self.deadline(self.term, sent.age),
                    false => 0,
                };
                (claim.height, claim.join) = (told.height, told.join);
            }
        }
        true
    }

    fn hold(&self, world: &mut World, claim: usize, token: u8, left: u8) {
        let client = &mut world.clients[client_of(claim)];
        if token <= client.seen {
            world.broken.get_or_insert(Promise::TokensRise);
        }
        client.seen = client.seen.max(token);
        self.abandon(world, claim);
        let claim = &mut world.claims[claim];
        claim.phase = Phase::Held;
        (claim.token, claim.left) = (token, left);
        (claim.height, claim.join) = (0, 0);
    }

    /// The request that it waits for may be carried out later all the same.
    pub(super) fn abandon(&self, world: &mut World, claim: usize) -> bool {
        let claim = &mut world.claims[claim];
        let Some(sent) = claim.sent.take() else {
            return false;
        };
        if !sent.is_renewal {
            let left = self.ttl.saturating_sub(sent.age);
            claim.doubt = claim.doubt.max(left);
        }
        true
    }

    /// It carries the floor of its own moment: none.
    fn carried_out_late(&self, world: &mut World, claim: usize) -> bool {
        let is_possible = world.claims[claim].doubt > 0;
        if is_possible {
            self.poll(world, holder_of(claim), 0);
        }
        is_possible
    }

    fn leave(&self, world: &mut World, claim: usize, phase: Phase) {
        self.abandon(world, claim);
        let claim = &mut world.claims[claim];
        claim.phase = phase;
        (claim.left, claim.token, claim.height) = (0, 0, 0);
        if !self.has(Wrong::RefreshAdds) {
            claim.join = 0;
        }
    }

    fn released(&self, world: &mut World, claim: usize, is_heard: bool) -> bool {
        let phase = world.claims[claim].phase;
        if !matches!(phase, Phase::Leaving | Phase::GivingBack) {
            return false;
        }
        let has_others = world.has_others(claim);
        self.release(world, holder_of(claim), has_others);
        let claim = &mut world.claims[claim];
        let is_in_doubt = match self.wrong {
            Some(Wrong::DoubtOneTerm) => claim.doubt > self.ttl - self.term,
            Some(Wrong::RefreshAdds) => claim.doubt > 0 && claim.join == 0,
            _ => claim.doubt > 0,
        };
        if is_heard && !is_in_doubt {
            claim.join = 0;
            claim.phase = match phase {
                Phase::GivingBack => Phase::Waiting,
                _ => Phase::Left,
            };
        }
        true
    }

    pub(super) fn client(&self, world: &mut World, client: usize, of: Of) -> bool {
        if world.clients[client].is_dead {
            return false;
        }
        match of {
            Of::Notice(slot) => self.notice(world, client, slot.into()),
            Of::Reconnect => self.reconnect(world, client),
            Of::Disconnect => std::mem::replace(&mut world.clients[client].listens, false),
            Of::SeesToken => {
                let seen = &mut world.clients[client].seen;
                let is_new = *seen <= world.mark;
                *seen = world.mark + 1;
                is_new
            }
            Of::Die => {
                world.clients[client] = Client {
                    is_dead: true,
                    listens: false,
                    ..Client::default()
                };
                for claim in claims_of(client) {
                    self.leave(world, claim, Phase::Gone);
                    world.claims[claim].join = 0;
                }
                true
            }
        }
    }

    /// A notice counts under the deadline that its client's poll confirmed, or it only makes the client poll, which it
    /// may do at any time.
    fn notice(&self, world: &mut World, client: usize, slot: usize) -> bool {
        let (Some(notice), seen) = (
            world.clients[client].notices[slot],
            world.clients[client].seen,
        ) else {
            return false;
        };
        if self.confirms_first() {
            return false;
        }
        if self.has(Wrong::NoticeExtends) {
            let own = &mut world.claims[usize::from(notice.holder) - 1];
            let anew = self.deadline(self.term, 0);
            if own.phase == Phase::Held && own.token == notice.token && own.left < anew {
                own.left = anew;
                return true;
            }
        }
        let Some(first) = world.first(client) else {
            return false;
        };
        let claim = world.claims[first];
        let is_own = notice.holder == holder_of(first) || self.has(Wrong::AnyHolder);
        let is_of_place = match self.wrong {
            Some(Wrong::AnyJoin) => true,
            Some(Wrong::ByJoin | Wrong::JoinsRepeat) => notice.join == claim.join,
            _ => notice.token > claim.height,
        };
        let rises = notice.token > seen || self.has(Wrong::AnyToken);
        let left = match self.kind {
            Kind::Local if !self.has(Wrong::EndUntold) => {
                claim.left.min(self.deadline(notice.left, 0))
            }
            _ => claim.left,
        };
        let mut counts = is_of_place && left > 0;
        let asked = claim.sent.filter(|_| self.has(Wrong::UnansweredCounts));
        let unanswered = asked.map_or(0, |sent| self.deadline(self.term, sent.age));
        counts |= unanswered > 0;
        counts &= claim.phase == Phase::Waiting && is_own && rises;
        if counts {
            let left = match self.wrong {
                Some(Wrong::UnansweredCounts) => left.max(unanswered),
                Some(Wrong::NoticeTerm) => self.deadline(self.term, 0),
                Some(Wrong::NoticeTtl) => self.deadline(self.ttl, 0),
                _ => left,
            };
            self.hold(world, first, notice.token, left);
        }
        counts
    }

    fn reconnect(&self, world: &mut World, at: usize) -> bool {
        let client = &mut world.clients[at];
        if client.listens {
            return false;
        }
        client.listens = true;
        client.notices = Default::default();
        for claim in &mut world.claims[claims_of(at)] {
            if let Some(sent) = &mut claim.sent {
                sent.is_fresh = false;
            }
            if claim.phase == Phase::Waiting && !self.has(Wrong::ReconnectKeeps) {
                (claim.left, claim.height, claim.join) = (0, 0, 0);
            }
        }
        true
    }
}

/// Sends a request. Only one is on its way that is waited for.
fn send(world: &mut World, claim: usize, is_renewal: bool) -> bool {
    let floor = world.clients[client_of(claim)].seen;
    let claim = &mut world.claims[claim];
    let is_possible = claim.sent.is_none();
    claim.sent.get_or_insert(Sent {
        is_renewal,
        age: 0,
        is_fresh: true,
        floor,
        answer: None,
        is_acknowledged: false,
    });
    is_possible
}
