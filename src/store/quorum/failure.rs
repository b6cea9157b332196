//! Why a call on a quorum failed.

use std::fmt;

use super::members::{Failures, Members};
use super::protocol::majority;
use crate::error::{Error, ErrorKind};
use crate::store::Sent;
use crate::store::backend::Failing;

/// Why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{why}")]
pub(crate) struct Failure {
    kind: ErrorKind,
    why: String,
    /// The error of the first member that failed, if members failed.
    cause: Option<Error>,
    /// Says that the cause is the error for the caller.
    is_made: bool,
    sent: Sent,
}

impl Failure {
    /// Makes the failure of a call that no member was asked to carry out.
    pub(super) fn new(kind: ErrorKind, why: impl Into<String>) -> Self {
        Self {
            kind,
            why: why.into(),
            cause: None,
            is_made: false,
            sent: Sent::Never,
        }
    }

    pub(super) fn with_sent(self, sent: Sent) -> Self {
        Self { sent, ..self }
    }

    /// Makes the failure of a call that ended with this error.
    pub(super) fn of(error: Error) -> Self {
        Self {
            is_made: true,
            cause: Some(error.clone()),
            sent: Sent::Perhaps,
            ..Self::new(error.kind(), error.to_string())
        }
    }

    /// Makes the failure of a call that brought no majority of answers.
    ///
    /// Its kind is that of what keeps the quorum from a majority: an outage if those that are down are too many,
    /// otherwise what has to be changed at a member.
    pub(super) fn too_few(members: &Members, answered: usize, failures: &Failures) -> Self {
        let of = members.len();
        let kinds = || failures.iter().map(|(_, failed)| failed.error.kind());
        let is_transient =
            |kind: &ErrorKind| matches!(kind, ErrorKind::Unavailable | ErrorKind::TimedOut);
        let is_outage = of - kinds().filter(is_transient).count() < majority(of);
        let kind = match kinds().find(|kind| !is_transient(kind)) {
            Some(ErrorKind::Closed) => ErrorKind::Closed,
            Some(kind) if !is_outage => kind,
            _ if kinds().any(|kind| kind == ErrorKind::Unavailable) => ErrorKind::Unavailable,
            _ => ErrorKind::TimedOut,
        };
        let of_member = |(member, failed): &(usize, _)| {
            let failed: &crate::store::Failed = failed;
            format!("{}: {}", members.place(*member), root(&failed.error))
        };
        let told: Vec<_> = failures.iter().map(of_member).collect();
        let told = match told.is_empty() {
            true => "the others did not answer in time".into(),
            false => told.join("; "),
        };
        Self {
            cause: failures.first().map(|(_, failed)| failed.error.clone()),
            sent: Sent::Perhaps,
            ..Self::new(
                kind,
                format!("{answered} of {of} members answered ({told})"),
            )
        }
    }
}

impl Failing for Failure {
    fn kind(&self) -> ErrorKind {
        self.kind
    }

    fn sent(&self) -> Sent {
        self.sent
    }

    fn during(self, operation: &str, facts: impl fmt::Display) -> Error {
        if let Some(made) = self.cause.clone().filter(|_| self.is_made) {
            return made;
        }
        let outcome = match self.kind {
            ErrorKind::Invalid | ErrorKind::Misconfigured if self.cause.is_none() => "refused",
            _ => "failed",
        };
        let error = Error::new(
            self.kind,
            format!("{operation} {outcome}: {} {facts}", self.why),
        );
        match self.cause {
            Some(cause) => error.with_source(cause),
            None => error,
        }
    }
}

/// Returns the text of the source behind all others.
fn root(error: &Error) -> String {
    let mut root: &dyn std::error::Error = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}
