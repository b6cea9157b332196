//! The schema, a name space of its own for leases, and the statement that calls one of its functions.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::store::TableSettings;

/// The SQL of the tables and functions, with placeholders for the schema's name and the longest ttl.
const SQL: &str = include_str!("schema_1.sql");
/// The longest name that Postgres does not truncate.
const MAX_BYTES: usize = 63;

/// The name of a schema, unquoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schema(Arc<str>);

impl Schema {
    pub(crate) const DEFAULT: &str = "leasehold";

    /// # Errors
    /// `Invalid` for a name that Postgres would change.
    pub(crate) fn new(name: &str) -> Result<Self, Error> {
        // The last three would end the quotes around a function, or be taken for a placeholder.
        let is_odd = |c: char| c.is_control() || "${}".contains(c);
        let is_kept = (1..=MAX_BYTES).contains(&name.len())
            && name.trim() == name
            && !name.chars().any(is_odd);
        if is_kept && !name.starts_with("pg_") {
            return Ok(Self(name.into()));
        }
        Err(Error::invalid(format!(
            "schema refused: expected 1 to {MAX_BYTES} bytes without control characters, white space at an end and any \
             of ${{}}, not beginning with pg_ bytes={}",
            name.len()
        )))
    }

    /// Returns the name as a quoted identifier.
    pub(crate) fn quoted(&self) -> String {
        format!("\"{}\"", self.0.replace('"', "\"\""))
    }

    /// Returns the SQL that makes the tables and functions. Without a longest ttl, an earlier setting stays.
    pub(crate) fn sql(&self, settings: TableSettings, default: Duration) -> String {
        let max_ttl = settings.max_ttl;
        let text = format!("'{}'", self.0.replace('\'', "''"));
        let millis = |ttl: Duration| ttl.as_millis().to_string();
        let again = max_ttl.map_or_else(|| "lineage.max_ttl_ms".into(), millis);
        SQL.replace("{schema}", &self.quoted())
            .replace("{schema_text}", &text)
            .replace("{max_ttl_ms}", &millis(max_ttl.unwrap_or(default)))
            .replace("{max_ttl_ms_again}", &again)
    }

    /// Returns the statement that calls a function with this many arguments.
    pub(crate) fn call(&self, function: &str, arguments: usize) -> String {
        let parameters: Vec<_> = (1..=arguments).map(|index| format!("${index}")).collect();
        let schema = self.quoted();
        format!("SELECT {schema}.{function}({})", parameters.join(", "))
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_postgres_would_change_is_refused() {
        for bad in [
            "",
            "pg_catalog",
            "a\0b",
            "a\nb",
            "a ",
            "a$$b",
            "{schema}",
            &"é".repeat(32),
        ] {
            assert!(Schema::new(bad).is_err(), "{bad:?}");
        }
        assert!(Schema::new(&"é".repeat(31)).is_ok());
    }

    #[test]
    fn an_odd_name_is_quoted_everywhere() {
        let schema = Schema::new("o'd\"d").expect("a schema");
        let sql = schema.sql(TableSettings::default(), Duration::from_secs(1));
        assert!(sql.contains("CREATE SCHEMA \"o'd\"\"d\""), "quoted");
        assert!(sql.contains("nspname = 'o''d\"d'"), "as text");
        assert!(
            !sql.contains("{schema") && !sql.contains("{max"),
            "filled in"
        );
        let inspect = schema.call("inspect_1", 2);
        assert_eq!(inspect, "SELECT \"o'd\"\"d\".inspect_1($1, $2)");
    }

    #[test]
    fn the_longest_ttl_changes_only_when_it_is_named() {
        let schema = Schema::new("x").expect("a schema");
        let (named, default) = (Duration::from_secs(7), Duration::from_secs(600));
        let mut settings = TableSettings::default();
        let sql = schema.sql(settings, default);
        assert!(sql.contains("VALUES (1, 600000)"));
        assert!(sql.contains("SET max_ttl_ms = lineage.max_ttl_ms"));
        settings.max_ttl = Some(named);
        let sql = schema.sql(settings, default);
        assert!(sql.contains("VALUES (1, 7000)") && sql.contains("SET max_ttl_ms = 7000"));
    }
}
