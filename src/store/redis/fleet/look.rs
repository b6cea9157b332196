//! Decides when to look for the servers, and whether an answer is younger than the look that confirms it.
//!
//! A look is a task of the runtime that asks for it. Calls go on meanwhile.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::super::failure::Failure;
use crate::clock::{Boottime, Clock, Instant};

/// The longest time that a look may take, and how often the Sentinels are asked while calls are made.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Says how often a look may begin when a server has refused a call or broken its connection.
pub(super) const AT_MOST_EVERY: Duration = Duration::from_millis(50);
/// The time for which a call waits for a look in progress, if the previous look got no answer.
const CONFIRMED_WITHIN: Duration = Duration::from_millis(100);

/// The looks of a fleet.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// The moment at which the last look began.
    began_at: Mutex<Option<Instant>>,
    ended: watch::Sender<Ended>,
}

/// The last look that has ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Ended {
    /// The moment at which it began.
    began_at: Option<Instant>,
    /// The failure that kept it from an answer.
    pub(super) failure: Option<Failure>,
}

impl Looks {
    /// Notes that a look begins, unless another one began so recently. Returns when it began.
    pub(super) fn begin(&self, at_most_every: Duration) -> Option<Instant> {
        let now = Boottime.now();
        let mut began_at = self.began_at.lock();
        if began_at.is_some_and(|at| now.since(at) < at_most_every) {
            return None;
        }
        *began_at = Some(now);
        Some(now)
    }

    /// Notes that the look that began at this moment has ended.
    pub(super) fn end(&self, began_at: Instant, failure: Option<Failure>) {
        self.ended.send_modify(|ended| {
            if ended.began_at.is_none_or(|last| last <= began_at) {
                let began_at = Some(began_at);
                *ended = Ended { began_at, failure };
            }
        });
    }

    /// Waits for the end of a look that began at this moment or later.
    ///
    /// If the last look that has ended got an answer, the running one is awaited to its end, but for no more than half
    /// of the limit: it may tell of a new master. Otherwise it is awaited only while it is young: Sentinels that answer
    /// no server should not delay every call.
    pub(super) async fn confirmed_since(&self, began_at: Instant, limit: Duration) {
        let last = *self.began_at.lock();
        let lasts = last.map_or(Duration::ZERO, |at| Boottime.now().since(at));
        let patience = match self.ended.borrow().failure {
            None => LOOK_EVERY.min(limit / 2),
            Some(_) => CONFIRMED_WITHIN.saturating_sub(lasts).min(limit),
        };
        self.ended_since(began_at, patience).await;
    }

    /// Waits for the end of a look that began at this moment or later.
    pub(super) async fn ended_since(&self, began_at: Instant, limit: Duration) -> Option<Ended> {
        let mut ended = self.ended.subscribe();
        let is_young = |ended: &Ended| ended.began_at.is_some_and(|at| at >= began_at);
        let young = tokio::time::timeout(limit, ended.wait_for(is_young)).await;
        young.ok()?.ok().map(|ended| ended.clone())
    }
}
