//! `init --replace`: the members of a quorum are exchanged for others, while the clients of both lists go on, commands
//! stop half-way and are run again, and members are lost.
//!
//! A *run* is one command: it reserves all new members, sees that all are reserved still, closes old ones, waits for
//! the keep-out, and writes the new ones. It may stop anywhere, and its writes may come late. Two runs have the same
//! plan (one is run again) or different ones (two operators). Claims are of one round.
//!
//! In each state the promise L is checked: the command, run again without a loss, ends with a majority of its members
//! in, at once or once their clients have adopted those that are away.

use leasehold::clock::Instant;
use leasehold::store::HeldState;
use leasehold::store::quorum::protocol::{
    Absence, Answers, ClaimOutcome, MemberAnswer, MemberId, MemberLease, Membership, adoption,
    closing, majority,
};

use super::library::{LATE_US, LATER_US, MAX_TTL_US, holder, token};
use super::node::{At, FirstSeen, MemberRecord, MemberRequest, NameState, Node, Writing};
use crate::search::Space;

/// A quorum that no list makes.
const NONE_OF_THEM: u64 = 99;
const SERVERS: usize = 6;
const CLAIMS: usize = 3;

/// What a search tries.
#[derive(Debug, Clone)]
pub struct Replacing {
    /// The members of the quorum that is replaced, and of those that replace it.
    pub lists: Vec<Vec<u8>>,
    /// The quorum of each claim, as an index in `lists`.
    pub claims: Vec<u8>,
    /// The quorum that each run is to make.
    pub runs: Vec<u8>,
    /// What a run before has done for the first new quorum: the old members that it closed, and the new ones that it
    /// wrote.
    pub closed: Vec<u8>,
    /// The new members that it wrote.
    pub begun: Vec<u8>,
    /// The tokens that each claim may propose.
    pub tokens: Vec<Vec<u8>>,
    /// How many servers lose their data, and how many are adopted.
    pub losses: u8,
    /// Whether a server that is lost comes back with a copy from when it was closed, if it was.
    pub copies: bool,
    /// How many servers are adopted.
    pub adoptions: u8,
    /// The rule that is left out.
    pub without: Option<Without>,
}

/// A rule that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Without {
    /// The highest token is read at a majority, which is not closed.
    Closing,
    /// Nothing is waited for between the last closing and the first write.
    KeepOut,
    /// Nothing is waited for between the last reservation and the first write.
    KeepOutOfReserved,
    /// A member does not check the quorum that a request names, nor whether it is closed.
    Names,
    /// Each run closes for its own quorum, whatever a member was closed for before.
    TheFirstSuccessor,
    /// A run writes what another one has reserved since.
    Reservations,
    /// A run does not see whether its first reservations stand still when it has made the last one.
    TheCheck,
    /// A run writes although its quorum was written before.
    Looks,
    /// A closed member answers those who adopt.
    ClosedForAdoption,
    /// A member that was closed for the new quorum is one of another quorum until a run writes it.
    ClosedComesIn,
    /// One that was closed for the new quorum knows the highest token, though it was lost since.
    ClosedKeptItsData,
    /// A run that finds its quorum there closes no old member that is still open.
    ClosesTheRest,
}

