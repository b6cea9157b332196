//! Why a request failed, and what a caller is told to do about it: the one place where the two are matched.

use super::protocol::wire;
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::store::Sent;
use crate::store::backend::Failing;
use crate::store::connection::Unconnected;

/// Why a request failed.
#[derive(Debug, Clone, thiserror::Error)]
pub(in crate::store) enum Failure {
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
    /// The answer is none of ours.
    #[error("unexpected {0}")]
    Odd(&'static str),
    /// What is in a node is none of ours.
    #[error("unexpected content node={0}")]
    OddNode(String),
    /// Two nodes say that a name is taken, each for another holder.
    #[error("the name has two holders, of which one must not be: evict them now name={name} first={} second={}", .nodes[0], .nodes[1])]
    TwoHolders { name: Name, nodes: [String; 2] },
    /// Refused here, with an error of its own.
    #[error("{0}")]
    Refused(Error),
}

/// What each code of a server means. `Broken` is what a server says while it restarts, loses its leader or its majority, or
/// has too much to do: then the same request succeeds later, without a change to the set-up. What is not here is `Unable`:
/// neither carried out nor to be carried out by this server or for this user, such as bad arguments or a quota.
const CODES: &[(i32, Failure)] = &[
    (-1, Failure::Broken("the server failed")),
    (-4, Failure::Broken("the server lost its leader")),
    (-7, Failure::Broken("the server was too slow")),
    (wire::UNKNOWN, Failure::Broken("the session is not known")),
    (-101, Failure::NoNode),
    (-102, Failure::Denied),
    // Another version; a node that is there; a node that has children.
    (-103, Failure::Changed),
    (-110, Failure::Changed),
    (-111, Failure::Changed),
    (wire::EXPIRED, Failure::Broken("the session has ended")),
    (wire::NO_LOGIN, Failure::LockedOut),
    (-116, Failure::Broken("the server shuts down")),
    (
        wire::MOVED,
        Failure::Broken("the session went to another server"),
    ),
    (
        -119,
        Failure::Broken("the server is without a majority, and only reads"),
    ),
    (-122, Failure::Broken("the servers were too slow")),
    (-124, Failure::LockedOut),
    (-127, Failure::Broken("the server has too much to do")),
];

impl From<Unconnected> for Failure {
    fn from(why: Unconnected) -> Self {
        match why {
            Unconnected::Closed => Self::Closed,
            Unconnected::Late => Self::NotReached,
            Unconnected::Abandoned => Self::Abandoned,
            Unconnected::NoThread => Self::NoThread,
        }
    }
}

impl Failure {
    /// Returns what an error of the protocol means.
    pub(super) fn of(error: i32) -> Self {
        let known = CODES.iter().find(|(code, _)| *code == error);
        let unable = || Self::Unable(format!("the server refused it error={error}"));
        known.map_or_else(unable, |(_, failure)| failure.clone())
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
            Self::NotReached | Self::Abandoned | Self::NoThread | Self::Broken(_) => {
                ErrorKind::Unavailable
            }
            // A name that changed under the last attempt, like one that changed under each.
            Self::Silent | Self::Busy | Self::Contended | Self::NoNode | Self::Changed => {
                ErrorKind::TimedOut
            }
            Self::Denied | Self::LockedOut => ErrorKind::Denied,
            Self::Unable(_) | Self::Odd(_) | Self::OddNode(_) | Self::TwoHolders { .. } => {
                ErrorKind::Misconfigured
            }
            Self::Refused(error) => error.kind(),
        }
    }

    fn sent(&self) -> Sent {
        match self {
            Self::Closed | Self::NotReached | Self::NoThread | Self::Busy | Self::Abandoned => {
                Sent::Never
            }
            Self::Denied | Self::Unable(_) | Self::NoNode | Self::Changed => Sent::Answered,
            Self::Contended | Self::TwoHolders { .. } | Self::Refused(_) => Sent::Answered,
            Self::LockedOut | Self::Silent | Self::Broken(_) => Sent::Perhaps,
            Self::Odd(_) | Self::OddNode(_) => Sent::Perhaps,
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
            (Failure::NotReached, ErrorKind::Unavailable, Sent::Never),
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

    #[test]
    fn each_code_of_a_server_tells_what_to_do() {
        let outages = [-1, -4, -7, -12, -112, -116, -118, -119, -122, -127];
        let of = |codes: &[i32], kind, sent| {
            for code in codes {
                let failure = Failure::of(*code);
                let told = (failure.kind(), failure.sent());
                assert_eq!(told, (kind, sent), "{code} {failure}");
            }
        };
        of(&outages, ErrorKind::Unavailable, Sent::Perhaps);
        of(&[-102], ErrorKind::Denied, Sent::Answered);
        of(&[-115, -124], ErrorKind::Denied, Sent::Perhaps);
        of(
            &[-101, -103, -110, -111],
            ErrorKind::TimedOut,
            Sent::Answered,
        );
        // Inconsistent, bad arguments, a quota, and what no server of today says.
        of(
            &[-2, -5, -6, -8, -114, -125, -999],
            ErrorKind::Misconfigured,
            Sent::Answered,
        );
        assert!(
            [-101, -103, -110, -111]
                .map(Failure::of)
                .iter()
                .all(Failure::is_stale)
        );
    }
}
