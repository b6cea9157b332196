//! Reads leases without changing them: by their names, or all with a prefix.

use std::collections::BTreeSet;

use deadpool_redis::redis::Cmd;
use futures_util::{StreamExt as _, stream};

use super::connection::server::Server;
use super::failure::Failure;
use super::fleet::OF_MANY;
use super::protocol::scripts::SCRIPTS;
use super::{Redis, reply};
use crate::name::Name;
use crate::store::Held;
use crate::store::kit::budget::Budget;
use crate::store::kit::connection::is_transient;

/// Number of leases of a list that are read at a time: some 100 calls keep the server busy for about a millisecond.
const BATCH: usize = 128;
/// Number of keys that the server scans for one page: about 0.3 ms of its time.
const PAGE: usize = 1_000;

impl Redis {
    /// Reads the whole database, page by page, because Redis has no other way.
    pub(super) async fn read_all(
        &self,
        prefix: &str,
        budget: Budget,
    ) -> Result<Vec<Held>, Failure> {
        let names = self.names(prefix, budget).await?;
        let read = |name| async move { self.read_one(&name, budget).await };
        let mut reads = stream::iter(names).map(read).buffered(BATCH);
        let mut list = Vec::new();
        while let Some(held) = reads.next().await {
            match held {
                Ok(held) => list.extend(held),
                // A key that another program replaced in the meantime is not a lease. A server that refuses for the
                // moment, because it loads its data, may have one.
                Err(failure) if failure.is_refusal() && !is_transient(&failure) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(list)
    }

    /// Returns the names with this prefix that have a lease, in order.
    pub(crate) async fn names(&self, prefix: &str, budget: Budget) -> Result<Vec<Name>, Failure> {
        let pattern = self.keys.pattern(prefix);
        // SCAN may return a key twice.
        let mut names = BTreeSet::new();
        let servers = self.fleet.servers(budget).await?;
        // A slot that moved in the meantime may have come to a node that had been scanned before, so all but the last
        // are scanned again.
        let again = &servers[..servers.len().saturating_sub(1)];
        for server in servers.iter().chain(again) {
            let keys = keys(server, &pattern, usize::MAX, budget).await?;
            names.extend(keys.iter().filter_map(|key| self.keys.name_of_lease(key)));
        }
        Ok(names.into_iter().collect())
    }

    /// Returns a key that belongs to a name or a slot, if a server has any.
    pub(crate) async fn any_key(&self, budget: Budget) -> Result<Option<String>, Failure> {
        let pattern = self.keys.of_any_name();
        for server in self.fleet.servers(budget).await? {
            let found = keys(&server, &pattern, 1, budget).await?;
            if let Some(key) = found.into_iter().next() {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    /// Reads a name. While its slot is moved, the servers refuse calls with a key that exists and one that does not:
    /// then it is read again without its queue.
    pub(super) async fn read_one(
        &self,
        name: &Name,
        budget: Budget,
    ) -> Result<Option<Held>, Failure> {
        let (lease, queue) = (self.keys.lease(name), self.keys.queue(name));
        let mut seen = Ok(None);
        for keys in [[&lease, &queue], [&lease, &lease]] {
            let call = SCRIPTS.inspect.call(keys);
            let reply = self.fleet.run(name, call, None, OF_MANY, budget).await;
            seen = reply.and_then(|reply| reply::inspected(&reply, name));
            if !matches!(&seen, Err(failure) if failure.redirect().is_some()) {
                break;
            }
        }
        seen
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