/// A state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Exchange {
    servers: [Server; SERVERS],
    claims: [Claiming; CLAIMS],
    runs: [Run; 2],
    adoptions: [Adopting; 2],
    granted: u16,
    proposed: u8,
    losses: u8,
    broken: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Server {
    /// The quorum and one; 0 for none.
    quorum: u8,
    closed_for: u8,
    came_in: u8,
    max: u8,
    floor: u8,
    mark: u8,
    /// The claim and one, its token, and the floor under which it was taken.
    lease: (u8, u8, u8),
    incarnation: u8,
    /// The claims that must lapse before the keep-out ends.
    keep_out: u8,
    yes: u8,
    /// The run and one; 0 for none.
    reserved_by: u8,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Claiming {
    token: u8,
    after: u8,
    is_granted: bool,
    has_lapsed: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Run {
    /// Which of the new members it has reserved, and seen to be reserved still after the last one.
    reserved: u8,
    checked: u8,
    /// The answer of each old member: the quorum it is closed for, its highest token, and whether it is in.
    closed: [Option<(u8, u8, bool)>; SERVERS],
    keep_out: u8,
    /// Its quorum is there already: the rest is adopted.
    is_over: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Adopting {
    /// The quorum and one, and the server; 0 for none.
    quorum: u8,
    target: u8,
    found: u8,
    inside: u8,
    outside: u8,
    refused: bool,
    highest: u8,
    clock: u8,
}

/// A step.
#[derive(Debug, Clone, Copy)]
pub enum Exchanging {
    /// A client proposes a token.
    Claim(u8, u8),
    /// Its claim arrives.
    Arrive(u8, u8),
    /// It counts a majority.
    Count(u8),
    /// One ttl has passed since it was sent.
    Lapse(u8),
    /// The name expires at a server.
    Expire(u8),
    /// A run reserves a new member.
    Reserve(u8, u8),
    /// A run closes an old member.
    Close(u8, u8),
    /// A run writes a new member.
    Open(u8, u8),
    /// A server loses its data.
    Lose(u8),
    /// A client of a quorum finds a member that is away.
    Adopt(u8, u8),
    /// It asks another one.
    Ask(u8, u8),
    /// It writes.
    Write(u8),
}

impl Space for Replacing {
    type State = Exchange;
    type Step = Exchanging;

    fn first(&self) -> Exchange {
        let mut servers = [Server::default(); SERVERS];
        for (index, server) in servers.iter_mut().enumerate() {
            server.incarnation = 1;
            if self.lists[0].contains(&(index as u8)) {
                (server.quorum, server.came_in) = (1, 1);
            }
            server.closed_for = 2 * u8::from(self.closed.contains(&(index as u8)));
            if self.begun.contains(&(index as u8)) {
                (server.quorum, server.came_in) = (2, 1);
                (server.max, server.floor) = (1, 1);
            }
        }
        Exchange {
            servers,
            claims: Default::default(),
            runs: Default::default(),
            adoptions: Default::default(),
            granted: 0,
            proposed: 0,
            losses: 0,
            broken: None,
        }
    }

    fn steps(&self, world: &Exchange, steps: &mut Vec<Exchanging>) {
        for (index, quorum) in self.claims.iter().enumerate() {
            let (claim, claiming) = (index as u8, &world.claims[index]);
            if claiming.token == 0 {
                let tokens = self.tokens[index].iter();
                steps.extend(tokens.map(|token| Exchanging::Claim(claim, *token)));
                continue;
            }
            let list = &self.lists[usize::from(*quorum)];
            steps.extend(list.iter().map(|server| Exchanging::Arrive(claim, *server)));
            if !claiming.has_lapsed {
                steps.extend([Exchanging::Lapse(claim), Exchanging::Count(claim)]);
            }
        }
        for (index, quorum) in self.runs.iter().enumerate() {
            let run = index as u8;
            if world.runs[index].is_over {
                continue;
            }
            let list = &self.lists[usize::from(*quorum)];
            steps.extend(
                self.lists[0]
                    .iter()
                    .map(|server| Exchanging::Close(run, *server)),
            );
            // One after the other; the order of the list is as good as any.
            let (reserved, checked) = (world.runs[index].reserved, world.runs[index].checked);
            let is_next = |bits: u8| list.iter().find(move |server| bits >> **server & 1 == 0);
            let next = is_next(reserved).or_else(|| is_next(checked));
            steps.extend(next.map(|server| Exchanging::Reserve(run, *server)));
            steps.extend(list.iter().map(|server| Exchanging::Open(run, *server)));
        }
        let adopting = world
            .adoptions
            .iter()
            .filter(|adopting| adopting.quorum != 0);
        let may_adopt = adopting.count() < self.adoptions.into();
        for server in 0..SERVERS as u8 {
            let at = &world.servers[usize::from(server)];
            if at.lease.0 != 0 {
                steps.push(Exchanging::Expire(server));
            }
            if at.quorum != 0 && world.losses < self.losses {
                steps.push(Exchanging::Lose(server));
            }
            if may_adopt {
                let quorums = (0..self.lists.len() as u8).filter(|quorum| {
                    let is_away = at.came_in != at.incarnation || at.closed_for == quorum + 1;
                    let is_known = world.servers.iter().any(|other| other.quorum == quorum + 1);
                    is_away && is_known && self.lists[usize::from(*quorum)].contains(&server)
                });
                steps.extend(quorums.map(|quorum| Exchanging::Adopt(quorum, server)));
            }
        }
        for (index, adopting) in world.adoptions.iter().enumerate() {
            if adopting.quorum != 0 {
                let list = &self.lists[usize::from(adopting.quorum) - 1];
                let others = list.iter().filter(|server| **server != adopting.target);
                steps.extend(others.map(|server| Exchanging::Ask(index as u8, *server)));
                steps.push(Exchanging::Write(index as u8));
            }
        }
    }

    fn go(&self, world: &Exchange, step: Exchanging) -> Option<Exchange> {
        let mut next = world.clone();
        match step {
            Exchanging::Claim(claim, token) => {
                next.claims[usize::from(claim)].token = token;
                next.claims[usize::from(claim)].after =
                    15_u32.saturating_sub(world.granted.leading_zeros()) as u8;
                next.proposed = next.proposed.max(token);
            }
            Exchanging::Arrive(claim, server) => self.arrive(&mut next, claim, server),
            Exchanging::Count(claim) => self.count(&mut next, claim),
            Exchanging::Lapse(claim) => next.claims[usize::from(claim)].has_lapsed = true,
            Exchanging::Expire(server) => {
                let at = &mut next.servers[usize::from(server)];
                if world.claims[usize::from(at.lease.0) - 1].has_lapsed {
                    at.lease = Default::default();
                }
            }
            Exchanging::Reserve(run, server) => self.reserve(&mut next, run.into(), server.into()),
            Exchanging::Close(run, server) => self.close(&mut next, run.into(), server.into()),
            Exchanging::Open(run, server) => self.open(&mut next, run.into(), server.into()),
            Exchanging::Lose(server) => {
                let keep_out = under_way(world);
                let at = &mut next.servers[usize::from(server)];
                let copied = world.runs.iter().find_map(|run| {
                    let (closed_for, max, is_in) = run.closed[usize::from(server)]?;
                    (self.copies && is_in).then_some((closed_for + 1, max))
                });
                let (closed_for, max) = copied.unwrap_or_default();
                *at = Server {
                    quorum: u8::from(copied.is_some()),
                    came_in: u8::from(copied.is_some()),
                    closed_for,
                    max,
                    mark: max,
                    incarnation: at.incarnation + 1,
                    keep_out,
                    yes: at.yes,
                    ..Server::default()
                };
                next.losses += 1;
            }
            Exchanging::Adopt(quorum, server) => self.find(&mut next, quorum, server),
            Exchanging::Ask(adoption, server) => self.ask(&mut next, adoption.into(), server),
            Exchanging::Write(adoption) => self.write(&mut next, adoption.into()),
        }
        (next != *world).then_some(next)
    }

    fn settle(&self, world: &mut Exchange) {
        world.adoptions.sort_unstable();
    }

    fn broken(&self, world: &Exchange) -> Option<&'static str> {
        let stays = || (0..self.runs.len()).any(|run| !self.ends_when_run_again(world, run));
        // A rule that is left out is to break a promise of safety, unless it is one of these.
        let is_asked = matches!(
            self.without,
            None | Some(Without::ClosedComesIn | Without::ClosesTheRest)
        );
        let broken = world.broken;
        broken.or_else(|| (is_asked && stays()).then_some("L (run again, it ends)"))
    }

    fn describe(&self, _: &Exchange, step: Exchanging) -> String {
        format!("{step:?}")
    }
}

impl Replacing {
    fn id(&self, quorum: u8, server: u8) -> MemberId {
        let list = &self.lists[usize::from(quorum)];
        let index = list.iter().position(|other| *other == server);
        MemberId {
            quorum: quorum.into(),
            index: index.expect("on its list") as u8,
            of: list.len() as u8,
        }
    }

    /// The server as the library has it.
    fn node(&self, world: &Exchange, server: usize) -> (Node<u8>, At<u8>) {
        let at = &world.servers[server];
        let membership = (at.quorum > 0).then(|| MemberRecord {
            id: self.id(at.quorum - 1, server as u8),
            max_ttl_us: MAX_TTL_US,
            incarnation: at.came_in,
            max: at.max.into(),
            floor: at.floor.into(),
            closed_for: (at.closed_for > 0).then(|| u64::from(at.closed_for) - 1),
        });
        let seen = Some(FirstSeen {
            incarnation: at.incarnation,
            at_us: 0,
        });
        let now = At {
            now_us: if has_lapsed(world, at.keep_out) {
                LATE_US
            } else {
                1
            },
            incarnation: at.incarnation,
        };
        let node = Node {
            membership,
            seen,
            reserved_by: u64::from(at.reserved_by).checked_sub(1),
        };
        (node, now)
    }

    fn keep(world: &mut Exchange, server: usize, node: &Node<u8>) {
        let at = &mut world.servers[server];
        at.reserved_by = node.reserved_by.map_or(0, |run| run as u8 + 1);
        if let Some(member) = &node.membership {
            at.quorum = member.id.quorum as u8 + 1;
            at.closed_for = member.closed_for.map_or(0, |quorum| quorum as u8 + 1);
            at.came_in = member.incarnation;
            (at.max, at.floor) = (member.max as u8, member.floor as u8);
        }
    }

    /// L: the command is run again, nothing is lost, and clients take in what is away: then a majority is in. Not asked
    /// of a command that is refused, because no majority of the old members that are in is closed for it, nor where an
    /// old member was closed by a command with another plan.
    fn ends_when_run_again(&self, world: &Exchange, run: usize) -> bool {
        let mut world = world.clone();
        let quorum = self.runs[run];
        let list = &self.lists[usize::from(quorum)];
        for claiming in &mut world.claims {
            claiming.has_lapsed = true;
        }
        world.runs[run] = Run::default();
        let is_there = |world: &Exchange| world.servers.iter().any(|at| at.quorum == quorum + 1);
        let is_set_up = is_there(&world);
        if !is_set_up {
            // Reserved, and checked.
            for server in list.iter().chain(list) {
                self.reserve(&mut world, run, usize::from(*server));
            }
        }
        if !is_set_up || self.without != Some(Without::ClosesTheRest) {
            for server in &self.lists[0] {
                self.close(&mut world, run, usize::from(*server));
            }
        }
        if !is_set_up {
            for server in list {
                self.open(&mut world, run, usize::from(*server));
            }
        }
        for server in list.iter().cycle().take(list.len() * list.len()) {
            world.adoptions = Default::default();
            self.find(&mut world, quorum, *server);
            list.iter()
                .for_each(|other| self.ask(&mut world, 0, *other));
            self.write(&mut world, 0);
        }
        let is_in = |server: &&u8| {
            let at = &world.servers[usize::from(**server)];
            at.quorum == quorum + 1 && at.came_in == at.incarnation && at.closed_for == 0
        };
        let is_of_another = |at: &Server| at.closed_for > 0 && at.closed_for != quorum + 1;
        !is_there(&world)
            || world.servers.iter().any(is_of_another)
            || list.iter().filter(is_in).count() >= majority(list.len())
    }

    fn arrive(&self, world: &mut Exchange, claim: u8, server: u8) {
        let index = usize::from(server);
        let at = world.servers[index];
        let claiming = world.claims[usize::from(claim)];
        let (mut node, now) = self.node(world, index);
        let mut id = self.id(self.claims[usize::from(claim)], server);
        if let (Some(Without::Names), Some(member)) = (self.without, &mut node.membership) {
            id = member.id;
            member.closed_for = None;
        }
        let mut record = NameState {
            mark: at.mark.into(),
            lease: (at.lease.0 > 0).then(|| MemberLease {
                holder: holder(u64::from(at.lease.0 - 1)),
                token: token(at.lease.1),
                ends_at_us: LATER_US,
                floor: at.lease.2.into(),
                state: HeldState::Leased,
            }),
        };
        let asked = MemberRequest {
            id,
            holder: holder(claim.into()),
            token: token(claiming.token),
            ttl_us: 1,
        };
        if node.claim(&mut record, &asked, &now) != MemberAnswer::Yes {
            return;
        }
        let at = &mut world.servers[index];
        at.mark = record.mark as u8;
        at.max = node.membership.map_or(0, |member| member.max) as u8;
        at.lease = (claim + 1, claiming.token, at.floor);
        at.yes |= 1 << claim;
    }

    fn count(&self, world: &mut Exchange, claim: u8) {
        let index = usize::from(claim);
        let list = &self.lists[usize::from(self.claims[index])];
        let mut round: Answers = Answers::new(list.len(), Instant::from_nanos(1));
        for (member, server) in list.iter().enumerate() {
            if world.servers[usize::from(*server)].yes >> claim & 1 == 1 {
                round.count(member, MemberAnswer::Yes, Instant::ZERO);
            }
        }
        let claiming = world.claims[index];
        if round.close() != ClaimOutcome::Granted || claiming.is_granted {
            return;
        }
        let believes = |claiming: &Claiming| claiming.is_granted && !claiming.has_lapsed;
        if claiming.token <= claiming.after || world.granted >> claiming.token & 1 == 1 {
            world.broken = Some("P2 (tokens rise)");
        } else if world.claims.iter().any(believes) {
            world.broken = Some("P1 (one holder)");
        }
        world.granted |= 1 << claiming.token;
        world.claims[index].is_granted = true;
    }

    fn reserve(&self, world: &mut Exchange, run: usize, server: usize) {
        let quorum = self.runs[run];
        let (mut node, _) = self.node(world, server);
        let list = &self.lists[usize::from(quorum)];
        let reserving = &mut world.runs[run];
        if list
            .iter()
            .all(|other| reserving.reserved >> other & 1 == 1)
        {
            reserving.checked |= 1 << server;
            reserving.is_over |= node.reserved_by != Some(run as u64);
            return;
        }
        let found = node.reserve(run as u64);
        let has_begun = found.is_some_and(|id| id.quorum == u64::from(quorum));
        Self::keep(world, server, &node);
        let keep_out = under_way(world);
        let reserving = &mut world.runs[run];
        reserving.reserved |= 1 << server;
        if self.without != Some(Without::KeepOutOfReserved) {
            reserving.keep_out = keep_out;
        }
        reserving.is_over |= has_begun && self.without != Some(Without::Looks);
    }

    fn close(&self, world: &mut Exchange, run: usize, server: usize) {
        let successor = u64::from(self.runs[run]);
        let (mut node, now) = self.node(world, server);
        if let (Some(Without::TheFirstSuccessor), Some(member)) =
            (self.without, &mut node.membership)
            && member.id.quorum == 0
        {
            member.closed_for = None;
        }
        let Ok((closed_for, max)) = node.close(self.id(0, server as u8), successor, &now) else {
            return;
        };
        let keep_out = under_way(world);
        if self.without != Some(Without::Closing) {
            Self::keep(world, server, &node);
        }
        let run = &mut world.runs[run];
        let said = (closed_for as u8, max.unwrap_or(0) as u8, max.is_some());
        if run.closed[server].is_none_or(|before| before.0 != said.0) {
            run.closed[server] = Some(said);
            run.keep_out = keep_out;
        }
    }

    fn open(&self, world: &mut Exchange, run: usize, server: usize) {
        let quorum = self.runs[run];
        let list = &self.lists[usize::from(quorum)];
        let writing = &world.runs[run];
        let said = |old: &u8| {
            let (closed_for, max, is_in) = writing.closed[usize::from(*old)]?;
            Some(Membership {
                id: self.id(0, *old),
                max_ttl_us: MAX_TTL_US,
                is_in,
                max: max.into(),
                closed_for: Some(closed_for.into()),
            })
        };
        let closed: Vec<_> = self.lists[0].iter().filter_map(said).collect();
        let Some(highest) = closing(&closed, self.lists[0].len(), quorum.into()) else {
            return;
        };
        let reserved = match self.without {
            Some(Without::TheCheck | Without::Looks) => writing.reserved,
            _ => writing.checked,
        };
        let has_reserved = list.iter().all(|other| reserved >> other & 1 == 1);
        let may = has_reserved
            && (has_lapsed(world, writing.keep_out) || self.without == Some(Without::KeepOut));
        if !may {
            return;
        }
        let writing = Writing {
            id: self.id(quorum, server as u8),
            max_ttl_us: MAX_TTL_US,
            found: 0,
            highest,
        };
        let (mut node, now) = self.node(world, server);
        if self.without == Some(Without::Reservations) {
            node.reserved_by = Some(run as u64);
        }
        if self.without == Some(Without::Closing)
            && let Some(member) = &mut node.membership
            && member.id.quorum == 0
        {
            member.closed_for = Some(quorum.into());
        }
        if node.open(&writing, run as u64, &now).is_ok() {
            Self::keep(world, server, &node);
        }
    }

    /// A client finds a member that has kept out, and what it knows.
    fn find(&self, world: &mut Exchange, quorum: u8, server: u8) {
        let at = world.servers[usize::from(server)];
        if !has_lapsed(world, at.keep_out) {
            return;
        }
        let is_free = |adopting: &Adopting| adopting.quorum == 0;
        let free = world.adoptions.iter().position(is_free).expect("counted");
        world.adoptions[free] = Adopting {
            quorum: quorum + 1,
            target: server,
            found: at.incarnation,
            ..Adopting::default()
        };
        self.ask(world, free, server);
    }

    fn hide_the_closing(&self, node: &mut Node<u8>) {
        if let (Some(Without::ClosedComesIn), Some(member)) = (self.without, &mut node.membership) {
            member.closed_for = member.closed_for.map(|_| NONE_OF_THEM);
        }
    }

    fn ask(&self, world: &mut Exchange, adoption: usize, server: u8) {
        let bit = 1 << server;
        let asking = world.adoptions[adoption];
        let (mut node, now) = self.node(world, server.into());
        if let (Some(Without::ClosedForAdoption), Some(member)) =
            (self.without, &mut node.membership)
        {
            member.closed_for = None;
        }
        if (asking.inside | asking.outside) & bit != 0 {
            return;
        }
        let proposed = world.proposed;
        let adopting = &mut world.adoptions[adoption];
        if let (Some(Without::ClosedKeptItsData), Some(member)) =
            (self.without, &mut node.membership)
            && member.closed_for == Some(u64::from(asking.quorum - 1))
        {
            member.incarnation = now.incarnation;
        }
        self.hide_the_closing(&mut node);
        let told = node.membership.as_ref().map(|member| member.told(&now));
        match Membership::highest(told, self.id(asking.quorum - 1, server)) {
            Ok(max) => {
                adopting.inside |= bit;
                adopting.highest = adopting.highest.max(max as u8);
            }
            Err(Absence::Away(_)) => adopting.outside |= bit,
            Err(_) => adopting.refused = true,
        }
        adopting.clock = proposed;
    }

    fn write(&self, world: &mut Exchange, index: usize) {
        let adopting = world.adoptions[index];
        let quorum = adopting.quorum - 1;
        let list = &self.lists[usize::from(quorum)];
        let target = self.id(quorum, adopting.target);
        let told = |server: &u8| {
            let bit = 1 << server;
            if adopting.inside & bit != 0 {
                Some(Ok(adopting.highest.into()))
            } else if adopting.outside & bit != 0 {
                Some(Err(Absence::Away(0)))
            } else {
                None
            }
        };
        let told: Vec<_> = list.iter().filter_map(told).collect();
        let highest = adoption(&told, list.len(), adopting.clock.into());
        let Some(highest) = highest.filter(|_| !adopting.refused) else {
            return;
        };
        let server = usize::from(adopting.target);
        let (mut node, now) = self.node(world, server);
        let writing = Writing {
            id: target,
            max_ttl_us: MAX_TTL_US,
            found: adopting.found,
            highest,
        };
        self.hide_the_closing(&mut node);
        if node.adopt(&writing, &now).is_ok() {
            Self::keep(world, server, &node);
        }
    }
}

/// The claims that were sent and have not lapsed.
fn under_way(world: &Exchange) -> u8 {
    let indexed = world.claims.iter().enumerate();
    let is_under_way = |claiming: &Claiming| claiming.token > 0 && !claiming.has_lapsed;
    indexed.fold(0, |bits, (index, claiming)| {
        bits | u8::from(is_under_way(claiming)) << index
    })
}

fn has_lapsed(world: &Exchange, claims: u8) -> bool {
    under_way(world) & claims == 0
}
