//! A process with one claim or lease at a time. It proposes and counts with the parts of the store.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use leasehold::clock::Instant;
use leasehold::store::Info;
use leasehold::store::quorum::planted::QuorumBug;
use leasehold::store::quorum::{
    Decision, Extension, NextProposal, Proposal, Proposals, Proposer, Purpose, Round, TakenBack,
    Tally, Vote, Wish,
};
use leasehold::{ClientId, Holder, Token};

use super::history::QuorumPromise;
use super::plan::Plan;
use super::scene::{Happening, Message, Question, Said, Scene};
use crate::simulator::time::Drifting;

/// After so many rounds in a row a claim waits before the next.
const ROUNDS: u32 = 20;

pub(super) struct User {
    pub(super) clock: Drifting,
    /// Counts its crashes.
    pub(super) life: u32,
    pub(super) holder: Holder,
    /// What happened while it was paused; none while it runs.
    pub(super) inbox: Option<Vec<Happening>>,
    client: ClientId,
    proposer: Proposer,
    proposals: Proposals,
    calls: u32,
    asking: Option<Asking>,
    lease: Option<OwnLease>,
    /// Whether its store took its grant for lost.
    has_lost: bool,
}

/// What a user does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Act {
    /// It claims the name, or asks again for what it holds.
    Ask,
    Renew,
    Release,
}

/// A claim that is under way.
struct Asking {
    call: u32,
    round: Round,
    rounds: u32,
    next: NextProposal,
    /// Before its first round.
    sent_at: Instant,
    /// The highest token that another had been told when this round was sent.
    told: Option<Token>,
    /// The highest floor that was told.
    seen: u64,
}

/// A lease, and its renewal under way.
struct OwnLease {
    token: Token,
    deadline: Instant,
    renewing: Option<Renewing>,
}

struct Renewing {
    call: u32,
    tally: Tally,
    sent_at: Instant,
    told: Option<Token>,
    is_decided: bool,
}

impl User {
    pub(super) fn new(id: usize, plan: &Plan, rng: &mut Rng) -> Self {
        let client = ClientId::from_u128(id as u128 + 1);
        Self {
            clock: Drifting::new(3_600_000_000_000 * (1 + id as u64), plan.draw_rate(rng)),
            life: 0,
            holder: Holder::new(client, rng.u64(..)),
            inbox: None,
            client,
            proposer: Proposer::new(plan.members, plan.planted()),
            proposals: Proposals::new(plan.planted()),
            calls: 0,
            asking: None,
            lease: None,
            has_lost: false,
        }
    }

    /// Whether it believes to hold at this moment of its clock.
    fn believes(&self, shown: Instant) -> bool {
        let lease = self.lease.as_ref();
        lease.is_some_and(|lease| shown < lease.deadline)
    }

    fn call(&mut self) -> u32 {
        self.calls += 1;
        self.calls
    }
}

impl Scene {
    pub(super) fn tell(&mut self, user: usize, life: u32, happening: Happening) {
        let at = &mut self.users[user];
        if at.life != life {
            return;
        }
        if let Some(inbox) = &mut at.inbox {
            inbox.push(happening);
            return;
        }
        match happening {
            Happening::Act(holder, _) if holder != at.holder => {}
            Happening::Act(_, Act::Ask) => {
                let sent_at = self.shown(user);
                if self.users[user].asking.is_none() && !self.is_ending() {
                    self.ask(user, (sent_at, 0, 0));
                }
            }
            Happening::Act(_, Act::Renew) => self.renew(user),
            Happening::Act(_, Act::Release) => self.leave(user),
            Happening::Close(call) => {
                if at.asking.as_ref().is_some_and(|asking| asking.call == call) {
                    self.decide(user);
                }
            }
            Happening::Reply(member, message, Said::Vote(vote, clock_us)) => {
                self.hear_vote(user, member, &message, (vote, clock_us));
            }
            Happening::Reply(member, message, Said::Extension(said)) => {
                self.hear_renewal(user, member, message.call, said);
            }
            Happening::Reply(_, _, Said::Freed) => {}
        }
    }

    /// Proposes a token to all members.
    fn ask(&mut self, user: usize, (sent_at, rounds, seen): (Instant, u32, u64)) {
        let (now, timing, planted) = (self.shown(user), self.plan.timing, self.plan.planted());
        let told = self.history.told_to_others(self.users[user].holder);
        let at = &mut self.users[user];
        let next = at.proposals.next(at.holder);
        let wish = Wish { floor: None, seen };
        let Ok(proposed) = at.proposer.propose(wish, next, now) else {
            self.act_within(user, timing.ttl(), Act::Ask);
            return;
        };
        // As long as no clock is known it is a token that every member refuses, which tells the clocks.
        let token = proposed.unwrap_or_else(|| Token::new(1).expect("the least token"));
        let info = Arc::new(Info::default());
        at.proposals
            .note_sent(at.holder, token, &info, timing.ttl(), now);
        let call = at.call();
        at.asking = Some(Asking {
            call,
            round: Round::new(at.holder, token, self.plan.members, planted),
            rounds: rounds + 1,
            next,
            sent_at,
            told,
            seen,
        });
        self.hold(user, &self.all(), (token, Purpose::Claim), call);
        self.tell_later(user, timing.ttl() / 6, Happening::Close(call));
    }

