//! Maps codes of SQLite to kinds of errors, for the store and the fence.

use rusqlite::ffi::SQLITE_IOERR_SHMSIZE;
use rusqlite::{Error, ErrorCode};

use crate::error::ErrorKind;

/// Returns what the caller should do about an error, and what happened.
pub(crate) fn meaning(error: &Error) -> (ErrorKind, &'static str) {
    use ErrorKind::{Denied, Misconfigured, TimedOut, Unavailable};
    if extended_code(error) == Some(SQLITE_IOERR_SHMSIZE) {
        let why = "the disk is full: the log's index beside the file cannot grow";
        return (Unavailable, why);
    }
    if is_busy(error) {
        return (TimedOut, "another process keeps the file busy");
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => (TimedOut, "the statement was interrupted"),
        Some(ErrorCode::DiskFull) => (Unavailable, "the disk is full"),
        Some(ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory) => {
            (Unavailable, "reading or writing the file failed")
        }
        // The process may have reached its limit of open files.
        Some(ErrorCode::CannotOpen) => (
            Unavailable,
            "the file, or the log beside it, cannot be opened",
        ),
        Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
            (Denied, "a permission is missing")
        }
        Some(ErrorCode::NotADatabase) => (Misconfigured, "the file is not an SQLite file"),
        Some(ErrorCode::DatabaseCorrupt) => (Misconfigured, "the file is damaged"),
        Some(ErrorCode::ReadOnly) => (Misconfigured, "the file or its folder is read-only"),
        _ => (Misconfigured, "SQLite refused"),
    }
}

/// Returns whether another connection was in the way, so that a retry may succeed.
pub(crate) fn is_busy(error: &Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        // The last one ends many attempts to begin to read.
        Some(
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::FileLockingProtocolFailed
        )
    )
}

/// Returns whether the disk is full. An operator has to make room.
#[cfg(feature = "sqlite")]
pub(crate) fn is_full(error: &Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
        || extended_code(error) == Some(SQLITE_IOERR_SHMSIZE)
}

pub(crate) fn extended_code(error: &Error) -> Option<i32> {
    error.sqlite_error().map(|error| error.extended_code)
}
