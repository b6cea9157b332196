//! Looks for the servers, and decides whether an answer is younger than the look that confirms it.
//!
//! A look is a task of the runtime that asks for it. Calls go on meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{FutureExt as _, Shared};
use tokio::time::timeout;

use super::super::failure::{Failure, FailureCause};
use super::super::target::UrlServers;
use super::{Fleet, nodes, sentinels};
use crate::clock::{Boottime, Clock, Instant};
use crate::future::{BoxFuture, shielded};
use crate::store::kit::budget::Budget;
use crate::store::kit::connection::{Unconnected, most_telling};

/// The longest time that a look may take, and how often the Sentinels are asked while calls are made.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Says how often a look may begin when a server has refused a call, or answered it late.
pub(super) const AT_MOST_EVERY: Duration = Duration::from_millis(50);
/// Says how often a look may begin because a call found its server down: the callers try again and again meanwhile.
pub(super) const AFTER_FAILURES_EVERY: Duration = Duration::from_millis(350);
/// The time for which a call waits for a look in progress, if the previous look got no answer.
const CONFIRMED_WITHIN: Duration = Duration::from_millis(100);

/// A look, which may have ended.
#[derive(Clone)]
pub(super) struct SharedLook {
    began_at: Instant,
    outcome: Shared<BoxFuture<'static, Result<(), Failure>>>,
}

impl Fleet {
    /// Looks for the servers, while nothing at all is known.
    pub(super) async fn find(self: &Arc<Self>, budget: Budget) -> Result<(), Failure> {
        if self.map.borrow().is_known() {
            return Ok(());
        }
        let found = self.look(AT_MOST_EVERY).ended(budget).await;
        match self.map.borrow().is_known() {
            true => Ok(()),
            false => found.map_err(Failure::before_the_request),
        }
    }

    /// Begins to look for the servers, unless a look began so recently. Returns the look that began last.
    pub(super) fn look(self: &Arc<Self>, at_most_every: Duration) -> SharedLook {
        let mut last = self.last_look.lock();
        let began_at = Boottime.now();
        if let Some(look) = last.as_ref()
            && began_at.since(look.began_at) < at_most_every
        {
            return look.clone();
        }
        let task = tokio::spawn(self.clone().look_now());
        let outcome = async { task.await.unwrap_or(Err(Unconnected::Abandoned.into())) };
        let outcome = outcome.boxed().shared();
        last.insert(SharedLook { began_at, outcome }).clone()
    }

    async fn look_now(self: Arc<Self>) -> Result<(), Failure> {
        let outcome = self.learn(Budget::new(LOOK_EVERY)).await;
        let outcome = outcome.inspect_err(|failure| {
            tracing::debug!(error = %failure, "the servers were not found");
        });
        self.has_answer.store(outcome.is_ok(), Ordering::Relaxed);
        outcome
    }

    async fn learn(&self, budget: Budget) -> Result<(), Failure> {
        match &self.named {
            UrlServers::One => {}
            UrlServers::Sentinels(group) => {
                let (opinions, failures) = sentinels::ask_all(self, group, budget).await;
                let (sentinels, mut is_settled) = (group.endpoints.len(), false);
                // By the map of this moment: another look may have learned of a failover meanwhile.
                self.change(|map| is_settled = sentinels::settle(&opinions, sentinels, map));
                if !is_settled {
                    return Err(most_telling(failures));
                }
            }
            UrlServers::Cluster(seeds) => {
                let ranges = nodes::look(self, seeds, budget).await?;
                self.change(|map| map.set_ranges(ranges, Boottime.now()));
            }
        }
        Ok(())
    }

    /// Waits for the end of this look, but not for long: while no Sentinel answers, the servers go on.
    ///
    /// If the last look that has ended got an answer, the running one is awaited to its end, but for no more than half
    /// of the budget: it may tell of a new master. Otherwise it is awaited only while it is young: Sentinels that
    /// answer no server should not delay every call.
    pub(super) async fn confirmed_by(&self, look: &SharedLook, budget: Budget) {
        let patience = match self.has_answer.load(Ordering::Relaxed) {
            true => LOOK_EVERY.min(budget.left() / 2),
            false => CONFIRMED_WITHIN.saturating_sub(Boottime.now().since(look.began_at)),
        };
        let _ = look.ended(budget.at_most(patience)).await;
    }
}

impl SharedLook {
    /// Awaits its outcome within this budget.
    async fn ended(&self, budget: Budget) -> Result<(), Failure> {
        let ended = timeout(budget.left(), shielded(self.outcome.clone())).await;
        ended.unwrap_or(Err(FailureCause::Silent.into()))
    }
}
