//! All exit codes, and the failure that carries one.

use std::fmt;
use std::process::ExitCode;

use leasehold::{Error, ErrorKind};
use rustix::process::{Resource, Rlimit, getpid, setrlimit};
use signal_hook::low_level::emulate_default_handler;

use crate::say::{self, Loudness};

/// The exit of the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The tool did its work.
    Success,
    /// The command exited with this code.
    Command(u8),
    /// The command was ended by this signal.
    Signal(i32),
    /// The tool was told to stop by this signal, which ended its job, if it had one, or its wait.
    Told(i32),
    /// The output could not be written, as with a full disk.
    Unwritten,
    /// The name that `status --quiet` asks about is free, or has no holder that `evict` could evict.
    Free,
    /// `doctor --strict` found warnings, and no failures.
    Warned,
    /// `doctor` found failures.
    Unsound,
    /// An argument is invalid; nothing was started. As `EX_USAGE` of sysexits.
    Usage,
    /// The store cannot be reached. As `EX_UNAVAILABLE`.
    Unreachable,
    /// Another holder has the name. As `EX_TEMPFAIL`; `-E` changes it.
    NotAcquired,
    /// Authentication with the store failed, or a permission is missing. As `EX_NOPERM`.
    Denied,
    /// The store is misconfigured. As `EX_CONFIG`.
    Misconfigured,
    /// The lease was lost, and the job was stopped.
    Lost,
    /// The job ran for longer than allowed. As `timeout`.
    MaxRuntime,
    /// The tool itself failed. The code is that of `env` and `timeout`, as are the next two.
    Internal,
    /// The command exists but cannot be executed.
    NotExecutable,
    /// The command was not found.
    NotFound,
}

impl Exit {
    /// Returns the exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Command(code) => code,
            // A signal's number is at most 64, so the sum fits.
            Self::Signal(number) | Self::Told(number) => {
                u8::try_from(128 + number).unwrap_or(u8::MAX)
            }
            Self::Unwritten | Self::Free | Self::Warned => 1,
            Self::Unsound => 2,
            Self::Usage => 64,
            Self::Unreachable => 69,
            Self::NotAcquired => 75,
            Self::Denied => 77,
            Self::Misconfigured => 78,
            Self::Lost => 79,
            Self::MaxRuntime => 124,
            Self::Internal => 125,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Ends this process by the signal that told it to stop, without a core dump, so that a service manager or a shell sees
/// that it obeyed. Returns if that fails: signals do not end the first process of a machine or a container.
pub fn by_signal(number: i32) {
    if getpid().is_init() {
        return;
    }
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    if setrlimit(Resource::Core, none).is_ok() {
        let _ = emulate_default_handler(number);
    }
}

/// Why the tool stops: its exit code and its message.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    pub message: String,
    /// Minimum loudness that prints the message.
    pub loudness: Loudness,
    /// Another holder has the name, or the wait for it ran out; the user may have chosen the exit code for that.
    pub is_conflict: bool,
    /// It was printed.
    pub is_said: bool,
}

impl Failure {
    /// Makes the failure for an invalid argument.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Makes the failure for an error inside the tool.
    pub fn internal(what: &str, source: &dyn fmt::Display) -> Self {
        Self::new(Exit::Internal, format!("{what}: {source}"))
    }

    /// Adds a fact to the message, as `key=value`.
    pub fn about(mut self, fact: impl fmt::Display) -> Self {
        self.message = format!("{} {fact}", self.message);
        self
    }

    /// Prints why the tool failed, once.
    pub fn say(&mut self) {
        if !std::mem::replace(&mut self.is_said, true) {
            say::line(self.loudness, "failed", &self);
        }
    }

    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            loudness: Loudness::Quiet,
            is_conflict: false,
            is_said: false,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match error.kind() {
            ErrorKind::Invalid => Exit::Usage,
            ErrorKind::Unavailable => Exit::Unreachable,
            ErrorKind::TimedOut => Exit::NotAcquired,
            ErrorKind::Denied => Exit::Denied,
            ErrorKind::Misconfigured => Exit::Misconfigured,
            ErrorKind::Lost | ErrorKind::Stale => Exit::Lost,
            _ => Exit::Internal,
        };
        Self::new(exit, format!("{error:#}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_128_and_its_number() {
        assert_eq!(Exit::Signal(15).code(), 143);
        assert_eq!(Exit::Signal(64).code(), 192);
    }

    #[test]
    fn the_chain_names_every_source_once() {
        let error = Error::new(
            ErrorKind::Unavailable,
            "acquire failed: store unavailable name=x",
        )
        .with_source(std::io::Error::other("connection refused"));
        let failure = Failure::from(error);
        assert_eq!(failure.exit, Exit::Unreachable);
        assert_eq!(
            failure.to_string(),
            "acquire failed: store unavailable name=x: connection refused"
        );
    }
}
