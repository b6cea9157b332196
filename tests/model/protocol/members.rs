//! What happens at a member: requests arrive, leases end, and it is lost.

use leasehold::store::quorum::protocol::MemberAnswer;

use super::clients::is_evicted;
use super::library::{LATER_US, OTHER, TTL_US, keep, keep_member, record, request};
use super::node::{At, MemberRequest, NameState, Node};
use super::rules::{Rules, Wrong};
use super::setup::Setup;
use super::world::{Claimant, Data, Lease, Loss, Promise, Server, World};

/// The incarnation of another member: none of its own.
const OF_ANOTHER: u8 = u8::MAX;

/// What became of a member, and the promise that this broke.
pub(super) type Done = Option<(Server, Option<Promise>)>;

impl Setup {
    pub(super) fn arrive(&self, world: &World, holder: u8, round: u8, member: u8) -> Done {
        let (of, at) = (usize::from(holder), usize::from(round));
        let claimant = &world.holders[of];
        let call = match Claimant::has(claimant.claims, at) {
            true => Rules::claim,
            false => Rules::renew_unvouched,
        };
        let (answer, mut server, broken) = self.request(world, of, at, member, call);
        if answer != MemberAnswer::Yes {
            return None;
        }
        let heard = &mut server.heard[of];
        let is_awaited = at == claimant.last()
            && !Claimant::has(claimant.confirmed, at)
            && !claimant.has_ended
            && usize::from(heard.low.1) != at + 1;
        if is_awaited || self.rules.has(Wrong::AnyYesCounts) {
            heard.yes |= 1 << round;
        }
        Some((server, broken))
    }

    pub(super) fn low(&self, world: &World, holder: u8, member: u8) -> Done {
        let of = usize::from(holder);
        let claimant = &world.holders[of];
        let round = claimant.last();
        let mut server = world.members[usize::from(member)];
        let heard = server.heard[of];
        let is_late = Claimant::has(claimant.lapsed, round) && !self.rules.has(Wrong::VouchLate);
        let has_answered = Claimant::has(heard.yes, round) || usize::from(heard.low.1) == round + 1;
        if has_answered || is_late || claimant.has_ended {
            return None;
        }
        let (answer, _, _) = self.request(world, of, round, member, Rules::renew_unvouched);
        let MemberAnswer::Low(mark) = answer else {
            return None;
        };
        server.heard[of].low = (mark as u8, round as u8 + 1);
        Some((server, None))
    }

    pub(super) fn vouched(&self, world: &World, holder: u8, member: u8) -> Done {
        let of = usize::from(holder);
        let claimant = &world.holders[of];
        let before = &world.members[usize::from(member)];
        let (mark, round) = before.heard[of].low;
        let round = usize::from(round).checked_sub(1)?;
        // The answer was heard, and the majority counted, in time: the repair was sent in time.
        if !Claimant::has(claimant.confirmed, round) && !self.rules.has(Wrong::VouchAlone) {
            return None;
        }
        let told = u64::from(mark);
        let call = |rules: Rules, node: &mut _, record: &mut _, asked: &_, at: &_| {
            rules.renew(node, record, asked, Some(told), at)
        };
        let (answer, server, mut broken) = self.request(world, of, round, member, call);
        let was_free = before.data.leases[usize::from(self.names[of])].by == 0;
        let is_adopted = before.data.floor >= claimant.tokens[round];
        if answer == MemberAnswer::Yes && was_free && is_adopted && broken.is_none() {
            broken = Some(Promise::ReachesARepair);
        }
        Some((server, broken))
    }

    /// Carries out a request of a round at a member, and notes which rounds have set the end of the lease.
    pub(super) fn request(
        &self,
        world: &World,
        holder: usize,
        round: usize,
        member: u8,
        call: impl FnOnce(Rules, &mut Node<u8>, &mut NameState, &MemberRequest, &At<u8>) -> MemberAnswer,
    ) -> (MemberAnswer, Server, Option<Promise>) {
        let name = usize::from(self.names[holder]);
        let mut server = world.members[usize::from(member)];
        let at = self.at(world, &server);
        let mut node = self.node(&server);
        let mut record = record(&server.data, name);
        let asked = request(holder as u64, world.holders[holder].tokens[round]);
        let answer = call(self.rules, &mut node, &mut record, &asked, &at);
        if answer != MemberAnswer::Yes {
            return (answer, server, None);
        }
        let is_new = record
            .lease
            .is_some_and(|lease| lease.ends_at_us != LATER_US);
        let before = server.data.leases[name].rounds;
        let rounds = match is_new || self.rules.has(Wrong::Shortens) {
            true => 1 << round,
            false => before | 1 << round,
        };
        keep(&node, &record, name, rounds, &mut server.data);
        let gone = match server.heard[holder].low.1 > 0 {
            true => server.given_up[holder],
            false => server.given_up[holder] | server.over[holder],
        };
        let is_back = is_new && gone >> asked.token.get() & 1 == 1;
        (
            answer,
            server,
            is_back.then_some(Promise::GivenUpStaysGivenUp),
        )
    }

