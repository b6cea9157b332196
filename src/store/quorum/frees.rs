//! Releases and evictions at all members.

use std::sync::Arc;
use std::time::Duration;

use super::care::Owed;
use super::known::KnownQuorum;
use super::looks::SeenLease;
use super::members::{Act, NameReply, NameRequest};
use super::protocol::{majority, propose};
use super::store::Quorum;
use crate::clock::{Boottime, Clock as _, wall_clock_us};
use crate::error::{Error, ErrorKind};
use crate::holder::Holder;
use crate::name::Name;
use crate::store::{Eviction, Failed, HeldState, Release};
use crate::token::Token;

impl Quorum {
    /// Releases the name. A member that is silent gets the release once it answers.
    pub(super) async fn release_everywhere(
        &self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
        limit: Duration,
    ) -> Result<Release, Error> {
        let known = self.known("release", limit).await?;
        let last = self.shared.memory().last(holder).map(|last| last.token);
        // Of a holder that this store does not know, everything that it proposed is behind the clock and what was seen.
        let token = last.or_else(|| propose(wall_clock_us(), self.shared.seen(), None));
        let asked = NameRequest {
            name: name.clone(),
            holder,
            token: token.unwrap_or(Token::MAX),
            ttl: keep_for.unwrap_or_default(),
            info: None,
            mark: None,
        };
        self.shared.note_seen(asked.token.get());
        let told = self
            .by_majority(&known, "release", Act::Release, &asked, limit)
            .await?;
        self.shared.memory().forget(holder);
        // What fewer had was no lease any more: another holder may have been granted the name since.
        let freed = told.iter().filter(|told| is_freed(told)).count();
        Ok(match freed >= majority(self.members.len()) {
            true => Release::Released,
            false => Release::NotHeld,
        })
    }

    pub(super) async fn evict_everywhere(
        &self,
        name: &Name,
        how: Eviction,
        limit: Duration,
    ) -> Result<bool, Error> {
        let known = self.known("evict", limit).await?;
        let Some(SeenLease { lease, held }) = self.seen(&known, name, limit).await? else {
            return Ok(false);
        };
        if held.state == HeldState::Kept && how == Eviction::Marked {
            return Ok(false);
        }
        // A renewal that is on its way may count for as long as that.
        let ttl = known.max_ttl + limit;
        let evicted = NameRequest {
            name: name.clone(),
            holder: lease.holder,
            token: lease.token,
            ttl,
            info: None,
            mark: None,
        };
        let told = self
            .by_majority(&known, "evict", Act::Evict, &evicted, limit)
            .await?;
        let count = |is_so: fn(&NameReply) -> bool| told.iter().filter(|told| is_so(told)).count();
        let enough = majority(self.members.len());
        if count(|told| matches!(told, NameReply::Taken(..))) >= enough {
            return Ok(false);
        }
        if count(|told| matches!(told, NameReply::Yes)) < enough {
            let message = "evict failed: too few members are in, evict again";
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!("{message} name={name} store={}", self.shared.place),
            ));
        }
        if how == Eviction::Now {
            let freed = NameRequest {
                ttl: Duration::ZERO,
                ..evicted
            };
            self.by_majority(&known, "evict", Act::Release, &freed, limit)
                .await?;
        }
        Ok(true)
    }

    /// Asks all members, and returns what a majority told, or more. Each lease that a majority has is at one of them.
    /// Where another lease is in the way, or a member is away, the others are awaited, too.
    async fn by_majority(
        &self,
        known: &KnownQuorum,
        operation: &str,
        act: Act,
        asked: &NameRequest,
        limit: Duration,
    ) -> Result<Vec<NameReply>, Error> {
        let batch: Arc<[NameRequest]> = [asked.clone()].into();
        let mut poll = self.members.ask(limit, |index, member| {
            let (batch, id) = (batch.clone(), known.id(index));
            async move {
                let told = member.ask(id, act, &batch, limit).await?;
                match told.into_iter().next() {
                    Some(NameReply::Failed(error)) => Err(Failed::answered(error)),
                    told => Ok(told.unwrap_or(NameReply::Free)),
                }
            }
        });
        let (mut all, mut failures, mut done) = (Vec::new(), Vec::new(), 0);
        let until = Boottime.now().after(known.max_ttl);
        let owed = {
            let asked = asked.clone();
            move || Owed {
                act,
                asked: asked.clone(),
                until,
            }
        };
        let is_open = |all: &[NameReply], done| {
            let freed = all.iter().filter(|told| is_freed(told)).count();
            // A member that had nothing to free may be one that never had the lease: the others are awaited, too.
            done < majority(self.members.len())
                || act == Act::Release && freed > 0 && freed < majority(self.members.len())
        };
        while is_open(&all, done)
            && let Some((member, answer)) = poll.next().await
        {
            match answer {
                Ok(told) => {
                    if let NameReply::Away(away) = &told {
                        self.care_for(member, away, known);
                    }
                    done += usize::from(matches!(told, NameReply::Yes | NameReply::Freed(_)));
                    all.push(told);
                }
                Err(failed) => {
                    if act == Act::Release {
                        self.owe(member, owed(), known);
                    }
                    failures.push((member, failed));
                }
            }
        }
        let (quorum, of) = (self.share(), known.clone());
        poll.go_on(move |member, answer| {
            if answer.is_err() && act == Act::Release {
                quorum.owe(member, owed(), &of);
            }
        });
        match all.len() >= majority(self.members.len()) {
            true => Ok(all),
            false => Err(self.error_of(operation, all.len(), &failures, &asked.name)),
        }
    }
}

/// Whether the member had the lease, and freed it.
const fn is_freed(told: &NameReply) -> bool {
    matches!(told, NameReply::Freed(true))
}
