//! What a fence answers instead of writing: typed, so that a caller can act on it, and final.

use std::error::Error as StdError;
use std::fmt;

use super::{Bearer, Pass};
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::telemetry;
use crate::token::Token;

/// Why a fence did not admit a write. Permanent: the same pass will never be admitted again, so nothing retries it.
///
/// It is the [source](StdError::source) of an [`Error`]; [`Refusal::of`] finds it there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Storage has seen a greater token: a successor is at work, or was. Stop.
    Stale {
        /// The token that storage has seen.
        stored: Token,
    },
    /// Storage knows the same token of another holder, or guards this resource by another lease name. Stop. The first
    /// means that the lease store went back in time, the second that two parts of a system disagree about which lease
    /// protects the resource.
    Conflict {
        /// The pass that storage knows. Boxed, since it is much the largest.
        stored: Box<Pass>,
    },
    /// The write came without a pass.
    Missing,
}

impl Refusal {
    /// The refusal that this error carries, if it is one.
    pub fn of(error: &Error) -> Option<&Self> {
        error.source()?.downcast_ref()
    }

    /// What the next grant of this name has to be above, so that storage will admit it.
    ///
    /// Nothing for another name than the refused one: tokens of two names are unrelated.
    pub fn floor(&self, name: &Name) -> Option<Token> {
        match self {
            Self::Stale { stored } => Some(*stored),
            Self::Conflict { stored } if stored.name == *name => Some(stored.token),
            Self::Conflict { .. } | Self::Missing => None,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Stale { .. } => "stale",
            Self::Conflict { .. } => "conflict",
            Self::Missing => "missing",
        }
    }

    pub(crate) fn conflict(stored: &Pass) -> Self {
        Self::Conflict {
            stored: Box::new(stored.clone()),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale { stored } => write!(f, "a newer token has been seen stored={stored}"),
            Self::Conflict { stored } => write!(
                f,
                "the resource belongs to another pass stored_name={:?} stored_holder={} stored={}",
                stored.name, stored.holder, stored.token
            ),
            Self::Missing => f.write_str("no pass was shown"),
        }
    }
}

impl StdError for Refusal {}

/// A raise that waited too long for an older write to end: a writer is inside a transaction under the same fence,
/// perhaps paused there. Whether that write will count is open until it ends; try again.
///
/// It is the [source](StdError::source) of an [`Error`] of kind `TimedOut`; [`Blocked::of`] finds it there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Blocked {
    /// What could not be raised.
    pub resource: String,
}

impl Blocked {
    /// The blocked raise that this error carries, if it is one.
    pub fn of(error: &Error) -> Option<&Self> {
        error.source()?.downcast_ref()
    }

    /// The error of a raise that waited too long. Public for those who write a guard.
    pub fn error(resource: &str) -> Error {
        Error::new(
            ErrorKind::TimedOut,
            format!("raise failed: an older write has not ended resource={resource:?}"),
        )
        .with_source(Self {
            resource: resource.into(),
        })
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the fence is held by a transaction that is still open")
    }
}

impl StdError for Blocked {}

/// The error of a refused write; the bearer is told, so that its next grant is above what storage has seen. Public for
/// those who write a guard.
pub fn refused(bearer: &dyn Bearer, resource: &str, shown: &Pass, refusal: Refusal) -> Error {
    bearer.refused(&refusal);
    telemetry::write_refused(shown.name.as_str(), shown.token.get(), refusal.reason());
    Error::new(
        ErrorKind::Stale,
        format!(
            "write refused by the fence resource={resource:?} name={:?} token={}",
            shown.name, shown.token
        ),
    )
    .with_source(refusal)
}

#[cfg(test)]
mod tests {
    use crate::holder::ClientId;

    use super::*;
    use crate::Holder;

    fn pass(name: &str, token: u64) -> Pass {
        Pass::new(
            Name::new(name).expect("valid"),
            Holder::new(ClientId::from_u128(7), 1),
            Token::new(token).expect("valid"),
        )
    }

    #[test]
    fn a_refusal_is_found_in_its_error() {
        let stale = Refusal::Stale { stored: Token::MAX };
        let error = refused(&pass("a", 1), "ledger", &pass("a", 1), stale.clone());
        assert_eq!(error.kind(), ErrorKind::Stale);
        assert_eq!(Refusal::of(&error), Some(&stale));
        assert_eq!(Blocked::of(&error), None);
        assert!(Blocked::of(&Blocked::error("ledger")).is_some());
    }

    #[test]
    fn the_floor_is_that_of_the_same_name_only() {
        let name = Name::new("a").expect("valid");
        let stored = pass("a", 9);
        assert_eq!(Refusal::conflict(&stored).floor(&name), Some(stored.token));
        assert_eq!(Refusal::conflict(&pass("b", 9)).floor(&name), None);
        assert_eq!(Refusal::Missing.floor(&name), None);
        let stale = Refusal::Stale {
            stored: stored.token,
        };
        assert_eq!(stale.floor(&name), Some(stored.token));
    }
}
