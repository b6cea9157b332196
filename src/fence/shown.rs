//! A bearer and the pass that it shows, while one of the guards of this crate checks it.

use super::refusal::refuse;
use super::{Admission, Bearer, Pass, Refusal, judge};
use crate::error::Error;
use crate::telemetry::{CheckOutcome, FenceCheck, FenceKind};

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

    /// Carries a check out, and counts it by what became of it.
    pub(super) async fn checked<T>(
        &self,
        fence: FenceKind,
        check: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let counted = FenceCheck::begin(fence);
        let checked = check.await;
        self.count(counted, &checked);
        checked
    }

    /// Counts a check that has ended.
    pub(super) fn count<T>(&self, check: FenceCheck, checked: &Result<T, Error>) {
        let outcome = match checked {
            Ok(_) => CheckOutcome::Admitted,
            Err(error) => Refusal::of(error).map_or(CheckOutcome::Failed, Refusal::outcome),
        };
        let (name, token) = (self.pass.name.as_str(), self.pass.token.get());
        check.ended(self.bearer.group(), name, token, outcome);
    }
}