    fn hold(&mut self, user: usize, to: &[usize], (token, purpose): (Token, Purpose), call: u32) {
        let proposal = Proposal {
            holder: self.users[user].holder,
            token,
            ttl: self.plan.timing.ttl(),
            purpose,
        };
        self.send_for(user, to, Question::Hold(proposal), call);
    }

    fn send_for(&mut self, user: usize, to: &[usize], question: Question, call: u32) {
        let User { life, holder, .. } = self.users[user];
        let message = Message {
            user,
            life,
            call,
            holder,
            question,
        };
        self.send(to, message);
    }

    fn hear_vote(
        &mut self,
        user: usize,
        member: usize,
        message: &Message,
        (vote, clock_us): (Vote, u64),
    ) {
        let counts_all = self.plan.has(QuorumBug::AnyYesCounts);
        let (now, members) = (self.shown(user), self.plan.members);
        let at = &mut self.users[user];
        let is_of_holder = message.holder == at.holder;
        let Some(asking) = &mut at.asking else {
            return;
        };
        if asking.call != message.call && !(counts_all && is_of_holder) {
            return;
        }
        at.proposer.note_clock(member, clock_us, now);
        if let Vote::Low { of_server, .. } = vote {
            at.proposer.note_floor(of_server, clock_us, now);
        }
        asking.round.count(member, vote);
        let decision = asking.round.decision();
        let is_decided = matches!(decision, Some(Decision::Granted(_) | Decision::Low { .. }));
        if is_decided || asking.round.cast_votes() == members {
            self.decide(user);
        }
    }

    /// Ends a round, as the store does.
    fn decide(&mut self, user: usize) {
        let takes_grants_back = self.plan.has(QuorumBug::GrantTakenBack);
        let at = &mut self.users[user];
        let Some(asking) = at.asking.take() else {
            return;
        };
        let (holder, token) = (at.holder, asking.round.proposed());
        let is_repeated = matches!(asking.next, NextProposal::Again(_));
        match asking.round.close() {
            Decision::Granted(granted) => {
                at.proposals.note_granted(holder, granted);
                self.granted(user, &asking, granted);
                return;
            }
            Decision::Low { floor }
                if asking.rounds < ROUNDS && (!is_repeated || asking.round.is_lost()) =>
            {
                if is_repeated {
                    at.proposals.note_lost(holder);
                    at.has_lost = true;
                }
                let seen = asking.seen.max(floor);
                self.ask(user, (asking.sent_at, asking.rounds, seen));
                return;
            }
            _ => {}
        }
        if !is_repeated || takes_grants_back {
            let taken = match is_repeated {
                true => TakenBack::up_to(token),
                false => at.proposals.taking_back(holder, token),
            };
            let members: Vec<usize> = asking.round.to_take_back().collect();
            let question = Question::TakeBack(holder, taken);
            self.send_for(user, &members, question, asking.call);
        }
        let ttl = self.plan.timing.ttl();
        match self.rng.u8(..4) {
            0 if !is_repeated => self.leave(user),
            1 => self.act_within(user, ttl, Act::Ask),
            _ => self.act_within(user, Duration::from_millis(100), Act::Ask),
        }
    }

    /// The holder is told of its grant.
    fn granted(&mut self, user: usize, asking: &Asking, token: Token) {
        let (now, ttl) = (self.shown(user), self.plan.timing.ttl());
        let (holder, is_wild) = (self.users[user].holder, self.plan.is_wild);
        let before = self.history.granted(holder);
        let is_new = before != Some(token);
        let has_it = !self.users[user].has_lost || !is_wild && self.users[user].believes(now);
        let is_same = before.is_none() || !is_new || !has_it;
        self.history.check(QuorumPromise::I, is_same, || {
            format!("{holder} asked again for {before:?} and got {token}")
        });
        let from = match self.plan.has(QuorumBug::DeadlineFromTheReply) {
            true => now,
            false => asking.sent_at,
        };
        let deadline = from.after(ttl - self.plan.margin());
        let others = self.history.told_to_others(holder);
        let is_in_order = is_wild || !is_new || now >= deadline || others < Some(token);
        self.history.check(QuorumPromise::T3, is_in_order, || {
            format!("{holder} is told {token} after {others:?} was told")
        });
        self.history.tell(holder, token, asking.told);
        self.users[user].has_lost = false;
        if now >= deadline {
            self.act_within(user, Duration::from_millis(10), Act::Ask);
            return;
        }
        match &mut self.users[user].lease {
            Some(lease) if lease.token == token => lease.deadline = lease.deadline.max(deadline),
            lease => {
                *lease = Some(OwnLease {
                    token,
                    deadline,
                    renewing: None,
                });
                self.act_after(user, ttl / 3, Act::Renew);
                self.act_within(user, ttl * 3, Act::Release);
                if self.rng.u8(..3) == 0 {
                    self.act_within(user, ttl * 2, Act::Ask);
                }
            }
        }
        self.check_alone(user);
    }

