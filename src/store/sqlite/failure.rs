//! The failures of the file, and the one place where each becomes an [`Error`].

use std::{fmt, io};

use rusqlite::ErrorCode;
use rusqlite::ffi::SQLITE_IOERR_SHMSIZE;

use super::database::{APPLICATION_ID, SCHEMA_VERSION};
use crate::error::{Error, ErrorKind};
use crate::store::Sent;
use crate::store::backend::Failing;

#[derive(Debug, thiserror::Error)]
pub(in crate::store) enum Failure {
    /// A value of the caller's was refused by a rule that all stores share.
    #[error(transparent)]
    Refused(#[from] Error),
    #[error("the store is closed")]
    Closed,
    #[error("the thread of the store has ended")]
    Ended,
    #[error("another process keeps the file busy")]
    Busy,
    #[error("the file did not answer in time")]
    Late,
    #[error("the disk is full")]
    Full,
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// The file cannot be opened, and never was.
    #[error(transparent)]
    Unopened(rusqlite::Error),
    #[error("cannot {what}")]
    Io {
        what: &'static str,
        source: io::Error,
    },
    #[error("expected a regular file")]
    NotAFile,
    #[error(
        "the file has more than one name, and each would get a write-ahead log of its own names={names}"
    )]
    ManyNames { names: u64 },
    #[error(
        "the file is mounted by itself, and each of its paths would get a write-ahead log of its own; mount the folder \
         that holds it"
    )]
    MountedAlone,
    #[error("the file at this path, or the log beside it, is no longer the one that was opened")]
    Replaced,
    #[error("the file is read-only")]
    ReadOnly,
    #[error(
        "the file belongs to another program application_id={found:#x} expected={APPLICATION_ID:#x}"
    )]
    Foreign { found: i32 },
    #[error("the file was written by a newer leasehold schema={found} expected={SCHEMA_VERSION}")]
    Newer { found: i32 },
    #[error("the file system allows no write-ahead log journal_mode={found}")]
    NoLog { found: String },
    #[error("the file is damaged: {0}")]
    Damaged(&'static str),
    #[error("{0}")]
    Boot(&'static str),
    #[error("neither XDG_STATE_HOME nor HOME names an absolute folder for the leases")]
    NoHome,
    #[error(
        "two kernels share this file, and a lease in one must not be granted by the other writer_boot={writer} our_boot={ours}"
    )]
    Shared { writer: String, ours: String },
}

impl Failure {
    pub(super) fn io(what: &'static str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full,
            _ => Self::Io { what, source },
        }
    }

    /// Returns whether another connection was in the way, so that the same again may succeed.
    pub(super) fn is_busy(&self) -> bool {
        matches!(
            self.code(),
            // The last one ends many attempts to begin to read.
            Some(
                ErrorCode::DatabaseBusy
                    | ErrorCode::DatabaseLocked
                    | ErrorCode::FileLockingProtocolFailed
            )
        )
    }

    /// The same failure of a file that was never open: only then a refusal to open it says that it cannot be.
    pub(super) fn at_first(self) -> Self {
        match self {
            Self::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::CannotOpen) => {
                Self::Unopened(error)
            }
            failure => failure,
        }
    }

    /// Returns whether the disk is full.
    pub(super) fn is_full(&self) -> bool {
        let extended = match self {
            Self::Sqlite(error) => error.sqlite_error().map(|error| error.extended_code),
            _ => None,
        };
        matches!(self, Self::Full)
            || self.code() == Some(ErrorCode::DiskFull)
            || extended == Some(SQLITE_IOERR_SHMSIZE)
    }

    /// The public error of this operation on this file.
    pub(super) fn into_error(self, operation: &str, path: impl fmt::Display) -> Error {
        let kind = self.kind();
        let text = |words: &str| format!("{operation} failed: {words} path={path}");
        match self {
            Self::Refused(error) => error,
            Self::Closed => Error::new(kind, text("the store is closed")),
            Self::Io { what, source } => {
                Error::new(kind, text(&format!("cannot {what}"))).with_source(source)
            }
            Self::Sqlite(source) | Self::Unopened(source) => {
                Error::new(kind, text(explain(&source))).with_source(source)
            }
            other => Error::new(kind, text(&other.to_string())),
        }
    }

    fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Sqlite(error) => error.sqlite_error_code(),
            _ => None,
        }
    }
}

