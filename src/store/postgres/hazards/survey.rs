//! Asks the servers about themselves: their set-up, and whether each takes part in grants.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Map, Value};

use super::super::address::Address;
use super::super::connection::connections::Connections;
use super::super::failure::Failure;
use super::super::{Postgres, reply};
use crate::clock::wall_clock_us;
use crate::error::ErrorKind;
use crate::store::backend::Failing;
use crate::store::budget::Budget;
use crate::store::{Member, MemberState};

/// The set-up as `survey_1` found it. A value that the role may not read is null.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) told: Map<String, Value>,
    /// The time here when they were read.
    pub(crate) wall_clock_us: u64,
}

impl Postgres {
    /// Asks a server about itself, and remembers the longest ttl.
    pub(crate) async fn survey(
        &self,
        connections: &Connections,
        budget: Budget,
    ) -> Result<Findings, Failure> {
        let rows = connections.call("survey_1", &[], budget).await?;
        let facts = Findings {
            told: reply::surveyed(&rows)?,
            wall_clock_us: wall_clock_us(),
        };
        if let Ok(max_ttl_ms @ 1..) = u64::try_from(facts.number("max_ttl_ms")) {
            self.max_ttl.learn(Duration::from_millis(max_ttl_ms));
        }
        Ok(facts)
    }

    /// Looks at each server of the URL. One that is alone is asked over the connections of the store, so that a member
    /// is up exactly if requests are answered.
    pub(crate) async fn look_at_servers(&self, limit: Duration) -> Result<Vec<Member>, Failure> {
        let budget = Budget::new(limit);
        if self.address.hosts.len() == 1 {
            return Ok(vec![
                self.member(&self.address, &self.connections, budget)
                    .await?,
            ]);
        }
        let servers = self.address.each_server().into_iter();
        let looks = servers.map(async |server| {
            let server = Arc::new(server);
            let connect_timeout = self.connect_timeout.min(limit);
            match Connections::connected(&server, connect_timeout).await {
                Ok(connections) => self.member(&server, &connections, budget).await,
                Err(failure) => unreached(&server, failure),
            }
        });
        join_all(looks).await.into_iter().collect()
    }

    /// Asks a server whether it takes part.
    async fn member(
        &self,
        address: &Address,
        connections: &Connections,
        budget: Budget,
    ) -> Result<Member, Failure> {
        let facts = match self.survey(connections, budget).await {
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
}

/// A server that does not answer is down; every other failure is one of the look.
fn unreached(address: &Address, failure: Failure) -> Result<Member, Failure> {
    match failure.kind() {
        ErrorKind::Unavailable | ErrorKind::TimedOut => {
            Ok(Member::new(address.to_string(), MemberState::Down))
        }
        _ => Err(failure),
    }
}

impl Findings {
    /// Returns a text, and an empty one if the role may not read it.
    pub(crate) fn word(&self, what: &str) -> &str {
        let found = self.told.get(what).and_then(Value::as_str);
        found.unwrap_or_default()
    }

    pub(crate) fn flag(&self, what: &str) -> bool {
        self.told.get(what) == Some(&Value::Bool(true))
    }

    pub(crate) fn number(&self, what: &str) -> i64 {
        self.known(what).unwrap_or_default()
    }

    pub(crate) fn known(&self, what: &str) -> Option<i64> {
        self.told.get(what).and_then(Value::as_i64)
    }

    pub(crate) fn is_synchronous(&self) -> bool {
        !self.word("synchronous_standbys").is_empty()
    }

    /// Returns how long nothing is granted.
    pub(crate) fn quiet(&self) -> Duration {
        Duration::from_micros(u64::try_from(self.number("quiet_us")).unwrap_or_default())
    }
}
