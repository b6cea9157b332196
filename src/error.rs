//! The one error type: a kind that tells the caller what to do, a message for people, and the source beneath it.
//!
//! Messages name the operation first and the facts last, as `key=value`. They never repeat the source, so whoever
//! prints an error prints the chain.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

/// What a correct caller can meet. Look at [`kind`](Error::kind) to decide what to do.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What to do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A value of the caller's is outside its limits. Change the call.
    Invalid,
    /// The store cannot be reached, or cannot answer now. Try again later.
    Unavailable,
    /// The limit ran out first. If somebody else held the name, the [source](StdError::source) is the
    /// [`Held`](crate::store::Held) that was last seen.
    TimedOut,
    /// The store knows us not, or grants no right to this. Mend the credentials.
    Denied,
    /// The store is there but cannot do its work: wrong type, full, read-only, another program's file. Mend the store.
    Misconfigured,
    /// The lease is no longer held. Stop the work.
    Lost,
    /// Storage has seen a newer token. Stop the work; never retry.
    Stale,
    /// The client was shut down, or belongs to the parent of this forked process. Build a new one.
    Closed,
}

impl Error {
    /// Makes an error of this kind. Public for those who write a store or a guard.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            source: None,
        }))
    }

    /// The same error with what caused it.
    #[must_use = "returns the error with its source"]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The same error for somebody else: what caused it becomes text.
    pub(crate) fn copy(&self) -> Self {
        let mut causes = Vec::new();
        let mut cause = StdError::source(self);
        while let Some(error) = cause {
            causes.push(error.to_string());
            cause = error.source();
        }
        let copy = Self::new(self.kind(), self.0.message.clone());
        if causes.is_empty() {
            return copy;
        }
        copy.with_source(causes.join(": "))
    }

    pub(crate) fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
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
    fn a_copy_tells_the_same_chain() {
        let inner = Error::new(ErrorKind::Denied, "b").with_source(std::io::Error::other("c"));
        let copy = Error::new(ErrorKind::Unavailable, "a")
            .with_source(inner)
            .copy();
        assert_eq!(copy.kind(), ErrorKind::Unavailable);
        assert_eq!(copy.to_string(), "a");
        let source = copy.source().map(ToString::to_string);
        assert_eq!(source.as_deref(), Some("b: c"));
    }
}
