//! The refusals of a fence: typed, so that a caller can act on them, and final.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use super::{Admission, Bearer, Pass, judge};
use crate::clock::{Clock, Instant, Monotonic, wall_clock_us};
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::telemetry::{self, FenceKind};
use crate::token::Token;

/// Why a fence refused a write. It is permanent: the same pass will never be admitted again, so nothing retries it.
///
/// It is the [source](StdError::source) of an [`Error`]; [`Refusal::of`] finds it there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Storage has seen a greater token: another holder is at work, or was. Stop the work.
    Stale {
        /// The token that storage has seen.
        stored: Token,
    },
    /// Storage has the same token with another holder, or guards this resource for another lease name. Stop the work.
    /// The first means that the lease store lost its latest tokens, the second that two parts of a system disagree
    /// about which lease protects the resource.
    Conflict {
        /// The pass that storage has. Boxed, because it is by far the largest variant.
        stored: Box<Pass>,
    },
    /// The write came without a pass.
    Missing,
}

impl Refusal {
    /// Returns the refusal in this error, if it is one.
    pub fn of(error: &Error) -> Option<&Self> {
        error.source()?.downcast_ref()
    }

    /// Returns the token that the next grant of this name must be above, so that storage will admit it.
    ///
    /// `None` for a name other than the refused one: tokens of two names are unrelated.
    pub fn floor(&self, name: &Name) -> Option<Token> {
        match self {
            Self::Stale { stored } => Some(*stored),
            Self::Conflict { stored } if stored.name == *name => Some(stored.token),
            Self::Conflict { .. } | Self::Missing => None,
        }
    }

    /// Returns whether no store can have minted the stored token: it is more than [`Token::FLOOR_AHEAD`] past both the
    /// clock and the token that was shown, which was not behind the store's clock when it was minted.
    fn is_mistake(&self, shown: &Pass) -> bool {
        let stored = match self {
            Self::Stale { stored } => *stored,
            Self::Conflict { stored } => stored.token,
            Self::Missing => return false,
        };
        let seen = Duration::from_micros(shown.token.get().max(wall_clock_us()));
        Duration::from_micros(stored.get()) > seen + Token::FLOOR_AHEAD
    }

    pub(super) const fn outcome(&self) -> &'static str {
        match self {
            Self::Stale { .. } => "stale",
            Self::Conflict { .. } => "conflict",
            Self::Missing => "failed",
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

impl Pass {
    /// Returns the pass that came with a request, if it came with one.
    ///
    /// # Errors
    /// `Invalid` with [`Refusal::Missing`] for `None`: a write without a pass is refused.
    pub fn required(shown: Option<&Self>) -> Result<&Self, Error> {
        shown.ok_or_else(|| {
            Error::invalid("write refused: it came without a pass").with_source(Refusal::Missing)
        })
    }
}

/// A raise that waited too long for an older write to end: a writer is inside a transaction under the same fence, and
/// may be paused there. The outcome of that write is unknown until it ends; retry later.
///
/// It is the [source](StdError::source) of an [`Error`] of kind `TimedOut`; [`Blocked::of`] finds it there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Blocked {
    /// The resource whose fence could not be raised.
    pub resource: String,
}

impl Blocked {
    /// Returns the blocked raise in this error, if it is one.
    pub fn of(error: &Error) -> Option<&Self> {
        error.source()?.downcast_ref()
    }

