//! Why a request failed, and what to tell the caller. Nothing else matches the two.

use super::protocol::wire;
use crate::error::{Error, ErrorKind};
use crate::store::Sent;
use crate::store::kit::backend::Failing;
use crate::store::kit::connection::Unconnected;

/// Why a request failed.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Failure {
    /// There was no connection. Nothing was sent.
    #[error(transparent)]
    Unconnected(#[from] Unconnected),
    /// No connection to a server within the limit. Nothing was sent. Holds why the last attempt failed, as ": reason".
    #[error("no connection to a server in time{0}")]
    NotReached(String),
    /// Too many requests were before this one. Nothing was sent.
    #[error("too many requests in flight")]
    Busy,
    /// No answer within the limit. The request may have been carried out.
    #[error("no answer in time")]
    Silent,
    /// The connection broke or the session ended. The request may have been carried out.
    #[error("{0}")]
    Broken(&'static str),
    /// The servers no longer know the session. The request was not carried out in it.
    #[error("the session has ended")]
    Expired,
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
    #[error("the name changed under each attempt: a node is not there")]
    NoNode,
    /// The answer of a server to a request that no longer fits: another version, or a node that is there.
    #[error("the name changed under each attempt")]
    Changed,
    /// The answer does not follow the protocol.
    #[error("unexpected {0}")]
    Odd(&'static str),
    /// The node at this path, or its content, is not ours.
    #[error("the node has a form that this version does not know node={0}")]
    UnknownForm(String),
    /// The nodes at these paths say that a name is taken, each for another holder.
    #[error(
        "the name has two holders, of which one must not be: evict them now first={0} second={1}"
    )]
    TwoHolders(String, String),
    /// Refused here, with an error of its own.
    #[error("{0}")]
    Refused(Error),
}

/// The errors of a server that cannot serve now, as in an election, or that has lost the session to another one. The
/// same request succeeds later, without a change to the set-up.
const OUTAGES: &[(i32, &str)] = &[
    (-1, "the server failed"),
    (-4, "the server lost its leader"),
    (-7, "the server gave up the request"),
    (wire::UNKNOWN, "the session is not known"),
    (-116, "the server shuts down"),
    (wire::MOVED, "the session went to another server"),
    (-119, "the server only reads while it has no leader"),
    (-122, "the servers were too slow"),
    (-127, "the server has too much to do"),
];

impl Failure {
    /// Makes the failure of an error of the protocol.
    pub(super) fn of(error: i32) -> Self {
        match error {
            -101 => Self::NoNode,
            // Another version; a node that is there; a node that has children.
            -103 | -110 | -111 => Self::Changed,
            -102 => Self::Denied,
            wire::EXPIRED => Self::Expired,
            -120 => Self::local_session(),
            wire::NO_LOGIN | -124 => Self::LockedOut,
            error => {
                let outage = OUTAGES.iter().find(|(code, _)| *code == error);
                // Bad arguments, a quota, and others that retrying does not change.
                let unable = || Self::Unable(format!("the server refused it error={error}"));
                outage.map_or_else(unable, |(_, why)| Self::Broken(why))
            }
        }
    }

    /// The failure of a node that ends with its session, in one that only its own server knows.
    pub(super) fn local_session() -> Self {
        let why = "no ephemeral node in a local session: \
                   localSessionsEnabled is set without localSessionsUpgradingEnabled";
        Self::Unable(why.into())
    }

    /// Returns the kind of error, and how far the request came.
    fn judged(&self) -> (ErrorKind, Sent) {
        match self {
            Self::Unconnected(why) => (why.kind(), Sent::Never),
            Self::NotReached(_) => (ErrorKind::Unavailable, Sent::Never),
            Self::Broken(_) | Self::Expired => (ErrorKind::Unavailable, Sent::Perhaps),
            Self::Busy => (ErrorKind::TimedOut, Sent::Never),
            Self::Silent => (ErrorKind::TimedOut, Sent::Perhaps),
            Self::NoNode | Self::Changed => (ErrorKind::TimedOut, Sent::Answered),
            Self::Denied => (ErrorKind::Denied, Sent::Answered),
            Self::LockedOut => (ErrorKind::Denied, Sent::Perhaps),
            Self::Unable(_) | Self::UnknownForm(_) | Self::TwoHolders(..) => {
                (ErrorKind::Misconfigured, Sent::Answered)
            }
            Self::Odd(_) => (ErrorKind::Misconfigured, Sent::Perhaps),
            Self::Refused(error) => (error.kind(), Sent::Answered),
        }
    }

    /// Returns whether the server answered that the name is not as we had read it: read again.
    pub(super) const fn is_stale(&self) -> bool {
        matches!(self, Self::NoNode | Self::Changed)
    }

    /// Returns whether the nodes of one name are not in order, which says nothing about other names.
    pub(super) const fn is_of_one_name(&self) -> bool {
        matches!(self, Self::UnknownForm(_) | Self::TwoHolders(..))
    }
}

impl Failing for Failure {
    fn kind(&self) -> ErrorKind {
        self.judged().0
    }

    fn sent(&self) -> Sent {
        self.judged().1
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
    fn what_a_server_says_during_an_outage_is_no_fault_of_the_set_up() {
        for (kind, codes) in [
            (
                ErrorKind::Unavailable,
                &[-1, -4, -7, -12, -112, -116, -118, -119, -122, -127] as &[i32],
            ),
            (ErrorKind::TimedOut, &[-101, -103, -110, -111]),
            (ErrorKind::Denied, &[-102, -115, -124]),
            (ErrorKind::Misconfigured, &[-5, -6, -8, -114, -125, -999]),
        ] {
            for code in codes {
                assert_eq!(Failure::of(*code).kind(), kind, "{code}");
            }
        }
    }

    #[test]
    fn each_failure_tells_what_to_do() {
        for (failure, kind, sent) in [
            (Unconnected::Closed.into(), ErrorKind::Closed, Sent::Never),
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
            (Failure::NoNode, ErrorKind::TimedOut, Sent::Answered),
            (Failure::Changed, ErrorKind::TimedOut, Sent::Answered),
        ] {
            assert_eq!((failure.kind(), failure.sent()), (kind, sent), "{failure}");
            let error = failure.during("acquire", "name=a");
            assert!(error.to_string().starts_with("acquire failed: "), "{error}");
        }
    }
}
