//! The faults that can be staged.

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A job fails.
    FailedJob,
    /// An operator evicts a holder.
    Eviction,
    /// A writer is stopped between its check and its write, for longer than its lease lasts.
    PausedWriter,
    /// The server stands still for longer than a lease lasts.
    StoppedServer,
    /// The server loses all its data.
    Flush,
}

impl Fault {
    pub(crate) const ALL: [Self; 5] = [
        Self::FailedJob,
        Self::Eviction,
        Self::PausedWriter,
        Self::StoppedServer,
        Self::Flush,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::FailedJob => "a job fails",
            Self::Eviction => "an operator evicts the leader",
            Self::PausedWriter => "a writer is stopped before its write, which its fence refuses",
            Self::StoppedServer => "the server stands still for longer than a lease lasts",
            Self::Flush => "the server loses all its data",
        }
    }
}
