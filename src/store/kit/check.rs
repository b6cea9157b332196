//! The table of hazards of a store on servers: each row has the texts, and a detector over the set-up as it was read.

use std::borrow::Cow;
use std::time::Duration;

use crate::store::{Hazard, Severity};

/// A row of a store's table of hazards: its texts, and a detector over the set-up as it was read.
pub(crate) struct Check<S> {
    pub(crate) id: &'static str,
    severity: Severity,
    endangers: &'static str,
    fix: &'static str,
    finds: fn(&S) -> Option<Weakness>,
}

/// The finding of a detector, with the facts.
pub(crate) struct Weakness(pub(crate) Cow<'static, str>, pub(crate) Option<Duration>);

impl<S> Check<S> {
    pub(crate) const fn new(
        severity: Severity,
        id: &'static str,
        finds: fn(&S) -> Option<Weakness>,
        endangers: &'static str,
        fix: &'static str,
    ) -> Self {
        Self {
            id,
            severity,
            endangers,
            fix,
            finds,
        }
    }

    /// Judges the set-up by this row. Some faults endanger only leases with a ttl below some time.
    pub(crate) fn judge(&self, set_up: &S) -> Option<Hazard> {
        let Weakness(what, below_ttl) = (self.finds)(set_up)?;
        let endangers = self.endangers;
        let mut hazard = Hazard::new(self.id, self.severity, what, endangers, self.fix);
        if let Some(ttl) = below_ttl {
            hazard.endangers =
                format!("no lease of a ttl below {} s {endangers}", ttl.as_secs()).into();
            hazard.below_ttl = below_ttl;
        }
        Some(hazard)
    }
}

/// Judges the set-up by each row of a table.
pub(crate) fn judge<S>(checks: &[Check<S>], set_up: &S) -> Vec<Hazard> {
    checks
        .iter()
        .filter_map(|check| check.judge(set_up))
        .collect()
}

/// Returns the hazard, if the set-up has it.
pub(crate) fn found(is_there: bool, what: impl Into<Cow<'static, str>>) -> Option<Weakness> {
    is_there.then(|| Weakness(what.into(), None))
}
