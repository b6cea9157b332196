//! A claim, asked in rounds until it is decided.
//!
//! ```text
//!   propose ─► all members ─► granted ─────────────────────────► the token
//!      ▲                      ├─ too low ─► propose a higher one at once
//!      │                      ├─ held by another ─► take back ─► held
//!      └── a random pause ◄── └─ split ─► take back
//! ```

use std::sync::Arc;
use std::time::Duration;

use super::members::Poll;
use super::planted::Planted;
use super::store::Quorum;
use super::{Decision, NextProposal, Proposal, Purpose, Round, Tenure, TooFarAhead, Vote, Wish};
use crate::clock::{Boottime, Clock as _, Instant};
use crate::error::{Error, ErrorKind};
use crate::store::redis::Voted;
use crate::store::{Answer, Ask, Claim, Failed, Grant, Held, HeldState, Sent};
use crate::token::Token;

/// The longest pause between two rounds of a split vote.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// The least window of the first pause: a round trip on one machine.
const LEAST_WINDOW: Duration = Duration::from_micros(200);
/// After so many rounds in which the same lease had the most members, it is taken for one that is held: its other members
/// may be those that do not answer. A claim that is under way takes its token back meanwhile, or gets the name.
const SAME_LEADER: u32 = 5;

/// The rounds of one attempt of a claim.
pub(super) struct Rounds<'a> {
    quorum: &'a Quorum,
    claim: Arc<Claim>,
    deadline: Instant,
    wish: Wish,
    /// From how long a time the next pause is drawn.
    window: Option<Duration>,
    /// The lease that had the most members in the last rounds, and in how many.
    leader: Option<(Tenure, u32)>,
    /// Whether everything that was proposed is known to be refused or taken back.
    is_clean: bool,
}

/// What came of one round.
struct Votes {
    round: Round,
    /// What was told of the leases of others, with the clocks of their members.
    held: Vec<(usize, Held)>,
    /// The clock of each member that told it.
    clocks: Vec<u64>,
    failures: Vec<(usize, Failed)>,
    /// The members that have this holder now.
    taken_by: Vec<usize>,
    /// Whether a member wants a higher token.
    is_low: bool,
    took: Option<Duration>,
}

/// How it goes on after a round.
enum NextStep {
    Answered(Answer),
    /// Propose again, at once or after a pause.
    Again {
        pause: bool,
    },
}

impl<'a> Rounds<'a> {
    pub(super) fn new(quorum: &'a Quorum, claim: &Claim, ask: Ask, limit: Duration) -> Self {
        Self {
            quorum,
            claim: Arc::new(claim.clone()),
            deadline: Boottime.now().after(limit),
            wish: Wish {
                floor: ask.floor,
                seen: 0,
            },
            window: None,
            leader: None,
            is_clean: true,
        }
    }

    pub(super) async fn run(mut self) -> Result<Answer, Failed> {
        let max_ttl = self.quorum.shared.max_ttl;
        if self.claim.ttl > max_ttl {
            return Err(Failed::never(Error::invalid(format!(
                "acquire refused: the ttl is longer than the longest of the quorum ttl={:?} max_ttl={max_ttl:?} {}",
                self.claim.ttl,
                self.facts()
            ))));
        }
        self.quorum.learn_the_clocks(self.deadline).await;
        let mut rounds = 0;
        let answer = loop {
            rounds += 1;
            let now = Boottime.now();
            let next = self.quorum.shared.proposals().next(self.claim.holder);
            let proposed = self.quorum.shared.propose(self.wish, next, now);
            let token = proposed.map_err(|far| self.too_far(Some(far), &[]))?;
            let outcome = self.ask(token, is_repeated(next)).await;
            match self.judge(outcome, next).await {
                Ok(NextStep::Answered(answer)) => break Ok(answer),
                Ok(NextStep::Again { pause: false }) => {}
                Ok(NextStep::Again { pause: true }) => self.pause().await,
                Err(failed) => break Err(failed),
            }
        };
        self.quorum.shared.counts.claimed_in(rounds);
        answer
    }

