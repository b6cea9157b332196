//! Tasks that run now and then: old rows are removed, and a pooler that drops notices is reported once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_postgres::types::Type;

use super::address::Address;
use super::lane::Query;
use super::lanes::Lanes;
use super::schema::Statements;
use super::{REPLACE_EVERY, millis};
use crate::clock::{Boottime, Clock, Instant};

/// How often this client removes old rows. The server does it no more often, however many clients ask.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// How long the removal may take: it reads the whole table.
const SWEEP_LIMIT: Duration = Duration::from_secs(10);

/// The state that a store shares with its connections for the watchdog and the waiting clients.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    swept_at: Mutex<Option<Instant>>,
    has_told_of_pooler: AtomicBool,
}

impl Upkeep {
    /// Removes old rows if it is time, without delaying the grant.
    pub(super) fn after_grant(
        &self,
        lanes: &Arc<Lanes>,
        statements: &Arc<Statements>,
        token_memory: Duration,
    ) {
        if !self.is_time() {
            return;
        }
        let (lanes, statements) = (lanes.clone(), statements.clone());
        tokio::spawn(async move {
            let call = Query {
                statement: &statements.tidy,
                arguments: &[(&millis(token_memory), Type::INT8)],
            };
            let until = Boottime.now().after(SWEEP_LIMIT);
            if let Err(failure) = lanes.request(call, until, REPLACE_EVERY).await {
                tracing::debug!(%failure, "old rows were not removed");
            }
        });
    }

    /// It is time after the first grant, too: where every process acquires one lease only, one of them must do it.
    fn is_time(&self) -> bool {
        let now = Boottime.now();
        let mut swept_at = self.swept_at.lock().unwrap_or_else(PoisonError::into_inner);
        let is_time = swept_at.is_none_or(|at| now.since(at) >= SWEEP_EVERY);
        if is_time {
            *swept_at = Some(now);
        }
        is_time
    }

    pub(super) fn say_once_that_a_pooler_is_between(&self, address: &Address) {
        if !self.has_told_of_pooler.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                store = %address,
                "notices do not arrive, as behind a transaction pooler; waiting clients only check again after some time"
            );
        }
    }
}
