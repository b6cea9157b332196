//! Reads leases without changing them: by their names, or all with a prefix.

use std::collections::BTreeSet;
use std::time::Duration;

use deadpool_redis::redis::Cmd;

use super::budget::Budget;
use super::failure::Failure;
use super::fleet::Call;
use super::link::Request;
use super::scripts::SCRIPTS;
use super::server::Server;
use super::slot::slot_of;
use super::{REPLACE_EVERY, Redis, reply};
use crate::name::Name;
use crate::store::Held;

/// How many leases one call reads; reading a whole lease costs the server more than a renewal.
const BATCH: usize = 128;
/// How many keys the server scans for one page: about 0.3 ms of its time.
const PAGE: usize = 1_000;

impl Redis {
    /// Reads the whole database, page by page, because Redis has no other way.
    pub(super) async fn try_list(
        &self,
        prefix: &str,
        limit: Duration,
    ) -> Result<Vec<Held>, Failure> {
        let budget = Budget::new(limit);
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
        let names: Vec<_> = names.into_iter().collect();
        let mut list = Vec::new();
        for batch in names.chunks(BATCH) {
            let seen = self.inspect_all(batch, budget).await?;
            // A key that was replaced by another program's meanwhile is not a lease.
            list.extend(seen.into_iter().filter_map(|held| held.ok().flatten()));
        }
        Ok(list)
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
            let page = server.lanes.request(&scan, budget, REPLACE_EVERY).await?;
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
        let call = |names: &[Name]| {
            let keys = names.iter();
            let keys = keys.flat_map(|name| [self.keys.lease(name), self.keys.queue(name)]);
            SCRIPTS.inspect.call(keys.collect::<Vec<_>>())
        };
        match (self.fleet.cluster(), names) {
            (_, []) => Ok(Vec::new()),
            (Some(many), _) => {
                let calls: Vec<_> = names
                    .iter()
                    .map(|name| Call {
                        slot: slot_of(name.as_str()),
                        is_write: false,
                        command: call(std::slice::from_ref(name)),
                    })
                    .collect();
                let (replies, _) = many.run_each(&calls, budget, REPLACE_EVERY).await;
                let one = |(reply, name)| {
                    let mut seen = reply::inspected(&reply?, std::slice::from_ref(name))?;
                    Ok(seen.pop().unwrap_or(Ok(None)))
                };
                replies.into_iter().zip(names).map(one).collect()
            }
            (None, [first, ..]) => {
                let call = call(names);
                let reply = self
                    .fleet
                    .run(first, Request::One(&call), budget, REPLACE_EVERY)
                    .await?;
                reply::inspected(&reply, names)
            }
        }
    }
}
