//! Background work for a member: one that is out comes in at the end of its keep-out, and one that was
//! silent gets the releases that it missed.

use std::sync::Arc;
use std::time::Duration;

use super::known::KnownQuorum;
use super::members::{Act, MemberPlace, NameRequest, PAUSE};
use super::protocol::{Absence, Membership, adoption};
use super::store::Quorum;
use crate::clock::{Boottime, Clock as _, wall_clock_us};
use crate::store::Failed;

/// The longest random delay before an adoption, so that of many clients one comes first.
const SPREAD: Duration = Duration::from_millis(100);

async fn nap(time: Duration) {
    Boottime.nap_until(Boottime.now().after(time)).await;
}

impl Quorum {
    /// Takes a member in that is out, in a task, at the end of its keep-out.
    pub(super) fn care_for(&self, member: usize, absence: Absence, known: &Arc<KnownQuorum>) {
        let Absence::Out(out_us) = absence else {
            return;
        };
        let adopting = self.members[member].adopting.clone();
        let Ok(permit) = adopting.try_acquire_owned() else {
            return;
        };
        let (quorum, known) = (self.share(), known.clone());
        tokio::spawn(async move {
            let _permit = permit;
            nap(known.left(out_us) + SPREAD.mul_f64(fastrand::f64())).await;
            let adopted = quorum.adopt(member, &known).await;
            let member = quorum.members.place(member);
            match adopted {
                Ok(true) => tracing::info!(member, "a member of the quorum is in again"),
                // The others may answer in a moment.
                Ok(false) => nap(PAUSE).await,
                Err(Failed { error, .. }) => {
                    tracing::debug!(member, %error, "a member stays out");
                    nap(PAUSE).await;
                }
            }
        });
    }

    /// Returns whether the member is in now.
    async fn adopt(&self, member: usize, known: &KnownQuorum) -> Result<bool, Failed> {
        let (limit, id) = (self.shared.connect_timeout, known.id(member));
        let target = &self.members[member];
        let found = target.look(limit).await?;
        let Some(absence) = found.absence(id) else {
            return Ok(true);
        };
        let is_over = matches!(absence, Absence::Out(out_us) if known.left(out_us).is_zero());
        // Another server may be another one than `init` was given, by a list that is not that of the others.
        let is_known = found.membership.is_some_and(|found| found.id == id)
            || known.members == self.members.places();
        if !is_over || !is_known {
            return Ok(false);
        }
        let Some(highest) = self.highest(known).await else {
            return Ok(false);
        };
        let by = &found.incarnation;
        let place = known.write(target, "adopt", by, id, highest, limit).await?;
        Ok(place.absence(id).is_none())
    }

    /// Returns the highest token that any grant can have, for the adoption of a member that was found to have kept out,
    /// if it can be known.
    async fn highest(&self, known: &KnownQuorum) -> Option<u64> {
        let answer = |(member, place): &(usize, MemberPlace)| {
            Membership::highest(place.membership, known.id(*member))
        };
        let asked = self.members.look(self.shared.connect_timeout);
        let knows = |told: &[_]| told.iter().filter(|told| answer(told).is_ok()).count();
        let (told, _) = asked
            .gather(|told| knows(told) >= self.members.majority())
            .await;
        let mut answers = vec![None; self.members.len()];
        for told in &told {
            answers[told.0] = Some(answer(told));
        }
        adoption(&answers, wall_clock_us())
    }

    /// Sends releases again that a member did not confirm, in a task, until it does or nothing is left to free.
    pub(super) fn owe(&self, member: usize, asked: &Arc<[NameRequest]>, known: &KnownQuorum) {
        let releasing = self.members[member].releasing.clone();
        let Ok(permit) = releasing.try_acquire_owned() else {
            return;
        };
        let until = Boottime.now().after(known.max_ttl);
        let (id, limit) = (known.id(member), self.shared.connect_timeout);
        let (member, asked) = (self.members[member].clone(), asked.clone());
        tokio::spawn(async move {
            let _permit = permit;
            while Boottime.now() < until {
                nap(PAUSE).await;
                if member.ask(id, Act::Release, &asked, limit).await.is_ok() {
                    break;
                }
            }
        });
    }
}