    /// No other user believes to hold if this one does.
    fn check_alone(&mut self, user: usize) {
        let mut others = (0..self.users.len()).filter(|other| *other != user);
        let rival = others.find(|other| self.users[*other].believes(self.shown(*other)));
        let believes = self.users[user].believes(self.shown(user));
        let is_kept = self.plan.is_wild || !believes || rival.is_none();
        let holder = self.users[user].holder;
        self.history.check(QuorumPromise::X, is_kept, || {
            format!("{holder} and user {rival:?} both believe to hold")
        });
    }

    fn renew(&mut self, user: usize) {
        let now = self.shown(user);
        if !self.users[user].believes(now) {
            self.leave(user);
            return;
        }
        let holder = self.users[user].holder;
        let told = self.history.told_to_others(holder);
        let tally = Tally::new(self.plan.members, self.plan.planted());
        let call = self.users[user].call();
        let Some(lease) = &mut self.users[user].lease else {
            return;
        };
        lease.renewing = Some(Renewing {
            call,
            tally,
            sent_at: now,
            told,
            is_decided: false,
        });
        let token = lease.token;
        let renewal = self.renewal(holder, token);
        self.send_for(user, &self.all(), Question::Renew(renewal), call);
        self.act_after(user, self.plan.timing.ttl() / 3, Act::Renew);
    }

    fn hear_renewal(&mut self, user: usize, member: usize, call: u32, said: Extension) {
        let (now, from_reply) = (
            self.shown(user),
            self.plan.has(QuorumBug::DeadlineFromTheReply),
        );
        let term = self.plan.timing.ttl() - self.plan.margin();
        let Some(lease) = &mut self.users[user].lease else {
            return;
        };
        let Some(renewing) = lease.renewing.as_mut().filter(|own| own.call == call) else {
            return;
        };
        let was_decided = renewing.is_decided;
        renewing.tally.count(member, said);
        let outcome = renewing.tally.outcome();
        renewing.is_decided = outcome.is_some();
        let (token, told) = (lease.token, renewing.told);
        let repairs: Vec<usize> = match was_decided {
            true => renewing
                .tally
                .to_repair()
                .filter(|to| *to == member)
                .collect(),
            false => renewing.tally.to_repair().collect(),
        };
        match outcome {
            Some(Extension::Renewed) if !was_decided => {
                if now < lease.deadline {
                    let from = if from_reply { now } else { renewing.sent_at };
                    lease.deadline = lease.deadline.max(from.after(term));
                }
                let is_kept = self.has_lost_data || told < Some(token);
                self.history.check(QuorumPromise::Z, is_kept, || {
                    format!("{token} was renewed although {told:?} was told before")
                });
                self.check_alone(user);
            }
            Some(Extension::Refused | Extension::Evicted) => {
                self.leave(user);
                return;
            }
            _ => {}
        }
        self.hold(user, &repairs, (token, Purpose::Repair), call);
    }

    /// The holder releases what it has, or may have, and the user goes on with a new claim.
    fn leave(&mut self, user: usize) {
        let holder = self.users[user].holder;
        self.send_for(user, &self.all(), Question::Release(holder), 0);
        self.users[user].proposals.forget(holder);
        self.begin_anew(user);
    }

    fn begin_anew(&mut self, user: usize) {
        let drawn = self.rng.u64(..);
        let at = &mut self.users[user];
        at.holder = Holder::new(at.client, drawn);
        (at.asking, at.lease, at.has_lost) = (None, None, false);
        self.act_within(user, self.plan.timing.ttl() / 2, Act::Ask);
    }

    /// The process is gone, and another takes its place that remembers nothing.
    pub(super) fn crash(&mut self, user: usize) {
        let planted = self.plan.planted();
        let at = &mut self.users[user];
        at.life += 1;
        at.inbox = None;
        at.proposer = Proposer::new(self.plan.members, planted);
        at.proposals = Proposals::new(planted);
        self.begin_anew(user);
    }
}
