//! What is sent, as SQL that MySQL and MariaDB read alike. Keys, versions and records are written as hexadecimal digits, so
//! no mode of a server reads another text, and each statement is one round trip, also through a proxy.

use std::fmt::Write as _;
use std::time::Duration;

use crate::store::record::Version;

/// Makes the table. Names are compared by their bytes, whatever the collation of the database is.
pub(super) const TABLE: &str = "\
CREATE TABLE IF NOT EXISTS leasehold_record (
    name VARBINARY(512) NOT NULL PRIMARY KEY,
    version BINARY(16) NOT NULL,
    record BLOB NOT NULL,
    written_us BIGINT NOT NULL
) ENGINE = InnoDB
";

/// What each connection is told first. A statement that its client gave up waits for locks for a second at most, and what
/// the server has as its defaults does not matter.
pub(super) const SESSION: [&str; 2] = [
    "SET SESSION autocommit = 1, sql_mode = 'STRICT_ALL_TABLES', lock_wait_timeout = 1, innodb_lock_wait_timeout = 1",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
];

/// Has a node of Galera wait for what the others have committed, before it reads.
pub(super) const CAUSAL: &str = "SET SESSION wsrep_sync_wait = 1";

/// What a server says of itself when a connection is made, and to the doctor.
pub(super) const VARIABLES: &str = "\
SHOW GLOBAL VARIABLES WHERE Variable_name IN (
    'innodb_flush_log_at_trx_commit', 'innodb_read_only', 'log_bin', 'read_only', 'rpl_semi_sync_master_enabled',
    'rpl_semi_sync_source_enabled', 'sync_binlog', 'version', 'wsrep_on'
)";

/// What the doctor asks as well.
pub(super) const STATUS: &str = "SHOW GLOBAL STATUS LIKE 'Slaves_connected'";
pub(super) const SURVEY: &str = "\
SELECT
    (SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'),
    (SELECT COUNT(*) FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE = 'PROCESS'),
    (SELECT ENGINE FROM information_schema.TABLES
     WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'leasehold_record')";

/// The server's time in microseconds since 1970, at the begin of the statement. It knows no time zones, and is not changed
/// by `--sysdate-is-now`.
const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
/// Whether the server accepts writes. Some users write on a server that is read-only, too: on a primary of before, where
/// what they write is lost.
const WRITABLE: &str = "CONCAT(@@global.read_only) IN ('0', 'OFF')";
/// A version, in the letters in which it was written.
const VERSION: &str = "LOWER(HEX(version))";

pub(super) fn time() -> String {
    format!("SELECT {NOW}")
}

/// Reads a record. There is one row, with the time and whether the server accepts writes, also without a record.
pub(super) fn read(key: &str) -> String {
    let name = hex(key.as_bytes());
    format!(
        "SELECT {WRITABLE}, {NOW}, {VERSION}, record, written_us \
         FROM (SELECT 1) AS one LEFT JOIN leasehold_record ON name = {name}"
    )
}

/// Reads the records of a prefix, or those of it that were written no later than `before`.
pub(super) fn list(prefix: &str, before: Option<Duration>) -> String {
    let from = hex(prefix.as_bytes());
    // No name has this byte.
    let to = hex(&[prefix.as_bytes(), &[0xff]].concat());
    let before = before.map_or(i64::MAX.cast_unsigned().into(), |time| time.as_micros());
    format!(
        "SELECT name, {VERSION}, record, written_us FROM leasehold_record \
         WHERE name >= {from} AND name < {to} AND written_us <= {before}"
    )
}

/// Writes a record where there is none.
pub(super) fn insert(key: &str, new: &Version, record: &str) -> String {
    let [name, record] = [key, record].map(|text| hex(text.as_bytes()));
    format!(
        "INSERT INTO leasehold_record (name, version, record, written_us) \
         SELECT {name}, x'{new}', {record}, {NOW} FROM (SELECT 1) AS one WHERE {WRITABLE}"
    )
}

/// Writes a record that has this version.
pub(super) fn update(key: &str, on: &Version, new: &Version, record: &str) -> String {
    let [name, record] = [key, record].map(|text| hex(text.as_bytes()));
    format!(
        "UPDATE leasehold_record SET version = x'{new}', record = {record}, written_us = {NOW} \
         WHERE name = {name} AND version = x'{on}' AND {WRITABLE}"
    )
}

/// Removes a record that has this version.
pub(super) fn delete(key: &str, on: &Version) -> String {
    let name = hex(key.as_bytes());
    format!("DELETE FROM leasehold_record WHERE name = {name} AND version = x'{on}' AND {WRITABLE}")
}

fn hex(bytes: &[u8]) -> String {
    let mut digits = String::from("x'");
    for byte in bytes {
        let _ = write!(digits, "{byte:02x}");
    }
    digits.push('\'');
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_name_or_a_record_is_read_as_sql() {
        let (key, text) = ("a'; -- \u{e9}", "{\"label\":\"\\' OR 1\"}");
        let version = "00".repeat(16);
        for sql in [
            read(key),
            list(key, None),
            insert(key, &version, text),
            update(key, &version, &version, text),
            delete(key, &version),
        ] {
            assert!(sql.contains("x'61273b202d2d20c3a9"), "{sql}");
            assert!(!sql.contains("--") && !sql.contains("OR 1"), "{sql}");
        }
        assert!(list("", None).contains("name >= x'' AND name < x'ff'"));
        let before = list("a", Some(Duration::from_millis(2)));
        assert!(before.ends_with("written_us <= 2000"), "{before}");
    }
}