    pub(super) fn expire(&self, world: &World, member: u8, name: u8) -> Done {
        let mut server = world.members[usize::from(member)];
        let lease = &mut server.data.leases[usize::from(name)];
        let holder = usize::from(lease.by) - 1;
        let is_live = lease.rounds & !world.holders[holder].lapsed != 0;
        if lease.is_kept || self.keeps_time && is_live {
            return None;
        }
        server.over[holder] |= 1 << lease.token;
        // It is over before the eviction is done: it does not count here.
        if lease.is_evicted && !is_evicted(world, holder) {
            server.evicted &= !(1 << holder);
        }
        *lease = Lease::default();
        if self.rules.has(Wrong::MarkForgotten) {
            server.data.mark = 0;
        }
        Some((server, None))
    }

    pub(super) fn free(&self, world: &World, holder: u8, round: u8, member: u8) -> Done {
        let of = usize::from(holder);
        let mut server = world.members[usize::from(member)];
        if Claimant::has(server.freed[of], round.into()) {
            return None;
        }
        let name = usize::from(self.names[of]);
        let at = self.at(world, &server);
        let mut node = self.node(&server);
        let mut record = record(&server.data, name);
        let token = world.holders[of].tokens[usize::from(round)];
        let asked = MemberRequest {
            ttl_us: match self.keeps_names
                && Claimant::has(world.holders[of].confirmed, round.into())
            {
                true => TTL_US,
                false => 0,
            },
            ..request(holder.into(), token)
        };
        let answer = self.rules.release(&mut node, &mut record, &asked, &at);
        if answer == MemberAnswer::Yes && record.lease.is_some() {
            server.kept |= 1 << holder;
        }
        server.freed[of] |= 1 << round;
        server.given_up[of] |= 1 << token;
        let rounds = server.data.leases[name].rounds;
        keep(&node, &record, name, rounds, &mut server.data);
        Some((server, None))
    }

    pub(super) fn evicted(&self, world: &World, holder: u8, member: u8) -> Done {
        let of = usize::from(holder);
        let mut server = world.members[usize::from(member)];
        if server.asked_to_evict >> holder & 1 == 1 {
            return None;
        }
        let name = usize::from(self.names[of]);
        let at = self.at(world, &server);
        let mut node = self.node(&server);
        let mut record = record(&server.data, name);
        let claimant = &world.holders[of];
        let asked = request(holder.into(), claimant.token());
        if self.rules.evict(&mut node, &mut record, &asked, &at) != MemberAnswer::Yes {
            return None;
        }
        server.evicted |= 1 << holder;
        server.asked_to_evict |= 1 << holder;
        // As long as a renewal that is under way may count.
        let before = server.data.leases[name].rounds;
        let stays = match self.rules.has(Wrong::EvictionNotLonger) {
            true => before,
            false => before | claimant.under_way(),
        };
        keep(&node, &record, name, stays, &mut server.data);
        Some((server, None))
    }

    pub(super) fn other(&self, world: &mut World, member: usize, token: u8) -> bool {
        world.others += 1;
        let server = world.members[member];
        let at = self.at(world, &server);
        let mut node = self.node(&server);
        let mut record = NameState {
            mark: server.data.mark.into(),
            lease: None,
        };
        if self
            .rules
            .claim(&mut node, &mut record, &request(OTHER, token), &at)
            != MemberAnswer::Yes
        {
            return false;
        }
        let data = &mut world.members[member].data;
        keep_member(&node, data);
        data.mark = record.mark as u8;
        true
    }

    pub(super) fn lose(&self, world: &mut World, member: usize, loss: Loss) -> bool {
        let under_way = world.holders.map(|claimant| claimant.under_way());
        let lapsed = world.holders.map(|claimant| claimant.lapsed);
        let other = world.members[usize::from(member == 0)].data;
        let server = &mut world.members[member];
        let is_over = |lease: &Lease| {
            let lapsed = |by: u8| lapsed[usize::from(by) - 1];
            self.keeps_time
                && lease.by != 0
                && !lease.is_kept
                && lease.rounds & !lapsed(lease.by) == 0
        };
        server.data = match (loss, server.copy) {
            (Loss::Empty, _) => Data::default(),
            (Loss::Restarted, _) => server.data,
            (Loss::Displaced, _) => Data {
                came_in: OF_ANOTHER,
                ..other
            },
            (Loss::Copy | Loss::LateCopy, None) => return false,
            (Loss::Copy, Some(mut copy)) => {
                for lease in copy.leases.iter_mut().filter(|lease| is_over(lease)) {
                    *lease = Lease::default();
                }
                copy
            }
            (Loss::LateCopy, Some(copy)) => copy,
        };
        server.copy = None;
        if !self.rules.has(Wrong::LossUnseen) {
            server.incarnation += 1;
        }
        if !self.rules.has(Wrong::NoKeepOut) {
            server.keep_out = under_way;
        }
        // What holders have heard from it is heard, and a vouched repair is on its way.
        server.given_up = Default::default();
        server.over = Default::default();
        server.asked_to_evict = 0;
        if !self.evictions_last {
            server.evicted = 0;
        }
        world.losses += 1;
        true
    }

    pub(super) fn has_kept_out(&self, world: &World, server: &Server) -> bool {
        let mut kept = server.keep_out.iter().zip(&world.holders);
        !self.keeps_out || kept.all(|(rounds, claimant)| rounds & !claimant.lapsed == 0)
    }
}
