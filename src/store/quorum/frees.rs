//! Releases and evictions at all members.

use std::sync::Arc;
use std::time::Duration;

use super::store::Quorum;
use super::{Freed, majority};
use crate::error::Error;
use crate::holder::Holder;
use crate::name::Name;
use crate::store::redis::RedisMember;
use crate::store::{Eviction, Failed, Release};

impl Quorum {
    /// Releases the name. The members that are slow get the release all the same.
    pub(super) async fn release_everywhere(
        &self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
        limit: Duration,
    ) -> Result<Release, Error> {
        let was_freed = self.by_majority("release", name, limit, |member| {
            let name = name.clone();
            async move {
                let freed = member.release(&name, holder, keep_for, limit).await;
                Ok(freed.map_err(Failed::perhaps)? == Freed::Freed)
            }
        });
        let was_freed = was_freed.await?;
        self.shared.proposals().forget(holder);
        Ok(match was_freed {
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
        let was_held = self.by_majority("evict", name, limit, |member| {
            let name = name.clone();
            async move {
                member
                    .evict(&name, how, limit)
                    .await
                    .map_err(Failed::perhaps)
            }
        });
        was_held.await
    }

    /// Asks all members, and returns whether one of a majority said yes. Each lease that a majority has is at one of them.
    async fn by_majority<F>(
        &self,
        operation: &str,
        name: &Name,
        limit: Duration,
        ask: impl Fn(Arc<RedisMember>) -> F,
    ) -> Result<bool, Error>
    where
        F: Future<Output = Result<bool, Failed>> + Send + 'static,
    {
        let mut asked = self.members.ask(limit, ask);
        let (mut answered, mut is_any, mut failures) = (0, false, Vec::new());
        while answered < majority(self.members.len())
            && let Some((member, answer)) = asked.next().await
        {
            match answer {
                Ok(is) => {
                    answered += 1;
                    is_any |= is;
                }
                Err(failed) => failures.push((member, failed)),
            }
        }
        asked.go_on(|_, _| ());
        match answered >= majority(self.members.len()) {
            true => Ok(is_any),
            false => Err(self.error_of(operation, answered, &failures, name)),
        }
    }
}
