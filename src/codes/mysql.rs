//! The meanings of the error numbers of MySQL and MariaDB servers and of proxies before them: the one table for the store
//! and for the fence.

use crate::error::ErrorKind::{self, Denied, Misconfigured, TimedOut, Unavailable};

/// Another transaction keeps what is wanted locked.
pub(crate) const LOCKED: u16 = 1205;
/// Another transaction or another node was first. The statement was taken back, so it can be sent again.
pub(crate) const TAKEN_BACK: &[u16] = &[1020, 1213, 3101];
pub(crate) const READ_ONLY: &[u16] = &[1036, 1290, 1792, 1836];
pub(crate) const NO_ROOM: &[u16] = &[1021, 1040, 1041, 1114, 1135, 1203, 1226];

/// What the numbers mean, and whether they prove that nothing was done. What an outage is, a server that restarts, is full
/// or takes no writes, is unavailable.
const MEANINGS: &[(&[u16], ErrorKind, bool)] = &[
    (&[1044, 1045, 1130, 1142, 1143, 1227, 1698], Denied, true),
    // Passwords that have expired, and accounts that are locked.
    (&[1820, 1862, 3118, 4151], Denied, true),
    (&[1046, 1049, 1146, 1665, 3159], Misconfigured, true),
    // Columns that are missing, too many or too short.
    (
        &[1054, 1136, 1264, 1347, 1364, 1366, 1406],
        Misconfigured,
        true,
    ),
    (&[LOCKED], TimedOut, true),
    (&[1969, 3024], TimedOut, false),
    (TAKEN_BACK, Unavailable, true),
    (READ_ONLY, Unavailable, true),
    (NO_ROOM, Unavailable, true),
    // A node of Galera without the others, and a client that is kept out.
    (&[1047, 1129], Unavailable, true),
    // It is going down, or has ended the statement or the connection.
    (
        &[1053, 1077, 1079, 1080, 1152, 1317, 1927],
        Unavailable,
        false,
    ),
    (&[3032, 3100, 3169, 4031], Unavailable, false),
];

/// Returns the kind of error, and whether it proves that nothing was done.
pub(crate) fn meaning(code: u16, state: &str) -> (ErrorKind, bool) {
    let mut known = MEANINGS.iter();
    if let Some((_, kind, is_undone)) = known.find(|(codes, ..)| codes.contains(&code)) {
        return (*kind, *is_undone);
    }
    match state.get(..2) {
        Some("28") => (Denied, true),
        Some("40") => (Unavailable, true),
        Some("42") => (Misconfigured, true),
        Some("08") => (Unavailable, false),
        // A proxy says so what its own client library told it, and that it reached no server.
        _ if matches!(code, 2_000..2_100 | 9_000..) => (Unavailable, false),
        _ => (Misconfigured, false),
    }
}
