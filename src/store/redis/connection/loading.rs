//! Loads the scripts on a server that does not have them, once for all callers of a runtime that wait for it.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::try_join_all;

use super::super::failure::Failure;
use super::RuntimeConnection;
use super::budget::Budget;
use super::open::Request;
use super::shared_task::{self, SharedTask};

/// The scripts that were loaded over a connection.
#[derive(Debug, Default)]
pub(in super::super) struct Loading {
    /// The number of times that the scripts were loaded.
    loads: u64,
    under_way: Option<SharedTask<()>>,
}

impl RuntimeConnection {
    /// Returns how often the scripts were loaded, for [`load`](Self::load).
    pub(in super::super) fn loads(&self) -> u64 {
        self.loading().loads
    }

    /// Loads the scripts, unless that was done after they had been loaded `seen` times.
    pub(in super::super) async fn load(
        self: &Arc<Self>,
        seen: u64,
        budget: Budget,
        replace_every: Duration,
    ) -> Result<(), Failure> {
        let load = {
            let mut loading = self.loading();
            if loading.loads != seen {
                return Ok(());
            }
            let begin = || shared_task::start(self.clone().load_all(replace_every));
            loading.under_way.get_or_insert_with(begin).clone()
        };
        shared_task::outcome(&load, budget).await
    }

    async fn load_all(self: Arc<Self>, replace_every: Duration) -> Result<(), Failure> {
        // Not the limit of the caller that came first: others may have more time.
        let budget = Budget::new(self.connect_timeout());
        let scripts = (self.program().scripts)();
        let loads = scripts.into_iter().map(|script| {
            let connection = self.clone();
            async move {
                let load = script.load();
                connection
                    .request(Request::One(&load), budget, replace_every)
                    .await
            }
        });
        let loaded = try_join_all(loads).await.map(drop);
        let mut loading = self.loading();
        loading.under_way = None;
        loading.loads += u64::from(loaded.is_ok());
        loaded
    }

    fn loading(&self) -> MutexGuard<'_, Loading> {
        self.loading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
