//! A claim, sent in rounds until it is decided.
//!
//! ```text
//!   propose ─► all members ─► granted ─────────────────────────► the token
//!      ▲                      ├─ too low ─► propose a higher one at once
//!      │                      ├─ held by another ─► take back ─► held
//!      └── a random pause ◄── └─ split ─► take back
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use super::Quorum;
use super::connection::{Act, NameRequest, SeenLease};
use super::failure::Failure;
use super::known::KnownQuorum;
use super::protocol::{Absence, ClaimOutcome, MemberAnswer, MemberLease, NotedGrant, Rivalry};
use super::reads::merged;
use super::round::Votes;
use crate::clock::{Boottime, Clock as _};
use crate::error::ErrorKind;
use crate::store::kit::backend::{Backend as _, Failing as _};
use crate::store::kit::budget::Budget;
use crate::store::{Answer, Ask, Claim, Grant, Held, HeldState, Outcome, Renewal, Sent};
use crate::token::Token;

/// Minimum time for taking back a token, also at the end of the limit: a token that stays behind keeps the name from
/// others for one ttl.
const TAKE_BACK_AT_LEAST: Duration = Duration::from_millis(100);
/// A round trip on one machine: the least window of a pause.
const LEAST_ROUND_TRIP: Duration = Duration::from_micros(200);
/// A lease that had the most members in this many rounds counts as held: its other members may be those that do not
/// answer. A competing claim takes its token back within this time, or gets the name.
const SAME_LEADER: u32 = 5;
/// How long a claim waits for an adoption after the end of the keep-out, before it reports that nothing is granted.
const ADOPTION: Duration = Duration::from_secs(5);

/// The rounds of one attempt of a claim.
pub(super) struct Rounds<'a> {
    quorum: &'a Quorum,
    known: Arc<KnownQuorum>,
    claim: &'a Claim,
    budget: Budget,
    floor: Option<Token>,
    /// The request to the members, with the token that was proposed last.
    asked: NameRequest,
    rivalry: Rivalry,
    /// The lease that had the most members in the last rounds, and in how many.
    leader: Option<(MemberLease, u32)>,
    /// The members that may still have a token of this attempt.
    may_have: BTreeSet<usize>,
    /// Whether this claim has adopted members already.
    has_taken_in: bool,
}

impl<'a> Rounds<'a> {
    pub(super) async fn run(
        quorum: &'a Quorum,
        claim: &'a Claim,
        ask: Ask,
        budget: Budget,
    ) -> Result<Answer, Failure> {
        let known = quorum.known(budget.left()).await?;
        let (ttl, max_ttl) = (claim.ttl, known.max_ttl);
        if ttl > max_ttl {
            let why = "the ttl is longer than the longest of the quorum";
            let why = format!("{why} ttl={ttl:?} max_ttl={max_ttl:?}");
            return Err(Failure::new(ErrorKind::Invalid, why));
        }
        let asked = NameRequest::new(&claim.name, claim.holder, Token::MAX, ttl);
        let mut rounds = Self {
            known,
            quorum,
            claim,
            budget,
            floor: ask.floor,
            asked: asked.with_info(&claim.info),
            rivalry: Rivalry::default(),
            leader: None,
            may_have: BTreeSet::new(),
            has_taken_in: false,
        };
        if let Some(answer) = rounds.ask_for_the_granted().await? {
            return Ok(answer);
        }
        let mut count = 0;
        let answer = loop {
            count += 1;
            if let Some(answer) = rounds.next().await.transpose() {
                break answer;
            }
        };
        quorum.shared.counts.claimed_in(count);
        answer
    }

    /// Returns the answer, unless another round is needed.
    async fn next(&mut self) -> Result<Option<Answer>, Failure> {
        let token = self.quorum.shared.propose(self.floor);
        self.asked.token = token.map_err(|refused| self.doubtful(refused.into()))?;
        let votes = self.ask().await;
        self.judge(&votes).await
    }

