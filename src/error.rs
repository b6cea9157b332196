//! The one error type: a kind that says what the caller should do, a message for people, and the source beneath it.
//!
//! Messages name the operation first and the facts last, as `key=value`. They never repeat the source: `{error}` prints
//! the message alone, and `{error:#}` the message and every source beneath it.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::words::words;

/// An error that a correct caller can meet. Look at [`kind`](Error::kind) to decide what to do.
///
/// A clone is cheap and is the same error, with its sources, so every task that waited for one request can have one.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

words! {
    /// The kind of an [`Error`]: it says what the caller should do.
    #[derive(Hash)]
    #[non_exhaustive]
    pub enum ErrorKind {
        /// An argument or setting is outside its limits. Change the call.
        Invalid = "invalid",
        /// The store cannot be reached, or cannot answer now: it is down, or its disk is full. Try again later.
        Unavailable = "unavailable",
        /// The call timed out: its limit ran out first. If another holder had the name, the [source](StdError::source)
        /// is the [`Held`](crate::store::Held) that was last seen.
        TimedOut = "timed_out",
        /// Authentication failed, or the user lacks a permission. Fix the credentials.
        Denied = "denied",
        /// The store answers but cannot do its work: it is read-only, a key has the wrong type, or the file is another
        /// program's. Fix the store.
        Misconfigured = "misconfigured",
        /// The lease is no longer held. Stop the work.
        Lost = "lost",
        /// Storage has seen a newer token. Stop the work; never retry.
        Stale = "stale",
        /// The client was shut down, or belongs to the parent of this forked process. Build a new client.
        Closed = "closed",
    }
}

impl ErrorKind {
    /// Returns whether the same call may succeed later.
    pub(crate) const fn is_transient(self) -> bool {
        matches!(self, Self::Unavailable | Self::TimedOut)
    }
}

impl Error {
    /// Makes an error of this kind. It is public for those who implement a store or a guard.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Arc::new(Inner {
            kind,
            message: message.into(),
            source: None,
        }))
    }

    /// Returns the same error with its cause as the [source](StdError::source).
    #[must_use = "returns the error with its source"]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Arc::make_mut(&mut self.0).source = Some(Arc::from(source.into()));
        self
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns whether the same call may succeed later: the store was unavailable, or the call timed out.
    ///
    /// It does not say whether the request was carried out.
    pub fn is_transient(&self) -> bool {
        self.kind().is_transient()
    }

    /// The error of every request for a lease after the client was shut down.
    pub(crate) fn shut_down() -> Self {
        Self::new(
            ErrorKind::Closed,
            "acquire refused: the client was shut down",
        )
    }

    pub(crate) fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if f.alternate() {
            let mut source = StdError::source(self);
            while let Some(error) = source {
                write!(f, ": {error}")?;
                source = error.source();
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_does_not_repeat_the_source() {
        let error = Error::new(ErrorKind::Unavailable, "renew failed: store unavailable")
            .with_source(std::io::Error::other("connection refused"));
        assert_eq!(error.to_string(), "renew failed: store unavailable");
        assert_eq!(
            error.source().map(ToString::to_string).as_deref(),
            Some("connection refused")
        );
    }

    #[test]
    fn the_alternate_form_prints_every_source_once() {
        let inner = Error::new(ErrorKind::Denied, "b").with_source(std::io::Error::other("c"));
        let error = Error::new(ErrorKind::Unavailable, "a").with_source(inner);
        assert_eq!(format!("{error:#}"), "a: b: c");
        assert_eq!(error.to_string(), "a");
    }

    #[test]
    fn a_clone_has_the_same_typed_sources() {
        let inner = Error::new(ErrorKind::Denied, "b");
        let error = Error::new(ErrorKind::Unavailable, "a").with_source(inner);
        let clone = error.clone().with_source(std::io::Error::other("c"));
        assert!(error.source().is_some_and(|source| source.is::<Error>()));
        assert!(
            clone
                .source()
                .is_some_and(|source| source.is::<std::io::Error>())
        );
    }

    #[test]
    fn only_unavailable_and_timed_out_are_transient() {
        let transient = [ErrorKind::Unavailable, ErrorKind::TimedOut];
        for kind in [
            ErrorKind::Invalid,
            ErrorKind::Unavailable,
            ErrorKind::TimedOut,
            ErrorKind::Denied,
            ErrorKind::Misconfigured,
            ErrorKind::Lost,
            ErrorKind::Stale,
            ErrorKind::Closed,
        ] {
            let is_transient = Error::new(kind, "a").is_transient();
            assert_eq!(is_transient, transient.contains(&kind), "{kind:?}");
        }
    }
}
