//! A claim, asked in rounds until it is decided.
//!
//! ```text
//!   propose ─► all members ─► granted ─────────────────────────► the token
//!      ▲                      ├─ too low ─► propose a higher one at once
//!      │                      ├─ held by another ─► take back ─► held
//!      └── a random pause ◄── └─ split ─► take back
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use super::failure::Failure;
use super::known::KnownQuorum;
use super::looks::merged;
use super::members::{Act, NameRequest};
use super::micros;
use super::protocol::{
    Absence, ClaimOutcome, LastToken, MemberAnswer, MemberLease, Rivalry, majority, propose,
};
use super::round::{Round, Votes};
use super::store::{Quorum, Shared};
use crate::clock::{Boottime, Clock as _, wall_clock_us};
use crate::error::ErrorKind;
use crate::store::backend::Backend as _;
use crate::store::budget::Budget;
use crate::store::{Answer, Ask, Claim, Grant, Held, HeldState, Outcome, Renewal, Sent};
use crate::token::Token;

/// The least time for which a token is taken back, also at the end of the limit: what is left behind keeps the
/// name from others for one ttl.
const TAKE_BACK_AT_LEAST: Duration = Duration::from_millis(100);
/// A round trip on one machine: the least window of a pause.
const LEAST_ROUND_TRIP: Duration = Duration::from_micros(200);
/// After this many rounds in which the same lease had the most members, it is taken for one that is held: its other
/// members may be those that do not answer. A claim that is under way takes its token back meanwhile, or gets the name.
const SAME_LEADER: u32 = 5;
/// The time for which a claim waits for an adoption after the end of the keep-out, before it reports that nothing is
/// granted.
const ADOPTION: Duration = Duration::from_secs(5);

/// The rounds of one attempt of a claim.
pub(super) struct Rounds<'a> {
    quorum: &'a Quorum,
    known: KnownQuorum,
    claim: &'a Claim,
    budget: Budget,
    floor: Option<Token>,
    /// The token that was proposed last.
    token: Token,
    rivalry: Rivalry,
    /// The lease that had the most members in the last rounds, and in how many.
    leader: Option<(MemberLease, u32)>,
    /// The members that may have a token of this attempt that is not taken back.
    may_have: BTreeSet<usize>,
}

/// Refuses a claim that no member could grant, before it is sent.
fn refuse(shared: &Shared, claim: &Claim, floor: Option<Token>) -> Result<(), Failure> {
    if let Some(most) = shared.max_ttl.filter(|most| claim.ttl > *most) {
        let why = "the ttl is longer than the longest of the quorum";
        let why = format!("{why} ttl={:?} max_ttl={most:?}", claim.ttl);
        return Err(Failure::new(ErrorKind::Invalid, why));
    }
    let clock_us = wall_clock_us();
    if let Some(floor) = floor.filter(|floor| is_too_far_ahead(*floor, shared.seen(), clock_us)) {
        let why = "the floor is more than a day ahead of this machine's clock";
        let why = format!("{why} floor={floor} clock_us={clock_us}");
        return Err(Failure::new(ErrorKind::Invalid, why).with_sent(Sent::Answered));
    }
    Ok(())
}

/// Returns whether a floor would lift tokens by more than a day. One that a token of the quorum has reached lifts none.
fn is_too_far_ahead(floor: Token, seen: u64, clock_us: u64) -> bool {
    floor.get() > seen.max(clock_us.saturating_add(micros(Token::FLOOR_AHEAD)))
}

impl<'a> Rounds<'a> {
    pub(super) async fn run(
        quorum: &'a Quorum,
        claim: &'a Claim,
        ask: Ask,
        budget: Budget,
    ) -> Result<Answer, Failure> {
        // The floor is compared with the tokens that the members have.
        let known = quorum.known(budget.left()).await?;
        refuse(&quorum.shared, claim, ask.floor)?;
        let mut rounds = Self {
            known,
            quorum,
            claim,
            budget,
            floor: ask.floor,
            // None yet.
            token: Token::MAX,
            rivalry: Rivalry::default(),
            leader: None,
            may_have: BTreeSet::new(),
        };
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
        if let Some(answer) = self.ask_for_the_granted().await? {
            return Ok(Some(answer));
        }
        self.propose()?;
        let votes = self.ask().await;
        self.judge(&votes).await
    }

    /// A holder that was granted the name and asks again has its lease renewed. `None`: it has none.
    async fn ask_for_the_granted(&self) -> Result<Option<Answer>, Failure> {
        let claim = self.claim;
        let last = self.quorum.shared.memory().last(claim.holder).cloned();
        let Some(last) = last.filter(|last| last.is_granted) else {
            return Ok(None);
        };
        let renewal = Renewal::new(claim.name.clone(), claim.holder, last.token, claim.ttl);
        let renewed = self.quorum.renew_all(&[renewal], self.budget).await;
        match renewed.outcomes.into_iter().next() {
            Some(Outcome::Renewed) => Ok(Some(Answer::Granted(Grant::new(last.token)))),
            Some(Outcome::Unknown(error)) => Err(Failure::of(error)),
            Some(Outcome::Refused | Outcome::Evicted) | None => {
                self.note(last.token, false);
                Ok(None)
            }
        }
    }

