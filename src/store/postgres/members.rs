//! Whether each server of the URL takes part in grants.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::Postgres;
use super::address::Address;
use super::connection::connections::Connections;
use super::failure::Failure;
use crate::error::ErrorKind;
use crate::store::kit::backend::Failing;
use crate::store::kit::budget::Budget;
use crate::store::{Member, MemberState};

/// Asks each server of the URL. One that is alone is asked over the connections of the store, so that a member is up
/// exactly if requests are answered.
pub(super) async fn ask_each(store: &Postgres, budget: Budget) -> Result<Vec<Member>, Failure> {
    if store.address.hosts.len() == 1 {
        return Ok(vec![
            ask(store, &store.address, &store.connections, budget).await?,
        ]);
    }
    let servers = store.address.each_server().into_iter();
    let reads = servers.map(async |server| {
        let server = Arc::new(server);
        let connect_timeout = store.connect_timeout.min(budget.left());
        match Connections::connected(&server, connect_timeout).await {
            Ok(connections) => ask(store, &server, &connections, budget).await,
            Err(failure) => unreached(&server, failure),
        }
    });
    join_all(reads).await.into_iter().collect()
}

/// Asks a server whether it takes part.
async fn ask(
    store: &Postgres,
    address: &Address,
    connections: &Connections,
    budget: Budget,
) -> Result<Member, Failure> {
    let facts = match store.survey(connections, budget).await {
        Ok(facts) => facts,
        Err(failure) => return unreached(address, failure),
    };
    let state = match facts.quiet() {
        _ if facts.flag("is_standby") => MemberState::Standby,
        Duration::ZERO => MemberState::Up,
        remaining => MemberState::Away { remaining },
    };
    // Distributors append theirs in brackets.
    let version = facts.word("version").split(' ').next().unwrap_or_default();
    let version = Some(format!("Postgres {version}"));
    Ok(Member::new(address.to_string(), state).with_version(version))
}

/// A server that does not answer is down; every other failure is one of this request.
fn unreached(address: &Address, failure: Failure) -> Result<Member, Failure> {
    match failure.kind() {
        ErrorKind::Unavailable | ErrorKind::TimedOut => {
            Ok(Member::new(address.to_string(), MemberState::Down))
        }
        _ => Err(failure),
    }
}
