//! Why a request failed, and what a caller is told to do about it: the one place where the two are matched.

use std::fmt;

use crate::error::{Error, ErrorKind};
use crate::store::Sent;

/// Why a request failed.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum Failure {
    /// This store was closed by its owner.
    #[error("closed")]
    Closed,
    /// No connection to a server within the limit. Nothing was sent.
    #[error("no connection to a server in time")]
    NotReached,
    /// The runtime on which the session was to live is gone. Nothing was sent.
    #[error("the runtime of the session ended")]
    Abandoned,
    /// The thread that drives sessions could not be started. Nothing was sent.
    #[error("no thread for the session")]
    NoThread,
    /// Too many requests were before this one. Nothing was sent.
    #[error("too many requests in flight")]
    Busy,
    /// No answer within the limit. The request may have been carried out.
    #[error("no answer in time")]
    Silent,
    /// The connection broke or the session ended. The request may have been carried out.
    #[error("{0}")]
    Broken(String),
    /// The server refuses this user the node.
    #[error("{0}")]
    Denied(String),
    /// The server refuses this user a session.
    #[error("{0}")]
    LockedOut(String),
    /// The server cannot do its work, or a node above ours is not there.
    #[error("{0}")]
    Unable(String),
    /// The answer of a server to a request that no longer fits: no such node.
    #[error("node not there")]
    NoNode,
    /// The answer of a server to a request that no longer fits: another version, or a node that is there.
    #[error("node changed")]
    Changed,
    /// Other clients changed the name each time before our step.
    #[error("the name changed under each attempt")]
    Contended,
    /// The answer, or what is in a node, is none of ours.
    #[error("unexpected content {0}")]
    Odd(String),
    /// Refused here, with an error of its own.
    #[error("{0}")]
    Refused(Error),
}

impl Failure {
    /// The error for the caller of `operation`; `facts` are `key=value`.
    pub(super) fn during(self, operation: &str, facts: impl fmt::Display) -> Error {
        if let Self::Refused(error) = self {
            return error;
        }
        let kind = self.kind();
        let what = match kind {
            ErrorKind::Unavailable => "store unavailable",
            ErrorKind::TimedOut => "store did not answer in time",
            ErrorKind::Denied => "store denies it",
            ErrorKind::Closed => "store is closed",
            _ => "store cannot do its work",
        };
        Error::new(kind, format!("{operation} failed: {what} {facts}")).with_source(self)
    }

    pub(super) fn kind(&self) -> ErrorKind {
        match self {
            Self::Closed => ErrorKind::Closed,
            Self::NotReached | Self::Abandoned | Self::NoThread | Self::Broken(_) => {
                ErrorKind::Unavailable
            }
            // A name that changed under the last attempt, like one that changed under each.
            Self::Silent | Self::Busy | Self::Contended | Self::NoNode | Self::Changed => {
                ErrorKind::TimedOut
            }
            Self::Denied(_) | Self::LockedOut(_) => ErrorKind::Denied,
            Self::Unable(_) | Self::Odd(_) => ErrorKind::Misconfigured,
            Self::Refused(error) => error.kind(),
        }
    }

    /// How far the request came.
    pub(super) fn sent(&self) -> Sent {
        match self {
            Self::Closed | Self::NotReached | Self::NoThread | Self::Busy | Self::Abandoned => {
                Sent::Never
            }
            Self::Denied(_) | Self::Unable(_) | Self::NoNode | Self::Changed => Sent::Answered,
            Self::Contended | Self::Refused(_) => Sent::Answered,
            Self::LockedOut(_) | Self::Silent | Self::Broken(_) | Self::Odd(_) => Sent::Perhaps,
        }
    }

    /// Whether the server answered that the name is not as we had read it: look again.
    pub(super) const fn is_stale(&self) -> bool {
        matches!(self, Self::NoNode | Self::Changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_tells_what_to_do() {
        for (failure, kind, sent) in [
            (Failure::Closed, ErrorKind::Closed, Sent::Never),
            (Failure::NotReached, ErrorKind::Unavailable, Sent::Never),
            (Failure::Silent, ErrorKind::TimedOut, Sent::Perhaps),
            (
                Failure::Broken("lost".into()),
                ErrorKind::Unavailable,
                Sent::Perhaps,
            ),
            (
                Failure::Denied("no".into()),
                ErrorKind::Denied,
                Sent::Answered,
            ),
            (
                Failure::Unable("no chroot".into()),
                ErrorKind::Misconfigured,
                Sent::Answered,
            ),
            (Failure::Contended, ErrorKind::TimedOut, Sent::Answered),
            (Failure::NoNode, ErrorKind::TimedOut, Sent::Answered),
            (Failure::Changed, ErrorKind::TimedOut, Sent::Answered),
        ] {
            assert_eq!((failure.kind(), failure.sent()), (kind, sent), "{failure}");
            let error = failure.during("acquire", "name=a");
            assert!(
                error.to_string().starts_with("acquire failed: store "),
                "{error}"
            );
        }
    }
}