    /// Makes the error of a raise that waited too long. It is public for those who implement a guard.
    pub fn error(resource: &str) -> Error {
        Error::new(
            ErrorKind::TimedOut,
            format!("raise failed: an older write is still in progress resource={resource:?}"),
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

/// Makes the error of a refused write, and reports it to the bearer, so that its next grant is above what storage has
/// seen. A stored token that no store can have minted is `Misconfigured`, and is not reported. It is public for those
/// who implement a guard.
pub fn refused(bearer: &dyn Bearer, resource: &str, shown: &Pass, refusal: Refusal) -> Error {
    telemetry::count_refusal(FenceKind::Other, refusal.outcome());
    refuse(bearer, resource, shown, refusal)
}

/// Like [`refused`], for the guards of this crate, which count their checks themselves.
pub(super) fn refuse(bearer: &dyn Bearer, resource: &str, shown: &Pass, refusal: Refusal) -> Error {
    let (kind, why) = match refusal.is_mistake(shown) {
        // As a floor it would bar the bearer's client from the name even after the row was repaired.
        true => (
            ErrorKind::Misconfigured,
            ": what it stores is more than a day ahead of the clock; delete it if that is a mistake",
        ),
        false => {
            bearer.refused(&refusal);
            (ErrorKind::Stale, "")
        }
    };
    let (name, token) = (shown.name.as_str(), shown.token.get());
    telemetry::write_refused(bearer.group(), name, token, refusal.outcome());
    Error::new(
        kind,
        format!(
            "write refused by the fence{why} resource={resource:?} name={:?} token={}",
            shown.name, shown.token
        ),
    )
    .with_source(refusal)
}

/// A bearer with its pass.
pub(super) struct Shown<'a> {
    bearer: &'a dyn Bearer,
    pub(super) pass: Pass,
}

impl<'a> Shown<'a> {
    /// Asks the bearer for its pass.
    ///
    /// # Errors
    /// `Lost` if the lease's own deadline has passed.
    pub(super) fn of(bearer: &'a dyn Bearer) -> Result<Self, Error> {
        let pass = bearer.pass()?;
        Ok(Self { bearer, pass })
    }

    /// Compares the pass with the row of a resource. A refusal is reported to the bearer.
    pub(super) fn judge(&self, resource: &str, row: Option<&Pass>) -> Result<Admission, Error> {
        judge(row, &self.pass).map_err(|refusal| refuse(self.bearer, resource, &self.pass, refusal))
    }

    /// Runs a check, and counts it by its outcome.
    pub(super) async fn checked<T>(
        &self,
        fence: FenceKind,
        check: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let began_at = Monotonic.now();
        let checked = check.await;
        self.count(fence, began_at, &checked);
        checked
    }

    /// Counts a check that began at this moment and has ended.
    pub(super) fn count<T>(&self, fence: FenceKind, began_at: Instant, checked: &Result<T, Error>) {
        let outcome = match checked {
            Ok(_) => "admitted",
            Err(error) => Refusal::of(error).map_or("failed", Refusal::outcome),
        };
        let (name, token) = (self.pass.name.as_str(), self.pass.token.get());
        let group = self.bearer.group();
        telemetry::fence_checked(fence, began_at, group, name, token, outcome);
    }
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
        let stored = Token::new(2).expect("valid");
        let stale = Refusal::Stale { stored };
        let error = refused(&pass("a", 1), "ledger", &pass("a", 1), stale.clone());
        assert_eq!(error.kind(), ErrorKind::Stale);
        assert_eq!(Refusal::of(&error), Some(&stale));
        assert_eq!(Blocked::of(&error), None);
        assert!(Blocked::of(&Blocked::error("ledger")).is_some());
    }

    #[test]
    fn what_no_store_can_have_minted_is_no_stale_pass() {
        let day = 24 * 3_600_000_000;
        let now = Token::MAX.get() - 2 * day;
        for (stored, kind) in [
            (now + day, ErrorKind::Stale),
            (now + day + 1, ErrorKind::Misconfigured),
        ] {
            let (shown, other) = (pass("a", now), pass("b", stored));
            let stale = Refusal::Stale {
                stored: other.token,
            };
            for refusal in [stale, Refusal::conflict(&other)] {
                let error = refused(&shown, "ledger", &shown, refusal.clone());
                assert_eq!(error.kind(), kind, "{error}");
                assert_eq!(Refusal::of(&error), Some(&refusal));
            }
        }
        let early = refused(
            &pass("a", 1),
            "ledger",
            &pass("a", 1),
            Refusal::conflict(&pass("a", day + 2)),
        );
        assert_eq!(early.kind(), ErrorKind::Stale, "the clock is further");
    }

    #[test]
    fn no_pass_is_refused_by_its_type() {
        let error = Pass::required(None).expect_err("refused");
        assert_eq!(Refusal::of(&error), Some(&Refusal::Missing));
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
