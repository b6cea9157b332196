//! The failures of the file, and how each becomes an [`Error`].

use std::{fmt, io};

use rusqlite::ErrorCode;

use crate::codes;
use crate::error::{Error, ErrorKind};
use crate::store::Sent;
use crate::store::kit::backend::Failing;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
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
    /// The transaction was undone, because only a synced commit may carry it out: see
    /// [`write_though_full`](super::database::Database::write_though_full), which then makes one.
    #[error("a token that no power cut takes back needs a commit that is synced")]
    Unsynced,
    #[error("{}", codes::sqlite::meaning(.0).1)]
    Sqlite(#[from] rusqlite::Error),
    #[error("cannot {what}")]
    Io {
        what: &'static str,
        source: io::Error,
    },
    #[error("the file at this path, or the log beside it, is no longer the one that was opened")]
    Replaced,
    #[error(
        "two kernels share this file, and a lease in one must not be granted by the other writer_boot={writer} our_boot={ours}"
    )]
    Shared { writer: String, ours: String },
    /// The file, or its folder, cannot be used: why.
    #[error("{0}")]
    Unfit(String),
}

impl Failure {
    pub(super) fn io(what: &'static str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full,
            _ => Self::Io { what, source },
        }
    }

    pub(super) fn unfit(why: impl Into<String>) -> Self {
        Self::Unfit(why.into())
    }

    pub(super) fn damaged(what: &str) -> Self {
        Self::Unfit(format!("the file is damaged: {what}"))
    }

    /// The same failure of a file that was never open: only then a refusal to open it says that it cannot be.
    pub(super) fn at_first(self) -> Self {
        match self {
            Self::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::CannotOpen) => {
                let why = codes::sqlite::meaning(&error).1;
                Self::Unfit(format!("{why}: {error}"))
            }
            failure => failure,
        }
    }

    /// Returns whether another connection was in the way, so that the same again may succeed.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Sqlite(error) if codes::sqlite::is_busy(error))
    }

    /// Returns whether the disk is full.
    pub(super) fn is_full(&self) -> bool {
        match self {
            Self::Full => true,
            Self::Sqlite(error) => codes::sqlite::is_full(error),
            _ => false,
        }
    }
}

impl Failing for Failure {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused(error) => error.kind(),
            Self::Closed => ErrorKind::Closed,
            // An operator makes room, and waiting requests continue.
            Self::Ended | Self::Full | Self::Unsynced => ErrorKind::Unavailable,
            Self::Busy | Self::Late => ErrorKind::TimedOut,
            Self::Sqlite(error) => codes::sqlite::meaning(error).0,
            Self::Io { source, .. } => kind_of_io(source.kind()),
            Self::Replaced | Self::Shared { .. } | Self::Unfit(_) => ErrorKind::Misconfigured,
        }
    }

    /// A transaction that was refused, or that never became the writer, changed nothing; what its thread did past
    /// the limit is not known.
    fn sent(&self) -> Sent {
        match self {
            Self::Closed => Sent::Never,
            Self::Refused(_) | Self::Busy | Self::Replaced | Self::Shared { .. } => Sent::Answered,
            failure if failure.is_busy() || failure.is_full() => Sent::Answered,
            _ => Sent::Perhaps,
        }
    }

    fn during(self, operation: &str, facts: impl fmt::Display) -> Error {
        let error = Error::new(self.kind(), format!("{operation} failed: {self} {facts}"));
        match self {
            Self::Refused(error) => error,
            Self::Io { source, .. } => error.with_source(source),
            Self::Sqlite(source) => error.with_source(source),
            _ => error,
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

#[cfg(test)]
mod tests {
    use rusqlite::ffi::{SQLITE_CANTOPEN, SQLITE_FULL, SQLITE_IOERR_SHMSIZE, SQLITE_PROTOCOL};

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
        let error = first.during("open", "path=leases").to_string();
        assert!(error.contains("cannot be opened"), "{error}");
    }

    #[test]
    fn a_full_disk_is_said_whichever_code_tells_of_it() {
        for code in [SQLITE_IOERR_SHMSIZE, SQLITE_FULL] {
            let error = refused(code).during("acquire", "store=leases");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.to_string().contains("the disk is full"), "{error}");
        }
    }

    #[test]
    fn a_claim_on_a_file_that_was_replaced_is_not_in_doubt() {
        assert_eq!(Failure::Replaced.sent(), Sent::Answered);
    }
}