    /// Renews the lease of a holder that was granted the name and asks again. `None` if it has no lease.
    async fn ask_for_the_granted(&self) -> Result<Option<Answer>, Failure> {
        let (claim, granted) = (self.claim, &self.quorum.shared.granted);
        let Some(token) = granted.lock().of(claim.holder).map(|of| of.token) else {
            return Ok(None);
        };
        let renewal = Renewal::new(claim.name.clone(), claim.holder, token, claim.ttl);
        let renewed = self.quorum.try_renew(&[renewal], self.budget).await;
        match renewed.outcomes.into_iter().next() {
            Some(Outcome::Renewed) => Ok(Some(Answer::Granted(Grant::new(token)))),
            Some(Outcome::Unknown(error)) => Err(error.into()),
            Some(Outcome::Refused | Outcome::Evicted) | None => {
                granted.lock().forget(claim.holder);
                Ok(None)
            }
        }
    }

    /// Proposes the token to all members, and returns their votes.
    async fn ask(&mut self) -> Votes {
        let (quorum, asked) = (self.quorum, vec![self.asked.clone()]);
        let (members, limit) = (quorum.members.all(), self.budget.left());
        let mut round = quorum.begin(&self.known, Act::Claim, asked, members, limit);
        while round.next().await.is_some() {
            let answers = round.votes.answers();
            // A refusal is reported once all responsive members have answered: what they took has to be taken back.
            if let Some(ClaimOutcome::Granted | ClaimOutcome::Low) = answers.verdict() {
                break;
            }
            // If another lease is in the way, or a higher token is needed, a missing vote seldom brings a grant.
            // Otherwise it may be the decisive one, from a member that is only slow.
            if answers.marks().next().is_some() {
                round.poll.hurry(None);
            }
        }
        let votes = round.close();
        let was_sent = |member: &usize| !votes.has_failed(*member, Sent::Never);
        let may_have = votes.answers().to_take_back().filter(was_sent);
        self.may_have.extend(may_have);
        votes
    }

    /// Returns the answer from these votes. `None`: another round is needed.
    async fn judge(&mut self, votes: &Votes) -> Result<Option<Answer>, Failure> {
        let outcome = votes.answers().close();
        let shared = &self.quorum.shared;
        if let ClaimOutcome::Granted = outcome {
            let (now, token) = (Boottime.now(), self.asked.token);
            let granted = NotedGrant {
                token,
                info: self.asked.info.clone(),
                forget_at: now.after(self.known.max_ttl * 2),
            };
            shared.granted.lock().note(self.claim.holder, granted, now);
            return Ok(Some(Answer::Granted(Grant::new(token))));
        }
        // Not with a grant: then a mark of a few members that is far ahead does not matter.
        shared.note_seen(votes.answers().marks().max().unwrap_or(0));
        if matches!(outcome, ClaimOutcome::Low) && !self.budget.left().is_zero() {
            return Ok(None);
        }
        self.take_back(votes).await;
        match outcome {
            ClaimOutcome::Held(seen) => Ok(Some(self.held_by(&seen, votes))),
            ClaimOutcome::Split { rivals, leading } => {
                if self.leads_again(leading.lease) || self.budget.left().is_zero() {
                    return Ok(Some(self.held_by(&leading, votes)));
                }
                self.pause(rivals, votes.took).await;
                Ok(None)
            }
            ClaimOutcome::Absent(Absence::Away(_)) if self.takes_in(votes).await => Ok(None),
            ClaimOutcome::Absent(Absence::Away(_)) => self.kept_out(votes).map(Some),
            ClaimOutcome::Absent(absence) => Err(self.doubtful(self.quorum.misfit(absence))),
            _ => Err(self.too_few(votes)),
        }
    }

    /// Adopts the members whose keep-out has ended, because this client may end before its background task does.
    /// Returns whether any came in. Runs once per claim.
    async fn takes_in(&mut self, votes: &Votes) -> bool {
        if std::mem::replace(&mut self.has_taken_in, true) {
            return false;
        }
        let (quorum, known) = (self.quorum, &self.known);
        let is_over = |(member, answer): (usize, &MemberAnswer<Box<SeenLease>>)| match answer {
            MemberAnswer::Absent(Absence::Away(away_us)) => {
                known.left(*away_us).is_zero().then_some(member)
            }
            _ => None,
        };
        let over = votes.answers().told().filter_map(is_over);
        let adopting = join_all(over.map(|member| quorum.adopt(member, known)));
        let adopted = timeout(self.budget.left(), adopting).await;
        adopted.is_ok_and(|adopted| adopted.iter().any(|is_in| matches!(is_in, Ok(true))))
    }

