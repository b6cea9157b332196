//! Reads leases without changing them: by their names, or all with a prefix.

use std::collections::BTreeSet;
use std::sync::Arc;

use deadpool_redis::redis::Cmd;

use super::connection::budget::Budget;
use super::connection::open::Request;
use super::connection::server::Server;
use super::failure::Failure;
use super::fleet::{Call, Many};
use super::protocol::scripts::SCRIPTS;
use super::protocol::slot::slot_of;
use super::{REPLACE_EVERY, Redis, reply};
use crate::name::Name;
use crate::store::Held;

/// Says how many leases one call reads; reading a whole lease costs the server more than a renewal.
const BATCH: usize = 128;
/// Says how many keys the server scans for one page: about 0.3 ms of its time.
const PAGE: usize = 1_000;

impl Redis {
    /// Reads the whole database, page by page, because Redis has no other way.
    pub(super) async fn read_all(
        &self,
        prefix: &str,
        budget: Budget,
    ) -> Result<Vec<Held>, Failure> {
        let names = self.names(prefix, budget).await?;
        let mut list = Vec::new();
        for batch in names.chunks(BATCH) {
            for held in self.inspect_all(batch, budget).await? {
                match held {
                    Ok(held) => list.extend(held),
                    // A key that was replaced by another program's meanwhile is not a lease.
                    Err(Failure::Refused { .. }) => {}
                    Err(failure) => return Err(failure),
                }
            }
        }
        Ok(list)
    }

    /// Returns the names with this prefix that have a lease, in order.
    pub(super) async fn names(&self, prefix: &str, budget: Budget) -> Result<Vec<Name>, Failure> {
        let pattern = self.keys.pattern(prefix);
        // SCAN may return a key twice.
        let mut names = BTreeSet::new();
        let servers = self.fleet.servers(budget).await?;
        for server in &servers {
            self.scan(server, &pattern, &mut names, budget).await?;
        }
        // A slot that moved meanwhile may have come to a node that had been scanned before.
        let scanned = servers.split_last().map(|(_, scanned)| scanned);
        for server in scanned.unwrap_or_default() {
            self.scan(server, &pattern, &mut names, budget).await?;
        }
        Ok(names.into_iter().collect())
    }

    async fn scan(
        &self,
        server: &Server,
        pattern: &str,
        names: &mut BTreeSet<Name>,
        budget: Budget,
    ) -> Result<(), Failure> {
        let mut cursor = 0;
        loop {
            let mut scan = Cmd::new();
            scan.arg("SCAN").arg(cursor).arg("MATCH").arg(pattern);
            scan.arg("COUNT").arg(PAGE).arg("TYPE").arg("string");
            let page = server
                .connections
                .request(&scan, budget, REPLACE_EVERY)
                .await?;
            let (next, keys) = reply::scanned(&page)?;
            names.extend(
                keys.into_iter()
                    .filter_map(|key| self.keys.name_of_lease(key)),
            );
            if next == 0 {
                return Ok(());
            }
            cursor = next;
        }
    }

    /// Reads each of these names directly, at most [`BATCH`].
    pub(super) async fn inspect_all(
        &self,
        names: &[Name],
        budget: Budget,
    ) -> Result<Vec<Result<Option<Held>, Failure>>, Failure> {
        match (self.fleet.cluster(), names) {
            (_, []) => Ok(Vec::new()),
            (Some(many), _) => Ok(self.inspect_each(many, names, budget).await),
            (None, [first, ..]) => {
                let keys = names.iter().flat_map(|name| self.lease_and_queue(name));
                let call = SCRIPTS.inspect.call(keys.collect::<Vec<_>>());
                let reply = self
                    .fleet
                    .run(first, Request::One(&call), budget, REPLACE_EVERY)
                    .await?;
                reply::inspected(&reply, names)
            }
        }
    }

    /// Sends one call for each name. While a slot is moved, its servers refuse calls with a key that exists and one
    /// that does not: then the name is read again without its queue.
    async fn inspect_each(
        &self,
        many: &Arc<Many>,
        names: &[Name],
        budget: Budget,
    ) -> Vec<Result<Option<Held>, Failure>> {
        let all: Vec<_> = names.iter().collect();
        let mut seen = self
            .read_each(many, &all, Self::lease_and_queue, budget)
            .await;
        let is_half_moved =
            |index: &usize| matches!(&seen[*index], Err(Failure::NotServing { .. }));
        let half_moved: Vec<_> = (0..names.len()).filter(is_half_moved).collect();
        let again: Vec<_> = half_moved.iter().map(|index| &names[*index]).collect();
        let again = self
            .read_each(many, &again, Self::lease_alone, budget)
            .await;
        for (index, held) in half_moved.into_iter().zip(again) {
            seen[index] = held;
        }
        seen
    }

    async fn read_each(
        &self,
        many: &Arc<Many>,
        names: &[&Name],
        keys: fn(&Self, &Name) -> [String; 2],
        budget: Budget,
    ) -> Vec<Result<Option<Held>, Failure>> {
        let calls = names.iter().map(|name| Call {
            slot: slot_of(name.as_str()),
            is_write: false,
            command: SCRIPTS.inspect.call(keys(self, name)),
        });
        let calls: Vec<_> = calls.collect();
        let (replies, _) = many.run_each(&calls, budget, REPLACE_EVERY).await;
        let replies = replies.into_iter().zip(names);
        let seen = replies.map(|(reply, name)| {
            let mut seen = reply::inspected(&reply?, std::slice::from_ref(*name))?;
            seen.pop().unwrap_or(Ok(None))
        });
        seen.collect()
    }

    fn lease_and_queue(&self, name: &Name) -> [String; 2] {
        [self.keys.lease(name), self.keys.queue(name)]
    }

    fn lease_alone(&self, name: &Name) -> [String; 2] {
        [self.keys.lease(name), self.keys.lease(name)]
    }
}
