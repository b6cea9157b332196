//! Why a request failed, and what a caller is told to do about it: the one place where the two are matched.

use super::protocol::wire;
use crate::error::{Error, ErrorKind};
use crate::store::Sent;
use crate::store::backend::Failing;
use crate::store::connection::Unconnected;

/// Why a request failed.
#[derive(Debug, Clone, thiserror::Error)]
pub(in crate::store) enum Failure {
    /// This store was closed by its owner.
    #[error("closed")]
    Closed,
    /// No connection to a server within the limit. Nothing was sent. Says why the last one was not made, after a colon.
    #[error("no connection to a server in time{0}")]
    NotReached(String),
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
    Broken(&'static str),
    /// The server refuses this user the node.
    #[error("no permission for the node")]
    Denied,
    /// The server refuses this user a session.
    #[error("the login is refused")]
    LockedOut,
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
    /// Two nodes say that a name is taken, each for another holder.
    #[error(
        "the name has two holders, of which one must not be: evict them now first={0} second={1}"
    )]
    TwoHolders(String, String),
    /// Refused here, with an error of its own.
    #[error("{0}")]
    Refused(Error),
}

impl From<Unconnected> for Failure {
    fn from(why: Unconnected) -> Self {
        match why {
            Unconnected::Closed => Self::Closed,
            Unconnected::Late => Self::NotReached(String::new()),
            Unconnected::Abandoned => Self::Abandoned,
            Unconnected::NoThread => Self::NoThread,
        }
    }
}

impl Failure {
    /// What an error of the protocol means.
    pub(super) fn of(error: i32) -> Self {
        match error {
            -101 => Self::NoNode,
            // Another version; a node that is there; a node that has children.
            -103 | -110 | -111 => Self::Changed,
            -102 => Self::Denied,
            wire::NO_LOGIN | -124 => Self::LockedOut,
            wire::EXPIRED => Self::Broken("the session has ended"),
            wire::MOVED => Self::Broken("the session went to another server"),
            -127 => Self::Broken("the server has too much to do"),
            -4 => Self::Broken("the server lost its leader"),
            // Neither carried out nor to be carried out by this server or this user: bad arguments, a quota, a server
            // that only reads.
            error => Self::Unable(format!("the server refused it error={error}")),
        }
    }

    /// Whether the server answered that the name is not as we had read it: look again.
    pub(super) const fn is_stale(&self) -> bool {
        matches!(self, Self::NoNode | Self::Changed)
    }
}

impl Failing for Failure {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Closed => ErrorKind::Closed,
            Self::NotReached(_) | Self::Abandoned | Self::NoThread | Self::Broken(_) => {
                ErrorKind::Unavailable
            }
            // A name that changed under the last attempt, like one that changed under each.
            Self::Silent | Self::Busy | Self::Contended | Self::NoNode | Self::Changed => {
                ErrorKind::TimedOut
            }
            Self::Denied | Self::LockedOut => ErrorKind::Denied,
            Self::Unable(_) | Self::Odd(_) | Self::TwoHolders(..) => ErrorKind::Misconfigured,
            Self::Refused(error) => error.kind(),
        }
    }

    fn sent(&self) -> Sent {
        match self {
            Self::Closed | Self::NotReached(_) | Self::NoThread | Self::Busy | Self::Abandoned => {
                Sent::Never
            }
            Self::Denied | Self::Unable(_) | Self::NoNode | Self::Changed => Sent::Answered,
            Self::Contended | Self::TwoHolders(..) | Self::Refused(_) => Sent::Answered,
            Self::LockedOut | Self::Silent | Self::Broken(_) | Self::Odd(_) => Sent::Perhaps,
        }
    }

    fn made(&self) -> Option<&Error> {
        match self {
            Self::Refused(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_tells_what_to_do() {
        for (failure, kind, sent) in [
            (Failure::Closed, ErrorKind::Closed, Sent::Never),
            (
                Failure::NotReached(String::new()),
                ErrorKind::Unavailable,
                Sent::Never,
            ),
            (Failure::Silent, ErrorKind::TimedOut, Sent::Perhaps),
            (
                Failure::Broken("lost"),
                ErrorKind::Unavailable,
                Sent::Perhaps,
            ),
            (Failure::Denied, ErrorKind::Denied, Sent::Answered),
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
            assert!(error.to_string().starts_with("acquire failed: "), "{error}");
        }
    }
}
