//! The outcome of a job, and its exit code.

use crate::channel::End;
use crate::exit::Exit;
use crate::timeline::Cause;

/// The end of a job and of the processes that it started.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How the command ended, and the cause if the job was being ended at that time. `None` if its end was not seen.
    pub end: Option<(End, Option<Cause>)>,
    /// Whether the tool had to kill the job, because the guardian did not.
    pub is_killed_by_tool: bool,
    /// Whether the tool was told to stop by the signal that ended the command.
    pub is_told: bool,
    /// Processes that left the session and are still running.
    pub strays: Vec<i32>,
    /// Processes that could not be ended.
    pub left: Vec<i32>,
}

impl Outcome {
    /// Returns why the job was ended; `None` if it ended by itself.
    pub fn cause(&self) -> Option<Cause> {
        match self.end {
            _ if self.is_killed_by_tool => Some(Cause::Deadline),
            Some((_, None | Some(Cause::CommandEnded))) => None,
            Some((_, cause)) => cause,
            None => Some(Cause::GuardianGone),
        }
    }

    /// Returns the exit of the run.
    pub fn exit(&self) -> Exit {
        match (self.cause(), self.end) {
            (None, Some((End::Code(code), _))) => Exit::Command(code),
            (None, Some((End::Signal(number), _))) if self.is_told => Exit::Told(number),
            (None, Some((End::Signal(number), _))) => Exit::Signal(number),
            (Some(Cause::MaxRuntime), _) => Exit::MaxRuntime,
            _ => Exit::Lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(end: End, cause: Option<Cause>) -> Outcome {
        Outcome {
            end: Some((end, cause)),
            ..Outcome::default()
        }
    }

    #[test]
    fn a_job_that_ended_by_itself_is_passed_on() {
        let left_some = Some(Cause::CommandEnded);
        assert_eq!(ended(End::Code(3), None).exit(), Exit::Command(3));
        assert_eq!(ended(End::Code(3), left_some).exit(), Exit::Command(3));
        assert_eq!(ended(End::Signal(9), None).exit(), Exit::Signal(9));
        let told = Outcome {
            is_told: true,
            ..ended(End::Signal(15), None)
        };
        assert_eq!(told.exit(), Exit::Told(15));
    }

    #[test]
    fn a_job_that_was_ended_is_told_apart_whatever_its_own_code() {
        assert_eq!(ended(End::Code(0), Some(Cause::Refused)).exit(), Exit::Lost);
        let too_long = Some(Cause::MaxRuntime);
        assert_eq!(ended(End::Code(0), too_long).exit(), Exit::MaxRuntime);
        assert_eq!(Outcome::default().exit(), Exit::Lost);
    }

    #[test]
    fn a_job_that_was_killed_without_the_guardian_is_a_loss() {
        let mut outcome = ended(End::Signal(9), None);
        outcome.is_killed_by_tool = true;
        assert_eq!(outcome.exit(), Exit::Lost);
    }
}
