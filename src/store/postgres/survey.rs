//! What the servers are asked about themselves: their set-up, and whether each takes part in grants.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::address::Address;
use super::failure::Failure;
use super::hazards::judge;
use super::lane::Query;
use super::lanes::Lanes;
use super::{Postgres, REPLACE_EVERY};
use crate::clock::{Boottime, Clock, Instant, wall_clock_us};
use crate::error::ErrorKind;
use crate::store::{Hazard, Member, MemberState};

/// Everything that is checked, in one row. A value that the role may not read is NULL, and is reported if it matters.
const LOOK: &str = "
SELECT
    pg_is_in_recovery() AS is_standby,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('fsync') AS fsync,
    current_setting('full_page_writes') AS full_page_writes,
    current_setting('server_encoding') AS encoding,
    current_setting('default_transaction_isolation') AS isolation,
    current_setting('autovacuum') AS autovacuum,
    current_setting('synchronous_standby_names') AS synchronous_standbys,
    current_setting('max_connections')::bigint AS max_connections,
    (SELECT count(*) FROM pg_stat_activity a WHERE a.backend_type = 'client backend') AS connections,
    (SELECT count(*) FROM pg_stat_replication r WHERE r.state = 'streaming') AS standbys,
    (SELECT extract(epoch FROM max(clock_timestamp() - a.xact_start))::bigint
        FROM pg_stat_activity a
        WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid()) AS oldest_snapshot_s,
    (SELECT extract(epoch FROM max(clock_timestamp() - p.prepared))::bigint FROM pg_prepared_xacts p) AS oldest_prepared_s,
    (SELECT count(*) FROM pg_replication_slots s WHERE NOT s.active AND (s.xmin IS NOT NULL OR s.catalog_xmin IS NOT NULL))
        AS idle_slots,
    (100 * pg_notification_queue_usage())::bigint AS notices_percent,
    (SELECT (extract(epoch FROM current_setting('idle_session_timeout', true)::interval))::bigint) AS idle_session_s,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS clock_us,
    (SELECT c.relpersistence = 'u' FROM pg_class c WHERE c.oid = to_regclass($1)) AS is_unlogged,
    (SELECT c.relpersistence = 'u' FROM pg_class c WHERE c.oid = to_regclass($2)) AS tells_crash,
    (SELECT pg_relation_size(c.oid) FROM pg_class c WHERE c.oid = to_regclass($1)) AS bytes,
    (SELECT t.n_live_tup FROM pg_stat_user_tables t WHERE t.relid = to_regclass($1)) AS live,
    (SELECT t.n_dead_tup FROM pg_stat_user_tables t WHERE t.relid = to_regclass($1)) AS dead
";
/// The set-up as it was found. A value that the role may not read is left out.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) is_standby: bool,
    pub(super) settings: HashMap<&'static str, String>,
    pub(super) numbers: HashMap<&'static str, i64>,
    pub(super) is_unlogged: bool,
    /// Whether a crash that empties the tables is told by the table that is made for it.
    pub(super) tells_crash: bool,
    pub(super) tells_origin: bool,
}

/// The values that are read as text.
const SETTINGS: &[&str] = &[
    "synchronous_commit",
    "fsync",
    "full_page_writes",
    "encoding",
    "isolation",
    "autovacuum",
    "synchronous_standbys",
];
/// The values that are read as numbers.
const NUMBERS: &[&str] = &[
    "max_connections",
    "connections",
    "standbys",
    "oldest_snapshot_s",
    "oldest_prepared_s",
    "idle_slots",
    "notices_percent",
    "idle_session_s",
    "clock_us",
    "bytes",
    "live",
    "dead",
];

impl Postgres {
    pub(super) async fn look_for_hazards(&self, limit: Duration) -> Result<Vec<Hazard>, Failure> {
        let until = Boottime.now().after(limit);
        let schema = self.address.schema.quoted();
        let lineage = format!(
            "SELECT g.origin IS NOT NULL AS tells, g.max_ttl_ms, {schema}.left_1(g.quiet_until) AS left FROM {schema}.lineage g"
        );
        let lineage = self.call(&lineage, &[], until).await?;
        lineage
            .first()
            .into_iter()
            .for_each(|row| self.learn_max_ttl(row));
        let lease = format!("{schema}.lease");
        let witness = format!("{schema}.witness");
        let tables: &[(&(dyn ToSql + Sync), Type)] =
            &[(&lease, Type::TEXT), (&witness, Type::TEXT)];
        let rows = self.call(LOOK, tables, until).await?;
        let row = rows.first().ok_or_else(|| Failure::Odd("rows=0".into()))?;
        let mut facts = Findings::read(row);
        let left = lineage
            .first()
            .map(|row| row.try_get::<_, Option<i64>>("left"));
        if let Some(Ok(Some(left))) = left {
            facts.numbers.insert("quiet_us", left);
        }
        facts.tells_origin = lineage
            .first()
            .is_some_and(|row| row.try_get("tells").unwrap_or(false));
        Ok(judge(&facts, wall_clock_us()))
    }
}

