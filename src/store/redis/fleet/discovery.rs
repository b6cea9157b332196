//! Discovers the servers, and decides whether an answer is younger than the discovery that confirms it.
//!
//! A discovery is a task of the runtime that asks for it. Calls go on in parallel.

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

/// Time limit of a discovery, and the interval between discoveries while calls are made.
pub(super) const DISCOVER_EVERY: Duration = Duration::from_millis(500);
/// Minimum interval between discoveries after a server refused a call or answered it late.
pub(super) const AT_MOST_EVERY: Duration = Duration::from_millis(50);
/// Minimum interval between discoveries after a call found its server down: its callers retry in quick succession.
pub(super) const AFTER_FAILURES_EVERY: Duration = Duration::from_millis(350);
/// How long a call waits for a running discovery, if the one before got no answer.
const CONFIRMED_WITHIN: Duration = Duration::from_millis(100);

/// A discovery, running or finished.
#[derive(Clone)]
pub(super) struct SharedDiscovery {
    began_at: Instant,
    outcome: Shared<BoxFuture<'static, Result<(), Failure>>>,
}

impl Fleet {
    /// Discovers the servers, while nothing at all is known.
    pub(super) async fn find(self: &Arc<Self>, budget: Budget) -> Result<(), Failure> {
        if self.map.borrow().is_known() {
            return Ok(());
        }
        let found = self.discover(AT_MOST_EVERY).ended(budget).await;
        match self.map.borrow().is_known() {
            true => Ok(()),
            false => found.map_err(Failure::before_the_request),
        }
    }

    /// Begins a discovery, unless one began less than this interval ago. Returns the one that began last.
    pub(super) fn discover(self: &Arc<Self>, at_most_every: Duration) -> SharedDiscovery {
        let mut last = self.last_discovery.lock();
        let began_at = Boottime.now();
        if let Some(discovery) = last.as_ref()
            && began_at.since(discovery.began_at) < at_most_every
        {
            return discovery.clone();
        }
        let task = tokio::spawn(self.clone().discover_now());
        let outcome = async { task.await.unwrap_or(Err(Unconnected::Abandoned.into())) };
        let outcome = outcome.boxed().shared();
        last.insert(SharedDiscovery { began_at, outcome }).clone()
    }

    async fn discover_now(self: Arc<Self>) -> Result<(), Failure> {
        let outcome = self.learn(Budget::new(DISCOVER_EVERY)).await;
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
                // By the map of this moment: another discovery may have learned of a failover since.
                self.change(|map| is_settled = sentinels::settle(&opinions, sentinels, map));
                if !is_settled {
                    return Err(most_telling(failures));
                }
            }
            UrlServers::Cluster(seeds) => {
                let ranges = nodes::read(self, seeds, budget).await?;
                self.change(|map| map.set_ranges(ranges, Boottime.now()));
            }
        }
        Ok(())
    }

    /// Waits for the end of this discovery, but not for long: while no Sentinel answers, the servers go on.
    ///
    /// If the last finished discovery got an answer, this waits until the running one ends, but for no more than half
    /// of the budget: it may tell of a new master. Otherwise it waits only while the discovery is young, so that
    /// Sentinels that do not answer do not delay every call.
    pub(super) async fn confirmed_by(&self, discovery: &SharedDiscovery, budget: Budget) {
        let limit = match self.has_answer.load(Ordering::Relaxed) {
            true => DISCOVER_EVERY.min(budget.left() / 2),
            false => CONFIRMED_WITHIN.saturating_sub(Boottime.now().since(discovery.began_at)),
        };
        let _ = discovery.ended(budget.at_most(limit)).await;
    }
}

impl SharedDiscovery {
    /// Awaits its outcome within this budget.
    async fn ended(&self, budget: Budget) -> Result<(), Failure> {
        let ended = timeout(budget.left(), shielded(self.outcome.clone())).await;
        ended.unwrap_or(Err(FailureCause::Silent.into()))
    }
}
