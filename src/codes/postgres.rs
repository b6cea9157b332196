//! Maps SQLSTATE codes of Postgres servers and poolers to kinds of errors, for the store and the fence.

use crate::error::ErrorKind;

/// The kind of error for each code, or prefix of codes; the longest match counts. A code that is not here is
/// `Misconfigured`. `Unavailable` are the answers of a server or a pooler that restarts, fails over, is full, or was
/// asked too early: the same request succeeds later, without a change to the set-up.
const KINDS: &[(&str, ErrorKind)] = &[
    // Broken connections. A pooler uses 08P01 for nearly everything.
    ("08", ErrorKind::Unavailable),
    // A standby, or a former primary.
    ("25006", ErrorKind::Unavailable),
    // A transaction that stood still for too long, or took too long.
    ("25P03", ErrorKind::Unavailable),
    ("25P04", ErrorKind::Unavailable),
    ("28", ErrorKind::Denied),
    // Conflicts with other transactions, which were retried up to the limit.
    ("40", ErrorKind::Unavailable),
    ("42501", ErrorKind::Denied),
    // No room on the disk, in memory, or for connections.
    ("53", ErrorKind::Unavailable),
    // A database that an administrator keeps clients from.
    ("55000", ErrorKind::Unavailable),
    ("55P03", ErrorKind::TimedOut),
    ("57014", ErrorKind::TimedOut),
    // Shut down, crashed, starting up, dropped, closed as idle.
    ("57P", ErrorKind::Unavailable),
    // Errors of the machine.
    ("58000", ErrorKind::Unavailable),
    ("58030", ErrorKind::Unavailable),
];
/// Parts of a text with 08P01 by which a pooler refuses a client: its password, its user, its address.
const REFUSING: &[&str] = &["authentication failed", "no such user", "not allowed"];
/// The beginning of its message about its own login at the server.
const OWN_LOGIN: &str = "server login";
/// Parts of a text with 08P01 that retrying does not change: another protocol, or a wrong name.
const LASTING: &[&str] = &["protocol", "no such", "does not exist", "unsupported"];

/// Returns the kind of error for this code and text of a server or a pooler.
pub(crate) fn kind(code: &str, text: &str) -> ErrorKind {
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if code == "08P01" && says(REFUSING) && !text.starts_with(OWN_LOGIN) {
        return ErrorKind::Denied;
    }
    if code == "08P01" && says(LASTING) {
        return ErrorKind::Misconfigured;
    }
    if is_of_old_plan(code, text) {
        return ErrorKind::Unavailable;
    }
    let fitting = KINDS.iter().filter(|(known, _)| code.starts_with(known));
    let longest = fitting.max_by_key(|(known, _)| known.len());
    longest.map_or(ErrorKind::Misconfigured, |(_, kind)| *kind)
}

/// Returns whether the plan was made before a column was added. The next plan is up to date.
pub(crate) fn is_of_old_plan(code: &str, text: &str) -> bool {
    code == "0A000" && text.contains("cached plan")
}
