//! Reads leases without changing them: by their names, or all with a prefix.

use std::collections::BTreeSet;

use deadpool_redis::redis::Cmd;

use super::connection::server::Server;
use super::failure::Failure;
use super::fleet::{Call, OF_MANY};
use super::protocol::scripts::SCRIPTS;
use super::protocol::slot::slot_of;
use super::{Redis, reply};
use crate::name::Name;
use crate::store::Held;
use crate::store::budget::Budget;
use crate::store::connection::is_transient;

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
                    // A key that was replaced by another program's meanwhile is not a lease. A server that refuses
                    // for the moment, because it loads its data, may have one.
                    Err(failure) if failure.is_refusal() && !is_transient(&failure) => {}
                    Err(failure) => return Err(failure),
                }
            }
        }
        Ok(list)
    }

    /// Returns the names with this prefix that have a lease, in order.
    pub(in crate::store) async fn names(
        &self,
        prefix: &str,
        budget: Budget,
    ) -> Result<Vec<Name>, Failure> {
        let pattern = self.keys.pattern(prefix);
        // SCAN may return a key twice.
        let mut names = BTreeSet::new();
        let servers = self.fleet.servers(budget).await?;
        // A slot that moved meanwhile may have come to a node that had been scanned before: all but the last are
        // scanned again.
        let again = &servers[..servers.len().saturating_sub(1)];
        for server in servers.iter().chain(again) {
            let keys = keys(server, &pattern, usize::MAX, budget).await?;
            names.extend(keys.iter().filter_map(|key| self.keys.name_of_lease(key)));
        }
        Ok(names.into_iter().collect())
    }

    /// Returns a key that belongs to a name or a slot, if a server has any.
    pub(in crate::store) async fn any_key(
        &self,
        budget: Budget,
    ) -> Result<Option<String>, Failure> {
        let pattern = self.keys.of_any_name();
        for server in self.fleet.servers(budget).await? {
            let found = keys(&server, &pattern, 1, budget).await?;
            if let Some(key) = found.into_iter().next() {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    /// Reads each of these names directly, at most [`BATCH`].
    pub(super) async fn inspect_all(
        &self,
        names: &[Name],
        budget: Budget,
    ) -> Result<Vec<Result<Option<Held>, Failure>>, Failure> {
        let Some(first) = names.first() else {
            return Ok(Vec::new());
        };
        if self.fleet.is_cluster() {
            return Ok(self.inspect_each(names, budget).await);
        }
        let keys = names.iter().flat_map(|name| self.lease_and_queue(name));
        let call = SCRIPTS.inspect.call(keys.collect::<Vec<_>>());
        let reply = self.fleet.run(first, call, None, budget).await?;
        reply::inspected(&reply, names)
    }

    /// Sends one call for each name. While a slot is moved, its servers refuse calls with a key that exists and one
    /// that does not: then the name is read again without its queue.
    async fn inspect_each(
        &self,
        names: &[Name],
        budget: Budget,
    ) -> Vec<Result<Option<Held>, Failure>> {
        let mut seen: Vec<_> = names.iter().map(|_| Ok(None)).collect();
        let mut unseen: Vec<_> = (0..names.len()).collect();
        for keys in [Self::lease_and_queue, Self::lease_alone] {
            let call = |index: &usize| {
                let name = &names[*index];
                Call {
                    slot: slot_of(name.as_str()),
                    command: SCRIPTS.inspect.call(keys(self, name)),
                }
            };
            let calls: Vec<_> = unseen.iter().map(call).collect();
            let (answers, _) = self.fleet.run_each(&calls, None, OF_MANY, budget).await;
            for (&index, answer) in unseen.iter().zip(answers) {
                let name = std::slice::from_ref(&names[index]);
                let one = answer.and_then(|reply| reply::inspected(&reply, name));
                seen[index] = one.and_then(|mut one| one.pop().unwrap_or(Ok(None)));
            }
            unseen.retain(|&index| {
                let failure = seen[index].as_ref().err();
                failure.is_some_and(|failure| failure.redirect().is_some())
            });
        }
        seen
    }

    fn lease_and_queue(&self, name: &Name) -> [String; 2] {
        [self.keys.lease(name), self.keys.queue(name)]
    }

    fn lease_alone(&self, name: &Name) -> [String; 2] {
        [self.keys.lease(name), self.keys.lease(name)]
    }
}

/// Returns the keys of a server that have this pattern: all, or no more pages of them once there are `enough`.
async fn keys(
    server: &Server,
    pattern: &str,
    enough: usize,
    budget: Budget,
) -> Result<Vec<String>, Failure> {
    let (mut keys, mut cursor) = (Vec::new(), 0);
    loop {
        let mut scan = Cmd::new();
        scan.arg("SCAN").arg(cursor).arg("MATCH").arg(pattern);
        scan.arg("COUNT").arg(PAGE);
        let page = server.ask(scan, None, budget).await?;
        let (next, found) = reply::scanned(&page)?;
        keys.extend(found.into_iter().map(str::to_owned));
        if next == 0 || keys.len() >= enough {
            return Ok(keys);
        }
        cursor = next;
    }
}