    /// Answers that the quorum keeps out, until a majority of the members is in again.
    fn kept_out(&self, votes: &Votes) -> Result<Answer, Failure> {
        let away_us = |absence| match absence {
            Absence::Away(away_us) => Some(away_us),
            _ => None,
        };
        let mut away_us: Vec<u64> = votes.answers().absent().filter_map(away_us).collect();
        away_us.sort_unstable();
        if Duration::from_micros(away_us[0]) > self.known.left(0) + ADOPTION {
            return Err(self.too_few(votes));
        }
        let missing = votes.answers().majority() - votes.answers().taking_part();
        let left = self
            .known
            .left(away_us[away_us.len().saturating_sub(missing)]);
        let mut held = Held::new(self.claim.name.clone());
        held.state = HeldState::KeepOut;
        held.remaining = Some(left.max(Duration::from_millis(100)));
        Ok(Answer::Held(Box::new(held)))
    }

    /// Records which lease had the most members. Returns whether it has led for so many rounds that it counts as held.
    fn leads_again(&mut self, lease: MemberLease) -> bool {
        let before = self.leader.filter(|(before, _)| before.is_same(&lease));
        let rounds = before.map_or(0, |(_, rounds)| rounds) + 1;
        self.leader = Some((lease, rounds));
        rounds >= SAME_LEADER
    }

    /// Takes the token back from the members that may have taken it or an older one.
    async fn take_back(&mut self, votes: &Votes) {
        if self.may_have.is_empty() {
            return;
        }
        let quorum = self.quorum;
        quorum.shared.counts.taken_back();
        let (claim, token) = (self.claim, self.asked.token);
        let asked = NameRequest::new(&claim.name, claim.holder, token, Duration::ZERO);
        let limit = self.budget.left().max(TAKE_BACK_AT_LEAST);
        let (asked, members) = (vec![asked], self.may_have.clone());
        let mut round = quorum.begin(&self.known, Act::TakeBack, asked, members, limit);
        round.poll.hurry(Some(votes.took.unwrap_or_default()));
        // Members that did not vote may be as silent here, so this waits only for the others.
        let mut awaited: BTreeSet<usize> = votes.answers().yes().collect();
        while !awaited.is_empty()
            && let Some(member) = round.next().await
        {
            awaited.remove(&member);
        }
        let votes = round.close();
        let is_told = |member| votes.answers().told().any(|(of, _)| of == member);
        let refuses = |member| votes.has_failed(member, Sent::Answered);
        self.may_have
            .retain(|member| !is_told(*member) && !refuses(*member));
    }

    /// Pauses, so that one of several claims comes first.
    async fn pause(&mut self, rivals: usize, took: Option<Duration>) {
        let round_trip = took.unwrap_or_default().max(LEAST_ROUND_TRIP);
        let pause = self.rivalry.pause(rivals, round_trip, fastrand::f64());
        let until = Boottime.now().after(pause.min(self.budget.left()));
        // The timer of the runtime counts in milliseconds.
        match pause < Duration::from_millis(5) {
            true => Boottime.sleep_until(until).await,
            false => Boottime.nap_until(until).await,
        }
    }

    /// Returns the known facts about the lease that keeps the claim out.
    fn held_by(&self, seen: &SeenLease, votes: &Votes) -> Answer {
        let seen = merged(votes.answers(), seen);
        Answer::Held(Box::new(seen.held))
    }

    /// Whether any part of the claim can be carried out: not if all proposals are known to be refused or taken back.
    fn doubtful(&self, failure: Failure) -> Failure {
        match (self.may_have.is_empty(), failure.sent()) {
            (false, _) => failure.with_sent(Sent::Perhaps),
            (true, Sent::Perhaps) => failure.with_sent(Sent::Answered),
            (true, Sent::Never | Sent::Answered) => failure,
        }
    }

    fn too_few(&self, votes: &Votes) -> Failure {
        let answered = votes.answers().taking_part();
        self.doubtful(Failure::too_few(
            &self.quorum.members,
            answered,
            &votes.failures,
        ))
    }
}