    /// Proposes this token to all members, and returns their votes.
    async fn ask(&mut self, token: Token, is_repeated: bool) -> Votes {
        let Self { quorum, claim, .. } = self;
        let now = Boottime.now();
        let shared = &quorum.shared;
        shared
            .proposals()
            .note_sent(claim.holder, token, &claim.info, claim.ttl, now);
        let proposal = Proposal {
            holder: claim.holder,
            token,
            ttl: claim.ttl,
            purpose: Purpose::Claim,
        };
        let limit = self.deadline.since(now);
        let mut asked: Poll<Voted> = quorum.members.ask(limit, |member| {
            let claim = claim.clone();
            async move {
                member
                    .hold(&claim.name, &proposal, &claim.info, limit)
                    .await
            }
        });
        let members = quorum.members.len();
        let mut outcome = Votes {
            round: Round::new(claim.holder, token, members, Planted::default()),
            held: Vec::new(),
            clocks: vec![0; members],
            failures: Vec::new(),
            taken_by: Vec::new(),
            is_low: false,
            took: None,
        };
        while let Some((member, answer)) = asked.next().await {
            outcome.note(quorum, member, answer);
            // Where another holder is in the way, or a higher token is wanted, a missing vote seldom brings a grant.
            // Otherwise it may be the one that is needed, of a member that is only slow.
            if !outcome.held.is_empty() || outcome.is_low {
                asked.hurry();
            }
            // A refusal is told once all have answered that answer soon: what they took has to be taken back.
            match outcome.round.decision() {
                Some(Decision::Granted(_)) => break,
                // A token that was granted is given up once so many lack it that no majority can have it.
                Some(Decision::Low { .. }) if !is_repeated || outcome.round.is_lost() => break,
                _ => {}
            }
        }
        outcome.took = asked.took();
        asked.go_on(|_, _| ());
        outcome
    }

    async fn judge(&mut self, outcome: Votes, next: NextProposal) -> Result<NextStep, Failed> {
        let decision = outcome.round.close();
        let (holder, shared) = (self.claim.holder, &self.quorum.shared);
        let is_repeated = is_repeated(next);
        match decision {
            Decision::Granted(token) => {
                shared.proposals().note_granted(holder, token);
                return Ok(NextStep::Answered(Answer::Granted(Grant::new(token))));
            }
            Decision::Low { floor }
                if !self.is_over() && (!is_repeated || outcome.round.is_lost()) =>
            {
                if is_repeated {
                    shared.proposals().note_lost(holder);
                }
                self.wish.seen = self.wish.seen.max(floor);
                self.is_clean &= outcome.round.to_take_back().next().is_none();
                return Ok(NextStep::Again { pause: false });
            }
            _ => {}
        }
        // A grant is never taken back.
        if !is_repeated {
            self.take_back(&outcome).await;
        }
        match decision {
            Decision::Held(tenure) => Ok(NextStep::Answered(outcome.held_by(&tenure, &self.claim))),
            Decision::Split(tenure) => {
                let is_settled = self.leads_again(tenure);
                self.window = Some(match self.window {
                    Some(window) => (window * 2).min(LONGEST_PAUSE),
                    None => outcome
                        .took
                        .unwrap_or_default()
                        .clamp(LEAST_WINDOW, LONGEST_PAUSE),
                });
                match is_settled || self.is_over() {
                    true => Ok(NextStep::Answered(outcome.held_by(&tenure, &self.claim))),
                    false => Ok(NextStep::Again { pause: true }),
                }
            }
            Decision::KeptOut { remaining } => {
                let mut held = Held::new(self.claim.name.clone());
                held.state = HeldState::KeepOut;
                held.remaining = Some(remaining);
                Ok(NextStep::Answered(Answer::Held(Box::new(held))))
            }
            Decision::Ahead => Err(self.too_far(None, &outcome.clocks)),
            Decision::Mismatch(theirs) => Err(self.mismatch(theirs)),
            Decision::Granted(_) | Decision::Low { .. } | Decision::Failed => {
                Err(self.failed(&outcome))
            }
        }
    }

    /// Notes which lease had the most members. Returns whether it has led for so long that it is taken for one that is held.
    fn leads_again(&mut self, tenure: Tenure) -> bool {
        let rounds = match self.leader {
            Some((before, rounds))
                if before.holder == tenure.holder && before.token == tenure.token =>
            {
                rounds + 1
            }
            _ => 1,
        };
        self.leader = Some((tenure, rounds));
        rounds >= SAME_LEADER
    }

    /// Takes the token back from the members that may have taken it.
    async fn take_back(&mut self, outcome: &Votes) {
        let round = &outcome.round;
        let members: Vec<usize> = round.to_take_back().collect();
        if members.is_empty() {
            return;
        }
        self.quorum.shared.counts.taken_back();
        let claim = &self.claim;
        let (holder, token) = (claim.holder, round.proposed());
        let taken = self.quorum.shared.proposals().taking_back(holder, token);
        // A moment at least, also at the end of the limit: what is left behind keeps the name from others for one ttl.
        let limit = self.deadline.since(Boottime.now()).max(LONGEST_PAUSE);
        let count = members.len();
        let mut asked = self.quorum.members.ask_some(members, limit, |member| {
            let claim = claim.clone();
            async move {
                let freed = member
                    .take_back(&claim.name, claim.holder, taken, limit)
                    .await;
                freed.map_err(Failed::perhaps)
            }
        });
        // Those that did not vote may be as silent here: only the others are awaited.
        let mut awaited = outcome.taken_by.clone();
        asked.within(outcome.took.unwrap_or_default());
        while !awaited.is_empty()
            && let Some((member, answer)) = asked.next().await
        {
            self.is_clean &= answer.is_ok();
            awaited.retain(|other| *other != member);
        }
        asked.go_on(|_, _| ());
        self.is_clean &= awaited.is_empty() && outcome.taken_by.len() == count;
    }

