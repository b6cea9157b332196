//! What in a store's set-up weakens a promise.

use std::borrow::Cow;
use std::fmt;

/// Something in the store's set-up that weakens a promise, and how to fix it.
///
/// It is displayed as `what: endangers. Fix.`
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hazard {
    /// The name of this kind of hazard: it stays the same from version to version, so that it can be silenced.
    pub id: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What was found, with the facts.
    pub what: Cow<'static, str>,
    /// What can go wrong because of it.
    pub endangers: Cow<'static, str>,
    /// What to do about it, as a sentence without its full stop.
    pub fix: Cow<'static, str>,
}

/// How bad a hazard is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// Something could not be checked.
    Unknown,
    /// A fault of a server, or a restart, can break a promise.
    Warning,
    /// A promise can break, or a part of the store does not work, without any fault.
    Critical,
}

impl Hazard {
    /// A hazard of this kind.
    pub fn new(
        id: &'static str,
        severity: Severity,
        what: impl Into<Cow<'static, str>>,
        endangers: impl Into<Cow<'static, str>>,
        fix: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            id,
            severity,
            what: what.into(),
            endangers: endangers.into(),
            fix: fix.into(),
        }
    }
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}. {}.", self.what, self.endangers, self.fix)
    }
}
