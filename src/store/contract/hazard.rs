//! Faults in a store's set-up.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// Something in the store's set-up that weakens a promise, and how to fix it.
///
/// Its `Display` is `what: endangers. Fix.`
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hazard {
    /// The identifier of this kind of hazard. It stays the same from version to version, so that users can silence it.
    pub id: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The finding, with the facts.
    pub what: Cow<'static, str>,
    /// The promise that it endangers, and when.
    pub endangers: Cow<'static, str>,
    /// The remedy, as a sentence without its full stop.
    pub fix: Cow<'static, str>,
    /// Only leases of a shorter ttl are concerned. `None` if all are.
    pub below_ttl: Option<Duration>,
}

/// The severity of a hazard.
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
    /// Makes a hazard of this kind.
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
            below_ttl: None,
        }
    }

    /// Limits the hazard to leases of a shorter ttl than this.
    #[must_use = "it is the limited hazard"]
    pub const fn below_ttl(mut self, ttl: Duration) -> Self {
        self.below_ttl = Some(ttl);
        self
    }

    /// Returns whether leases of this ttl are concerned.
    pub fn concerns(&self, ttl: Duration) -> bool {
        self.below_ttl.is_none_or(|below| ttl < below)
    }
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}. {}.", self.what, self.endangers, self.fix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_hazard_concerns_shorter_leases_only() {
        let ttl = Duration::from_secs(30);
        let hazard = Hazard::new("id", Severity::Warning, "what", "endangers", "Fix");
        assert!(hazard.concerns(ttl));
        let hazard = hazard.below_ttl(ttl);
        assert!(!hazard.concerns(ttl));
        assert!(hazard.concerns(ttl - Duration::from_millis(1)));
    }
}