    /// Waits for a random part of the window, so that of several claims one comes first.
    async fn pause(&self) {
        let window = self.window.unwrap_or(LEAST_WINDOW);
        let pause = window.mul_f64(fastrand::f64());
        let until = Boottime.now().after(pause).min(self.deadline);
        // The timer of the runtime counts in milliseconds.
        match pause < Duration::from_millis(5) {
            true => Boottime.sleep_until(until).await,
            false => Boottime.nap_until(until).await,
        }
    }

    fn is_over(&self) -> bool {
        Boottime.now() >= self.deadline
    }

    fn facts(&self) -> String {
        format!(
            "name={} store={}",
            self.claim.name, self.quorum.shared.place
        )
    }

    fn sent(&self) -> Sent {
        match self.is_clean {
            true => Sent::Answered,
            false => Sent::Perhaps,
        }
    }

    fn too_far(&self, far: Option<TooFarAhead>, clocks: &[u64]) -> Failed {
        let clock_us = match far {
            Some(far) => far.clock_us,
            None => clocks.iter().copied().max().unwrap_or_default(),
        };
        let (kind, why) = match self.wish.floor {
            Some(floor) => (
                ErrorKind::Invalid,
                format!(
                    "the floor is more than two hours ahead of the members' clocks floor={floor}"
                ),
            ),
            None => (
                ErrorKind::Misconfigured,
                "the tokens of the name are more than two hours ahead of the members' clocks"
                    .into(),
            ),
        };
        Failed {
            error: Error::new(
                kind,
                format!(
                    "acquire refused: {why} clock_us={clock_us} {}",
                    self.facts()
                ),
            ),
            sent: self.sent(),
        }
    }

    fn mismatch(&self, theirs_ms: u64) -> Failed {
        let theirs = Duration::from_millis(theirs_ms);
        let ours = self.quorum.shared.max_ttl;
        Failed {
            error: Error::new(
                ErrorKind::Misconfigured,
                format!(
                    "acquire failed: the other clients of the quorum have another longest ttl max_ttl={ours:?} \
                     theirs={theirs:?} {}",
                    self.facts()
                ),
            ),
            sent: self.sent(),
        }
    }

    fn failed(&self, outcome: &Votes) -> Failed {
        let failures = &outcome.failures;
        let answered = outcome.round.cast_votes();
        let error = self
            .quorum
            .error("acquire", answered, failures, self.facts());
        let is_unsent = |(_, failed): &(usize, Failed)| failed.sent == Sent::Never;
        let all = failures.len() == self.quorum.members.len();
        let sent = match all && failures.iter().all(is_unsent) && self.wish.seen == 0 {
            true => Sent::Never,
            false => self.sent(),
        };
        Failed { error, sent }
    }
}

/// Returns whether it was granted before and is asked for again.
const fn is_repeated(next: NextProposal) -> bool {
    matches!(next, NextProposal::Again(_))
}

impl Votes {
    fn note(&mut self, quorum: &Quorum, member: usize, answer: Result<Voted, Failed>) {
        let told = match answer {
            Ok(told) => told,
            Err(failed) => {
                self.round.fail(member);
                self.failures.push((member, failed));
                return;
            }
        };
        if let Some(clock_us) = told.clock_us {
            let (mut proposer, now) = (quorum.shared.proposer(), Boottime.now());
            proposer.note_clock(member, clock_us, now);
            if let Vote::Low { of_server, .. } = told.vote {
                proposer.note_floor(of_server, clock_us, now);
            }
            self.clocks[member] = clock_us;
        }
        self.held.extend(told.held.map(|held| (member, *held)));
        self.is_low |= matches!(told.vote, Vote::Low { .. });
        if matches!(told.vote, Vote::Yes(_)) {
            self.taken_by.push(member);
        }
        self.round.count(member, told.vote);
    }

    /// Returns what is known of the lease that keeps the claim out.
    fn held_by(self, tenure: &Tenure, claim: &Claim) -> Answer {
        let remaining = self.round.free_after(|member| self.clocks[member]);
        let is_it = |(_, held): &(usize, Held)| {
            held.by == tenure.holder && held.token == Some(tenure.token)
        };
        let found = self.held.into_iter().find(is_it);
        let mut held = found.map_or_else(|| Held::new(claim.name.clone()), |(_, held)| held);
        held.remaining = remaining.or(held.remaining);
        Answer::Held(Box::new(held))
    }
}