    /// Chooses a token, and notes it before it is sent.
    fn propose(&mut self) -> Result<(), Failure> {
        let shared = &self.quorum.shared;
        let last = shared
            .memory()
            .last(self.claim.holder)
            .map(|last| last.token);
        let token = propose(wall_clock_us(), shared.seen(), last.max(self.floor));
        self.token = token.ok_or_else(|| {
            let why = "no tokens are left below 2^53";
            self.doubtful(Failure::new(ErrorKind::Misconfigured, why))
        })?;
        self.note(self.token, false);
        Ok(())
    }

    fn note(&self, token: Token, is_granted: bool) {
        let now = Boottime.now();
        let noted = LastToken {
            token,
            is_granted,
            info: self.claim.info.clone(),
            forget_at: now.after(self.budget.left() + self.known.max_ttl * 2),
        };
        self.quorum
            .shared
            .memory()
            .note(self.claim.holder, noted, now);
    }

    /// Proposes the token to all members, and returns their votes.
    async fn ask(&mut self) -> Votes {
        let asked = NameRequest {
            info: Some(self.claim.info.clone()),
            ..self.asked(self.claim.ttl)
        };
        let members = self.quorum.members.all();
        let mut round = self.begin(Act::Claim, asked, members, self.budget.left());
        while let Some(member) = round.next().await {
            let answers = round.votes().answers();
            // Where another lease is in the way, or a higher token is wanted, a missing vote seldom brings a grant.
            // Otherwise it may be the one that is needed, of a member that is only slow.
            let is_against = |(of, answer): (usize, &MemberAnswer<_>)| {
                of == member && matches!(answer, MemberAnswer::Low(_) | MemberAnswer::Taken(_))
            };
            let is_against = answers.told().any(is_against);
            // A refusal is told once all have answered that answer soon: what they took has to be taken back.
            if let Some(ClaimOutcome::Granted | ClaimOutcome::Low { .. }) = answers.verdict() {
                break;
            }
            if is_against {
                round.poll.hurry();
            }
        }
        let votes = round.close();
        self.may_have.extend(votes.answers().to_take_back());
        votes
    }

    /// Returns the answer by these votes. `None`: another round is needed.
    async fn judge(&mut self, votes: &Votes) -> Result<Option<Answer>, Failure> {
        let outcome = votes.answers().close();
        let shared = &self.quorum.shared;
        match outcome {
            ClaimOutcome::Granted => {
                shared.note_seen(self.token.get());
                self.note(self.token, true);
                return Ok(Some(Answer::Granted(Grant::new(self.token))));
            }
            ClaimOutcome::Low { above } | ClaimOutcome::Split { above, .. } => {
                shared.note_seen(above);
            }
            _ => {}
        }
        if matches!(outcome, ClaimOutcome::Low { .. }) && !self.is_over() {
            return Ok(None);
        }
        self.take_back(votes).await;
        match outcome {
            ClaimOutcome::Held(seen) => Ok(Some(self.held_by(&seen.lease, votes))),
            ClaimOutcome::Split {
                leading, rivals, ..
            } => {
                if self.leads_again(leading.lease) || self.is_over() {
                    return Ok(Some(self.held_by(&leading.lease, votes)));
                }
                let round_trip = votes.took.unwrap_or_default().max(LEAST_ROUND_TRIP);
                let pause = self.rivalry.pause(rivals, round_trip, fastrand::f64());
                self.pause(pause).await;
                Ok(None)
            }
            ClaimOutcome::Away(Absence::Out(_)) => self.kept_out(votes).map(Some),
            ClaimOutcome::Away(absence) => Err(self.doubtful(self.quorum.misfit(absence))),
            _ => Err(self.too_few(votes)),
        }
    }

    /// Answers that the quorum keeps out, until a majority of the members is in again.
    fn kept_out(&self, votes: &Votes) -> Result<Answer, Failure> {
        let mut out_us: Vec<u64> = votes.answers().away().filter_map(out_us).collect();
        out_us.sort_unstable_by(|one, other| other.cmp(one));
        let missing = majority(self.quorum.members.len()).saturating_sub(answered(votes));
        let needed = out_us.get(missing.saturating_sub(1)).or(out_us.last());
        let end = micros(self.known.left(0) + ADOPTION);
        match needed {
            Some(needed) if out_us.iter().any(|out_us| *out_us <= end) => {
                let mut held = Held::new(self.claim.name.clone());
                held.state = HeldState::KeepOut;
                let left = self.known.left(*needed);
                held.remaining = Some(left.max(Duration::from_millis(100)));
                Ok(Answer::Held(Box::new(held)))
            }
            _ => Err(self.too_few(votes)),
        }
    }

