//! A claim, asked in rounds until it is decided.
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

use super::care::Owed;
use super::known::KnownQuorum;
use super::looks::merged;
use super::members::{Act, NameRequest};
use super::micros;
use super::protocol::{Absence, ClaimOutcome, LastToken, MemberLease, Rivalry, majority, propose};
use super::store::{Quorum, Shared};
use super::votes::Votes;
use crate::clock::{Boottime, Clock as _, Instant, wall_clock_us};
use crate::error::{Error, ErrorKind};
use crate::store::{Answer, Ask, Claim, Failed, Grant, Held, HeldState, Outcome, Renewal, Sent};
use crate::token::Token;

/// The least time for which a token is taken back, also at the end of the limit: what is left behind keeps the
/// name from others for one ttl.
const TAKE_BACK_AT_LEAST: Duration = Duration::from_millis(100);
/// A round trip on one machine: the least window of a pause.
const LEAST_ROUND_TRIP: Duration = Duration::from_micros(200);
/// After so many rounds in which the same lease had the most members, it is taken for one that is held: its other
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
    deadline: Instant,
    floor: Option<Token>,
    rivalry: Rivalry,
    /// The lease that had the most members in the last rounds, and in how many.
    leader: Option<(MemberLease, u32)>,
    /// The members that may have a token of this attempt that is not taken back.
    may_have: BTreeSet<usize>,
}

/// The step that follows a round.
enum NextStep {
    Answered(Answer),
    Again,
}