impl Postgres {
    /// Looks at each server of the URL. One that is alone is asked over the connections of the store, so that a member
    /// is up exactly if requests are answered.
    pub(super) async fn look_at_members(&self, limit: Duration) -> Result<Vec<Member>, Failure> {
        let until = Boottime.now().after(limit);
        if !self.address.has_several_hosts() {
            return Ok(vec![self.member(&self.address, &self.lanes, until).await?]);
        }
        let servers = self.address.each_server().into_iter();
        let looks = servers.map(async |server| {
            let server = Arc::new(server);
            let connect_timeout = self.connect_timeout.min(limit);
            match Lanes::connected(&server, connect_timeout, None).await {
                Ok(lanes) => self.member(&server, &lanes, until).await,
                Err(failure) => unreached(&server, failure),
            }
        });
        join_all(looks).await.into_iter().collect()
    }

    /// Asks a server whether it takes part.
    async fn member(
        &self,
        address: &Address,
        lanes: &Lanes,
        until: Instant,
    ) -> Result<Member, Failure> {
        let schema = address.schema.quoted();
        let look = format!(
            "SELECT pg_is_in_recovery() AS is_standby, {schema}.left_1(g.quiet_until) AS left,
            current_setting('server_version') AS version, g.max_ttl_ms
        FROM {schema}.lineage g"
        );
        let call = Query {
            statement: &look,
            arguments: &[],
        };
        let rows = match lanes.request(call, until, REPLACE_EVERY).await {
            Ok(rows) => rows,
            Err(failure) => return unreached(address, failure),
        };
        let row = rows.first().ok_or_else(|| Failure::Odd("rows=0".into()))?;
        self.learn_max_ttl(row);
        let left = row.try_get::<_, Option<i64>>("left").ok().flatten();
        let left = left.and_then(|left| u64::try_from(left).ok());
        let state = if row.try_get("is_standby").unwrap_or(false) {
            MemberState::Standby
        } else {
            match left.filter(|left| *left > 0) {
                Some(left) => MemberState::Away {
                    remaining: Duration::from_micros(left),
                },
                None => MemberState::Up,
            }
        };
        let version = row.try_get::<_, String>("version").ok();
        let version = version.map(|version| {
            // Distributors append theirs in brackets.
            let number = version.split(' ').next().unwrap_or_default();
            format!("Postgres {number}")
        });
        Ok(Member::new(address.to_string(), state).with_version(version))
    }

    /// Remembers the longest ttl in a row that was read of `lineage`.
    fn learn_max_ttl(&self, row: &Row) {
        let max_ttl_ms = row.try_get::<_, i64>("max_ttl_ms").ok();
        if let Some(max_ttl_ms) = max_ttl_ms.and_then(|ms| u64::try_from(ms).ok()) {
            self.max_ttl.learn(Duration::from_millis(max_ttl_ms));
        }
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
    fn read(row: &Row) -> Self {
        let flag = |column| row.try_get::<_, Option<bool>>(column).ok().flatten();
        let text = |column: &&'static str| {
            let value = row.try_get::<_, Option<String>>(*column).ok().flatten();
            value.map(|value| (*column, value))
        };
        let number = |column: &&'static str| {
            let value = row.try_get::<_, Option<i64>>(*column).ok().flatten();
            value.map(|value| (*column, value))
        };
        Self {
            is_standby: flag("is_standby").unwrap_or(false),
            settings: SETTINGS.iter().filter_map(text).collect(),
            numbers: NUMBERS.iter().filter_map(number).collect(),
            is_unlogged: flag("is_unlogged").unwrap_or(false),
            tells_crash: flag("tells_crash").unwrap_or(false),
            tells_origin: false,
        }
    }

    pub(super) fn is(&self, setting: &str, values: &[&str]) -> bool {
        let found = self.settings.get(setting);
        found.is_some_and(|found| values.contains(&found.as_str()))
    }

    pub(super) fn number(&self, what: &str) -> i64 {
        self.numbers.get(what).copied().unwrap_or_default()
    }
}