    /// Notes which lease had the most members. Returns whether it has led for so long that it is taken for one that is
    /// held.
    fn leads_again(&mut self, lease: MemberLease) -> bool {
        let rounds = match self.leader {
            Some((before, rounds)) if before.is_same(&lease) => rounds + 1,
            _ => 1,
        };
        self.leader = Some((lease, rounds));
        rounds >= SAME_LEADER
    }

    /// Takes the token back from the members that may have taken it or an older one.
    async fn take_back(&mut self, votes: &Votes) {
        if self.may_have.is_empty() {
            return;
        }
        self.quorum.shared.counts.taken_back();
        let asked = self.asked(Duration::ZERO);
        let limit = self.budget.left().max(TAKE_BACK_AT_LEAST);
        let members = self.may_have.clone();
        let mut round = self.begin(Act::TakeBack, asked, members, limit);
        round.poll.within(votes.took.unwrap_or_default());
        // Those that did not vote may be as silent here: only the others are awaited.
        let mut awaited: BTreeSet<usize> = votes.answers().yes().collect();
        while !awaited.is_empty()
            && let Some(member) = round.next().await
        {
            awaited.remove(&member);
        }
        let votes = round.close();
        let refusing = votes.failures.iter();
        let refusing = refusing.filter(|(_, failed)| failed.sent == Sent::Answered);
        let told = votes.answers().told().map(|(member, _)| member);
        for member in told.chain(refusing.map(|(member, _)| *member)) {
            self.may_have.remove(&member);
        }
    }

    /// Waits, so that of several claims one comes first.
    async fn pause(&self, pause: Duration) {
        let until = Boottime.now().after(pause.min(self.budget.left()));
        // The timer of the runtime counts in milliseconds.
        match pause < Duration::from_millis(5) {
            true => Boottime.sleep_until(until).await,
            false => Boottime.nap_until(until).await,
        }
    }

    /// Returns what is known of the lease that keeps the claim out.
    fn held_by(&self, lease: &MemberLease, votes: &Votes) -> Answer {
        let held = merged(votes.answers(), lease, self.quorum.members.len());
        Answer::Held(Box::new(
            held.unwrap_or_else(|| Held::new(self.claim.name.clone())),
        ))
    }

    fn begin(
        &self,
        act: Act,
        asked: NameRequest,
        members: impl IntoIterator<Item = usize>,
        limit: Duration,
    ) -> Round {
        Round::begin(self.quorum, &self.known, act, vec![asked], members, limit)
    }

    fn asked(&self, ttl: Duration) -> NameRequest {
        NameRequest::new(&self.claim.name, self.claim.holder, self.token, ttl)
    }

    fn is_over(&self) -> bool {
        self.budget.left().is_zero()
    }

    /// Says whether anything of the claim can be carried out: not if everything that was proposed is known to be
    /// refused or taken back.
    fn doubtful(&self, failure: Failure) -> Failure {
        failure.with_sent(match self.may_have.is_empty() {
            true => Sent::Answered,
            false => Sent::Perhaps,
        })
    }

    fn too_few(&self, votes: &Votes) -> Failure {
        let failure = self.quorum.too_few(answered(votes), &votes.failures);
        let failures = votes.failures.iter();
        let unsent = failures.filter(|(_, failed)| failed.sent == Sent::Never);
        match unsent.count() == self.quorum.members.len() && self.leader.is_none() {
            true => failure.with_sent(Sent::Never),
            false => self.doubtful(failure),
        }
    }
}

/// Returns how many members take part and answered.
fn answered(votes: &Votes) -> usize {
    votes
        .answers()
        .count_of(|answer| !matches!(answer, MemberAnswer::Away(_)))
}

const fn out_us(absence: Absence) -> Option<u64> {
    match absence {
        Absence::Out(out_us) => Some(out_us),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_that_a_token_has_reached_is_not_refused_however_far_ahead() {
        let day = micros(Token::FLOOR_AHEAD);
        let floor = |us: u64| Token::new(us).expect("in range");
        let clock_us = 1_000;
        assert!(!is_too_far_ahead(floor(clock_us + day), 0, clock_us));
        let ahead = floor(clock_us + day + 1);
        assert!(is_too_far_ahead(ahead, 0, clock_us));
        assert!(is_too_far_ahead(ahead, ahead.get() - 1, clock_us));
        assert!(!is_too_far_ahead(ahead, ahead.get(), clock_us));
    }
}