/// Refuses a claim that no member could grant, before any is asked.
fn refuse(shared: &Shared, claim: &Claim, floor: Option<Token>) -> Result<(), Failed> {
    let (name, place) = (&claim.name, &shared.place);
    if let Some(most) = shared.max_ttl.filter(|most| claim.ttl > *most) {
        return Err(Failed::never(Error::invalid(format!(
            "acquire refused: the ttl is longer than the longest of the quorum ttl={:?} max_ttl={most:?} name={name} \
             store={place}",
            claim.ttl
        ))));
    }
    let clock_us = wall_clock_us();
    if let Some(floor) = floor.filter(|floor| is_too_far_ahead(*floor, shared.seen(), clock_us)) {
        return Err(Failed::answered(Error::invalid(format!(
            "acquire refused: the floor is more than a day ahead of this machine's clock floor={floor} \
             clock_us={clock_us} name={name} store={place}"
        ))));
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
        limit: Duration,
    ) -> Result<Answer, Failed> {
        let deadline = Boottime.now().after(limit);
        refuse(&quorum.shared, claim, ask.floor)?;
        let mut rounds = Self {
            known: quorum.known("acquire", limit).await?,
            quorum,
            claim,
            deadline,
            floor: ask.floor,
            rivalry: Rivalry::default(),
            leader: None,
            may_have: BTreeSet::new(),
        };
        let mut count = 0;
        let answer = loop {
            count += 1;
            if let Some(answer) = rounds.ask_for_the_granted().await? {
                break Ok(answer);
            }
            let votes = match rounds.propose() {
                Ok(token) => rounds.ask(token).await,
                Err(failed) => break Err(failed),
            };
            match rounds.judge(votes).await {
                Ok(NextStep::Answered(answer)) => break Ok(answer),
                Ok(NextStep::Again) => {}
                Err(failed) => break Err(failed),
            }
        };
        quorum.shared.counts.claimed_in(count);
        answer
    }

    /// A holder that was granted the name and asks again has its lease renewed. `None`: it has none.
    async fn ask_for_the_granted(&self) -> Result<Option<Answer>, Failed> {
        let Claim {
            name, holder, ttl, ..
        } = self.claim;
        let last = self.quorum.shared.memory().last(*holder).cloned();
        let Some(last) = last.filter(|last| last.is_granted) else {
            return Ok(None);
        };
        let renewal = Renewal::new(name.clone(), *holder, last.token, *ttl);
        let renewed = self.quorum.renew_all(&[renewal], self.left()).await;
        match renewed.outcomes.into_iter().next() {
            Some(Outcome::Renewed) => Ok(Some(Answer::Granted(Grant::new(last.token)))),
            Some(Outcome::Unknown(error)) => Err(Failed::perhaps(error)),
            Some(Outcome::Refused | Outcome::Evicted) | None => {
                let lost = LastToken {
                    is_granted: false,
                    ..last
                };
                self.quorum
                    .shared
                    .memory()
                    .note(*holder, lost, Boottime.now());
                Ok(None)
            }
        }
    }

    /// Chooses a token, and notes it before it is sent.
    fn propose(&self) -> Result<Token, Failed> {
        let (shared, holder) = (&self.quorum.shared, self.claim.holder);
        let mut memory = shared.memory();
        let last = memory.last(holder).map(|last| last.token);
        let Some(token) = propose(wall_clock_us(), shared.seen(), last.max(self.floor)) else {
            let message = format!(
                "acquire refused: no tokens are left below 2^53 {}",
                self.facts()
            );
            return Err(self.failed(Error::new(ErrorKind::Misconfigured, message)));
        };
        let now = Boottime.now();
        memory.note(holder, self.noted(token, false), now);
        Ok(token)
    }

    fn noted(&self, token: Token, is_granted: bool) -> LastToken {
        LastToken {
            token,
            is_granted,
            info: self.claim.info.clone(),
            forget_at: self.deadline.after(self.known.max_ttl * 2),
        }
    }

    /// Proposes this token to all members, and returns their votes.
    async fn ask(&mut self, token: Token) -> Votes {
        let (quorum, claim) = (self.quorum, self.claim);
        let asked: Arc<[NameRequest]> = [self.asked(token, Some(claim.info.clone()))].into();
        let (now, limit) = (Boottime.now(), self.left());
        let mut poll = quorum.members.ask(limit, |index, member| {
            let (asked, id) = (asked.clone(), self.known.id(index));
            async move { member.ask(id, Act::Claim, &asked, limit).await }
        });
        let deadline = now.after(claim.ttl);
        let mut votes = Votes::new(token, quorum.members.len(), deadline);
        while let Some((member, answer)) = poll.next().await {
            // Where another lease is in the way, or a higher token is wanted, a missing vote seldom brings a grant.
            // Otherwise it may be the one that is needed, of a member that is only slow.
            if votes.note(member, answer) {
                poll.hurry();
            }
            // A refusal is told once all have answered that answer soon: what they took has to be taken back.
            if let Some(ClaimOutcome::Granted | ClaimOutcome::Low { .. }) = votes.answers.verdict()
            {
                break;
            }
        }
        votes.took = poll.took();
        poll.go_on(|_, _| ());
        for (member, away) in &votes.away {
            quorum.care_for(*member, away, &self.known);
        }
        self.may_have.extend(votes.answers.to_take_back());
        votes
    }

    async fn judge(&mut self, votes: Votes) -> Result<NextStep, Failed> {
        let outcome = votes.answers.close();
        let (holder, shared) = (self.claim.holder, &self.quorum.shared);
        if let ClaimOutcome::Low { above } | ClaimOutcome::Split { above, .. } = outcome {
            shared.note_seen(above);
        }
        match outcome {
            ClaimOutcome::Granted => {
                shared.note_seen(votes.token.get());
                let noted = self.noted(votes.token, true);
                shared.memory().note(holder, noted, Boottime.now());
                return Ok(NextStep::Answered(Answer::Granted(Grant::new(votes.token))));
            }
            ClaimOutcome::Low { .. } if !self.is_over() => return Ok(NextStep::Again),
            _ => {}
        }
        self.take_back(&votes).await;
        match outcome {
            ClaimOutcome::Held(lease) => Ok(NextStep::Answered(self.held_by(&lease, votes))),
            ClaimOutcome::Split {
                leading, rivals, ..
            } => {
                if self.leads_again(leading) || self.is_over() {
                    return Ok(NextStep::Answered(self.held_by(&leading, votes)));
                }
                let round_trip = votes.took.unwrap_or_default().max(LEAST_ROUND_TRIP);
                let pause = self.rivalry.pause(rivals, round_trip, fastrand::f64());
                self.pause(pause).await;
                Ok(NextStep::Again)
            }
            ClaimOutcome::Away(Absence::Out(_)) => self.kept_out(&votes),
            ClaimOutcome::Away(_) => {
                let misfit = votes
                    .away
                    .iter()
                    .find(|(_, away)| !matches!(away.absence, Absence::Out(_)));
                match misfit {
                    Some((_, away)) => {
                        Err(self.failed(self.quorum.misfit("acquire", away, self.facts())))
                    }
                    None => Err(self.too_few(&votes)),
                }
            }
            ClaimOutcome::Granted | ClaimOutcome::Low { .. } | ClaimOutcome::Failed => {
                Err(self.too_few(&votes))
            }
        }
    }

    /// Answers that the quorum keeps out, until so many members are in again that a majority is.
    fn kept_out(&self, votes: &Votes) -> Result<NextStep, Failed> {
        let mut left: Vec<Duration> = votes
            .away
            .iter()
            .map(|(_, away)| self.known.left(away.out_us))
            .collect();
        left.sort_unstable();
        let missing = majority(self.quorum.members.len()).saturating_sub(votes.answered);
        let remaining = left.get(missing.saturating_sub(1)).or(left.last()).copied();
        let is_stuck = votes.away.iter().all(|(_, away)| {
            let end = self.known.left(0) + ADOPTION;
            Duration::from_micros(away.out_us) > end
        });
        match remaining {
            Some(remaining) if !is_stuck => {
                let mut held = Held::new(self.claim.name.clone());
                held.state = HeldState::KeepOut;
                held.remaining = Some(remaining.max(Duration::from_millis(100)));
                Ok(NextStep::Answered(Answer::Held(Box::new(held))))
            }
            _ => Err(self.too_few(votes)),
        }
    }

    /// Notes which lease had the most members. Returns whether it has led for so long that it is taken for one that is
    /// held.
    fn leads_again(&mut self, lease: MemberLease) -> bool {
        let rounds = match self.leader {
            Some((before, rounds))
                if (before.holder, before.token) == (lease.holder, lease.token) =>
            {
                rounds + 1
            }
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
        let asked = self.asked(votes.token, None);
        let (batch, limit): (Arc<[NameRequest]>, _) =
            ([asked.clone()].into(), self.left().max(TAKE_BACK_AT_LEAST));
        let members = std::mem::take(&mut self.may_have);
        let mut poll =
            self.quorum
                .members
                .ask_some(members.iter().copied(), limit, |index, member| {
                    let (batch, id) = (batch.clone(), self.known.id(index));
                    async move { member.ask(id, Act::TakeBack, &batch, limit).await }
                });
        // Those that did not vote may be as silent here: only the others are awaited.
        let mut awaited: BTreeSet<usize> = votes.taken_by.iter().copied().collect();
        self.may_have = members;
        poll.within(votes.took.unwrap_or_default());
        let until = Boottime.now().after(self.known.max_ttl);
        let owed = move || Owed {
            act: Act::TakeBack,
            asked: asked.clone(),
            until,
        };
        while !awaited.is_empty()
            && let Some((member, answer)) = poll.next().await
        {
            match answer {
                Ok(_) => drop(self.may_have.remove(&member)),
                Err(_) => self.quorum.owe(member, owed(), &self.known),
            }
            awaited.remove(&member);
        }
        let (quorum, known) = (self.quorum.share(), self.known.clone());
        poll.go_on(move |member, answer| {
            if answer.is_err() {
                quorum.owe(member, owed(), &known);
            }
        });
    }

    /// Waits, so that of several claims one comes first.
    async fn pause(&self, pause: Duration) {
        let until = Boottime.now().after(pause).min(self.deadline);
        // The timer of the runtime counts in milliseconds.
        match pause < Duration::from_millis(5) {
            true => Boottime.sleep_until(until).await,
            false => Boottime.nap_until(until).await,
        }
    }

    /// Returns what is known of the lease that keeps the claim out.
    fn held_by(&self, lease: &MemberLease, votes: Votes) -> Answer {
        let held = merged(votes.alike(lease), self.quorum.members.len());
        Answer::Held(Box::new(
            held.unwrap_or_else(|| Held::new(self.claim.name.clone())),
        ))
    }

    fn asked(&self, token: Token, info: Option<Arc<crate::store::Info>>) -> NameRequest {
        NameRequest {
            name: self.claim.name.clone(),
            holder: self.claim.holder,
            token,
            // What is taken back is kept for no time.
            ttl: if info.is_some() {
                self.claim.ttl
            } else {
                Duration::ZERO
            },
            info,
            mark: None,
        }
    }

    fn left(&self) -> Duration {
        self.deadline.since(Boottime.now())
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

    /// Everything that was proposed is known to be refused or taken back, or it may be carried out.
    fn failed(&self, error: Error) -> Failed {
        match self.may_have.is_empty() {
            true => Failed::answered(error),
            false => Failed::perhaps(error),
        }
    }

    fn too_few(&self, votes: &Votes) -> Failed {
        let failures = &votes.failures;
        let error = self
            .quorum
            .error("acquire", votes.answered, failures, self.facts());
        let is_unsent = |(_, failed): &(usize, Failed)| failed.sent == Sent::Never;
        let all = failures.len() == self.quorum.members.len();
        match all && failures.iter().all(is_unsent) && self.leader.is_none() {
            true => Failed::never(error),
            false => self.failed(error),
        }
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
