//! Asks a server about its set-up.

use std::time::Duration;

use serde_json::{Map, Value};

use super::super::connection::connections::Connections;
use super::super::failure::Failure;
use super::super::{Postgres, reply};
use crate::clock::wall_clock_us;
use crate::store::kit::budget::Budget;

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