impl Failing for Failure {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused(error) => error.kind(),
            Self::Closed => ErrorKind::Closed,
            Self::Ended => ErrorKind::Unavailable,
            Self::Busy | Self::Late => ErrorKind::TimedOut,
            Self::Io { source, .. } => kind_of_io(source.kind()),
            Self::Sqlite(_) if self.is_busy() => ErrorKind::TimedOut,
            // An operator ends it, and what waits goes on then.
            _ if self.is_full() => ErrorKind::Unavailable,
            Self::Sqlite(_) => match self.code() {
                Some(ErrorCode::PermissionDenied) => ErrorKind::Denied,
                // The process may have as many files open as it may.
                Some(ErrorCode::CannotOpen) => ErrorKind::Unavailable,
                Some(ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory) => ErrorKind::Unavailable,
                _ => ErrorKind::Misconfigured,
            },
            _ => ErrorKind::Misconfigured,
        }
    }

    /// A transaction that was refused, or that never got the writer's place, changed nothing; what its thread did past
    /// the limit is not known.
    fn sent(&self) -> Sent {
        match self {
            Self::Closed => Sent::Never,
            Self::Refused(_) | Self::Busy | Self::Replaced | Self::Shared { .. } => Sent::Answered,
            failure if failure.is_busy() || failure.is_full() => Sent::Answered,
            _ => Sent::Perhaps,
        }
    }
}

fn kind_of_io(kind: io::ErrorKind) -> ErrorKind {
    match kind {
        io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        io::ErrorKind::NotFound
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::Unsupported => ErrorKind::Misconfigured,
        _ => ErrorKind::Unavailable,
    }
}

fn explain(error: &rusqlite::Error) -> &'static str {
    let extended = error.sqlite_error().map(|error| error.extended_code);
    if extended == Some(SQLITE_IOERR_SHMSIZE) {
        return "the disk is full: the log's index beside the file cannot grow";
    }
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::FileLockingProtocolFailed,
        ) => "another process keeps the file busy",
        Some(ErrorCode::DiskFull) => "the disk is full",
        Some(ErrorCode::NotADatabase) => {
            "expected a leasehold file, but this is not an SQLite file"
        }
        Some(ErrorCode::DatabaseCorrupt) => "the file is damaged",
        Some(ErrorCode::ReadOnly) => "the file or its folder is read-only",
        Some(ErrorCode::CannotOpen) => "the file, or the log beside it, cannot be opened",
        Some(ErrorCode::SystemIoFailure) => "reading or writing the file failed",
        _ => "SQLite refused",
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi::{SQLITE_CANTOPEN, SQLITE_FULL, SQLITE_PROTOCOL};

    use super::*;

    fn refused(code: i32) -> Failure {
        let error = rusqlite::ffi::Error::new(code);
        Failure::Sqlite(rusqlite::Error::SqliteFailure(error, None))
    }

    #[test]
    fn a_crowd_of_processes_or_of_open_files_is_waited_out() {
        assert_eq!(refused(SQLITE_PROTOCOL).kind(), ErrorKind::TimedOut);
        assert!(refused(SQLITE_PROTOCOL).is_busy(), "so it is tried again");
        assert_eq!(refused(SQLITE_CANTOPEN).kind(), ErrorKind::Unavailable);
        let first = refused(SQLITE_CANTOPEN).at_first();
        assert_eq!(first.kind(), ErrorKind::Misconfigured);
        let error = first.into_error("open", "leases").to_string();
        assert!(error.contains("cannot be opened"), "{error}");
    }

    #[test]
    fn a_full_disk_is_said_whichever_code_tells_of_it() {
        for code in [SQLITE_IOERR_SHMSIZE, SQLITE_FULL] {
            let error = refused(code).into_error("acquire", "leases");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.to_string().contains("the disk is full"), "{error}");
        }
    }

    #[test]
    fn a_claim_on_a_file_that_was_replaced_is_not_in_doubt() {
        assert_eq!(Failure::Replaced.sent(), Sent::Answered);
    }
}
