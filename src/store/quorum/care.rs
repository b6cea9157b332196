//! What is done for a member in the background: one that is out comes in at the end of its keep-out, and one that was
//! silent gets the releases that it missed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::known::KnownQuorum;
use super::members::{Act, Away, NameRequest, PAUSE};
use super::micros;
use super::protocol::{Absence, Membership, Writing, adoption, majority};
use super::store::Quorum;
use crate::clock::{Boottime, Clock as _, Instant, wall_clock_us};
use crate::store::{Failed, MAX_BATCH};

/// How many releases wait for one member. What is left behind beyond that ends with its ttl.
const MOST_OWED: usize = 4_096;
/// The longest random delay before an adoption, so that of many clients one comes first.
const SPREAD: Duration = Duration::from_millis(100);

/// What is under way for one member.
#[derive(Debug, Default)]
pub(super) struct Care {
    is_adopting: AtomicBool,
    is_releasing: AtomicBool,
    owed: Mutex<Vec<Owed>>,
}

/// A release that the member has not confirmed.
#[derive(Debug)]
pub(super) struct Owed {
    pub(super) act: Act,
    pub(super) asked: NameRequest,
    /// What it would free has ended by then.
    pub(super) until: Instant,
}

/// That something is under way, until this is dropped: with the task, or with its runtime.
struct Turn(Arc<Care>, fn(&Care) -> &AtomicBool);

impl Turn {
    fn begin(care: &Arc<Care>, of: fn(&Care) -> &AtomicBool) -> Option<Self> {
        let was_begun = of(care).swap(true, Ordering::AcqRel);
        (!was_begun).then(|| Self(care.clone(), of))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        (self.1)(&self.0).store(false, Ordering::Release);
    }
}

impl Care {
    fn owed(&self) -> MutexGuard<'_, Vec<Owed>> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Quorum {
    /// Takes a member in that is out, in a task, at the end of its keep-out.
    pub(super) fn care_for(&self, member: usize, away: &Away, known: &KnownQuorum) {
        if !matches!(away.absence, Absence::Out(_)) {
            return;
        }
        let Some(turn) = Turn::begin(&self.shared.care[member], |care| &care.is_adopting) else {
            return;
        };
        let (quorum, known, left) = (self.share(), known.clone(), known.left(away.out_us));
        tokio::spawn(async move {
            let _turn = turn;
            let delay = left + SPREAD.mul_f64(fastrand::f64());
            Boottime.nap_until(Boottime.now().after(delay)).await;
            let outcome = quorum.adopt(member, &known).await;
            let place = quorum.members.place(member);
            match outcome {
                Ok(true) => tracing::info!(member = place, "a member of the quorum is in again"),
                // The others may answer in a moment.
                Ok(false) => Boottime.nap_until(Boottime.now().after(PAUSE)).await,
                Err(failed) => {
                    tracing::debug!(member = place, error = %failed.error, "a member stays out");
                    Boottime.nap_until(Boottime.now().after(PAUSE)).await;
                }
            }
        });
    }

    /// Returns whether the member is in now.
    async fn adopt(&self, member: usize, known: &KnownQuorum) -> Result<bool, Failed> {
        let limit = self.shared.connect_timeout;
        let id = known.id(member);
        let target = self.members.get(member);
        let found = target.look(limit).await?;
        let Some(away) = found.away(id) else {
            return Ok(true);
        };
        let is_over = matches!(away.absence, Absence::Out(_)) && known.left(away.out_us).is_zero();
        // Another server may be another one than `init` was given, by a list that is not that of the others.
        let is_it = |member: &Membership<String>| member.id == id;
        let is_known = found.node.membership.as_ref().is_some_and(is_it)
            || known.members == self.members.places();
        if !is_over || !is_known {
            return Ok(false);
        }
        let others = (0..self.members.len()).filter(|other| *other != member);
        let mut asked = self
            .members
            .ask_some(others, limit, |_, member| async move {
                member.look(limit).await
            });
        let mut answers = vec![None; self.members.len()];
        answers[member] = Some(found.highest(id));
        let knows = |answers: &[Option<Result<u64, _>>]| {
            let knowing = answers.iter().flatten().filter(|answer| answer.is_ok());
            knowing.count() >= majority(answers.len())
        };
        while !knows(&answers)
            && let Some((other, place)) = asked.next().await
        {
            answers[other] = place.ok().map(|place| place.highest(known.id(other)));
        }
        let Some(highest) = adoption(&answers, wall_clock_us()) else {
            return Ok(false);
        };
        let writing = Writing {
            id,
            max_ttl_us: micros(known.max_ttl),
            found: found.at.incarnation,
            highest,
        };
        let place = target.adopt(&writing, &known.members, limit).await?;
        Ok(place.away(id).is_none())
    }

    /// Sends a release again that a member did not confirm, in a task, until it does or nothing is left to free.
    pub(super) fn owe(&self, member: usize, owed: Owed, known: &KnownQuorum) {
        let care = &self.shared.care[member];
        {
            let mut waiting = care.owed();
            if waiting.len() >= MOST_OWED {
                return;
            }
            waiting.push(owed);
        }
        let Some(turn) = Turn::begin(care, |care| &care.is_releasing) else {
            return;
        };
        let (quorum, known) = (self.share(), known.clone());
        tokio::spawn(async move {
            let care = &quorum.shared.care[member];
            let mut turn = Some(turn);
            while turn.is_some() {
                while !care.owed().is_empty() {
                    Boottime.nap_until(Boottime.now().after(PAUSE)).await;
                    quorum.release_owed(member, &known).await;
                }
                drop(turn);
                // What came after the last look found the turn taken.
                let is_owed = !care.owed().is_empty();
                turn = is_owed
                    .then(|| Turn::begin(care, |care| &care.is_releasing))
                    .flatten();
            }
        });
    }

    async fn release_owed(&self, member: usize, known: &KnownQuorum) {
        let now = Boottime.now();
        let mut waiting = std::mem::take(&mut *self.shared.care[member].owed());
        waiting.retain(|owed| now < owed.until);
        let limit = self.shared.connect_timeout;
        let mut left = Vec::new();
        for act in [Act::Release, Act::TakeBack] {
            let (batch, rest) = waiting
                .into_iter()
                .partition::<Vec<_>, _>(|owed| owed.act == act);
            waiting = rest;
            let mut batch = batch.into_iter().peekable();
            while batch.peek().is_some() {
                let part: Vec<Owed> = batch.by_ref().take(MAX_BATCH).collect();
                let asked: Vec<NameRequest> = part.iter().map(|owed| owed.asked.clone()).collect();
                let told = self
                    .members
                    .get(member)
                    .ask(known.id(member), act, &asked, limit);
                if told.await.is_err() {
                    left.extend(part.into_iter().chain(batch));
                    break;
                }
            }
        }
        self.shared.care[member].owed().extend(left);
    }
}
