//! Why a call on a quorum failed.

use super::connection::{Failures, Members};
use crate::error::{Error, ErrorKind};
use crate::store::kit::backend::Failing;
use crate::store::{Failed, Sent};

/// Why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{why}")]
pub(crate) struct Failure {
    kind: ErrorKind,
    why: String,
    /// The error for the caller, if it was made already.
    made: Option<Error>,
    sent: Sent,
}

impl Failure {
    /// Makes the failure of a call that was sent to no member.
    pub(super) fn new(kind: ErrorKind, why: impl Into<String>) -> Self {
        Self {
            kind,
            why: why.into(),
            made: None,
            sent: Sent::Never,
        }
    }

    /// Makes the failure of a call that brought no majority of answers: an outage, if too many members are down;
    /// otherwise with the kind of the member's failure that prevents a majority.
    pub(super) fn too_few(members: &Members, answered: usize, failures: &Failures) -> Self {
        let of = members.len();
        let failed = failures.iter().map(|(_, failed)| &failed.error);
        let (down, lasting): (Vec<_>, Vec<_>) = failed.partition(|error| error.is_transient());
        let is_outage = |error: &&Error| error.kind() == ErrorKind::Unavailable;
        let kind = match lasting.first().map(|error| error.kind()) {
            Some(ErrorKind::Closed) => ErrorKind::Closed,
            Some(kind) if of - down.len() >= members.majority() => kind,
            _ if down.iter().any(is_outage) => ErrorKind::Unavailable,
            _ => ErrorKind::TimedOut,
        };
        let of_member = |(member, failed): &(usize, Failed)| {
            format!("{}: {}", members.location(*member), root(&failed.error))
        };
        let is_unsent = |(_, failed): &&(usize, Failed)| failed.sent == Sent::Never;
        let told: Vec<_> = failures.iter().map(of_member).collect();
        let told = match told.is_empty() {
            true => "the others did not answer in time, or are away".into(),
            false => told.join("; "),
        };
        Self {
            kind,
            why: format!("{answered} of {of} members answered ({told})"),
            made: None,
            sent: match failures.iter().filter(is_unsent).count() == of {
                true => Sent::Never,
                false => Sent::Perhaps,
            },
        }
    }

    pub(super) fn misconfigured(why: impl Into<String>) -> Self {
        Self::new(ErrorKind::Misconfigured, why)
    }

    pub(super) fn with_sent(self, sent: Sent) -> Self {
        Self { sent, ..self }
    }
}

/// Makes the failure of a call that ended with this error.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            kind: error.kind(),
            why: String::new(),
            made: Some(error),
            sent: Sent::Perhaps,
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

    fn made(&self) -> Option<&Error> {
        self.made.as_ref()
    }

    fn refusal(&self) -> Option<String> {
        let is_refused = matches!(self.kind, ErrorKind::Invalid | ErrorKind::Misconfigured);
        is_refused.then(|| self.why.clone())
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
