//! What an answer that is no result means to the caller, and what a connection that could not be made.

use std::error::Error as StdError;
use std::io;

use mysql_async::{DriverError, Error, IoError, ServerError};

use crate::codes::mysql::{LOCKED, NO_ROOM, READ_ONLY, TAKEN_BACK, meaning as meaning_of};
use crate::error::ErrorKind::{self, Misconfigured, Unavailable};
use crate::store::Sent::{self, Answered, Perhaps};
use crate::store::record::Failure;

/// The number of the answer that there is a row of this name already.
pub(super) const DUPLICATE: u16 = 1062;
/// The remedies, where they are known.
const REMEDIES: &[(&[u16], &str)] = &[
    (&[1045, 1698], "the user or the password is wrong"),
    (&[1130], "the server lets no user in from this machine"),
    (&[1044, 1142, 1143, 1227], RIGHTS),
    (&[1049], "the database does not exist"),
    (
        &[1146],
        "its table is missing; run `leasehold init --store URL`",
    ),
    (&[1054, 1136, 1264, 1347, 1364, 1366, 1406], OTHER_TABLE),
    (
        &[1665],
        "binlog_format is STATEMENT: set it to ROW or MIXED",
    ),
    (&[3159], "the server wants TLS: add sslmode=require"),
    (
        &[LOCKED],
        "another transaction keeps the row or the table locked",
    ),
    (READ_ONLY, PRIMARY),
    (NO_ROOM, "it has no room left, or no connection"),
    (&[1047], "the node of Galera is cut off from the others"),
    (
        &[1129],
        "it keeps this machine out after errors: run FLUSH HOSTS",
    ),
];
const RIGHTS: &str = "the user needs SELECT, INSERT, UPDATE and DELETE on the table leasehold_record, and CREATE for \
                      `leasehold init`";
const OTHER_TABLE: &str = "the table leasehold_record is not the one that `leasehold init` makes";
const PRIMARY: &str = "the server is read-only; name the primary, or several hosts, in the URL";

/// The end of a request without a result.
#[derive(Debug)]
pub(super) enum Ended {
    Refused(ServerError),
    Failed(Failure),
}

impl Ended {
    /// Returns whether the statement was taken back, and can be sent again.
    pub(super) fn is_taken_back(&self) -> bool {
        matches!(self, Self::Refused(refusal) if TAKEN_BACK.contains(&refusal.code))
    }

    /// Returns whether the connection serves on.
    pub(super) fn is_of_the_statement(&self) -> bool {
        match self {
            Self::Refused(refusal) => meaning(refusal).0 != Unavailable || self.is_taken_back(),
            Self::Failed(_) => false,
        }
    }
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        match error {
            Error::Server(refusal) => Self::Refused(refusal),
            error => {
                let what = "the connection to the server ended before the answer";
                Self::Failed(Failure::new(Unavailable, Perhaps, what).with_source(error))
            }
        }
    }
}

impl From<Ended> for Failure {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Refused(refusal) => of_refusal(&refusal),
            Ended::Failed(failure) => failure,
        }
    }
}

fn of_refusal(refusal: &ServerError) -> Failure {
    let (kind, sent) = meaning(refusal);
    let what = format!("the server answered {}: {}", refusal.code, refusal.message);
    let failure = Failure::new(kind, sent, what);
    let remedy = REMEDIES
        .iter()
        .find(|(codes, _)| codes.contains(&refusal.code));
    match remedy {
        Some((_, remedy)) => failure.with_advice(*remedy),
        None => failure,
    }
}

/// Returns the kind, and whether it may have been carried out.
fn meaning(refusal: &ServerError) -> (ErrorKind, Sent) {
    let (kind, is_undone) = meaning_of(refusal.code, &refusal.state);
    let sent = if is_undone { Answered } else { Perhaps };
    (kind, sent)
}

/// Returns the failure of a server that takes no writes.
pub(super) fn read_only(server: &str) -> Failure {
    let what = format!("{server} is read-only");
    Failure::new(Unavailable, Answered, what).with_advice(PRIMARY)
}

/// Returns the failure of an answer that no table of ours gives.
pub(super) fn odd(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Failure {
    Failure::new(Misconfigured, Perhaps, OTHER_TABLE).with_source(error)
}

/// Judges the failure of a connection to this server.
pub(super) fn of_connecting(server: &str, error: Error) -> Failure {
    let (kind, what) = match &error {
        Error::Server(refusal) => return of_refusal(refusal).before_it_was_sent(),
        Error::Driver(DriverError::NoClientSslFlagFromServer) => (
            Misconfigured,
            "the server has no TLS: switch it on, or add sslmode=disable where nobody reads the network,",
        ),
        Error::Driver(DriverError::ConnectionClosed) => (Unavailable, "the server hung up"),
        Error::Io(IoError::Io(error)) => match error.kind() {
            io::ErrorKind::ConnectionRefused => (Unavailable, "no server listens"),
            // Certificates that are refused are told in this way.
            io::ErrorKind::InvalidData => (Misconfigured, "TLS failed, or no MySQL answers,"),
            io::ErrorKind::NotFound => (Unavailable, "there is no socket"),
            _ => (Unavailable, "the server was not reached"),
        },
        Error::Io(IoError::Tls(_)) => (Misconfigured, "TLS failed"),
        _ => (Misconfigured, "no login is possible"),
    };
    Failure::new(kind, Sent::Never, format!("{what} at {server}")).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind::{Denied, TimedOut};
    use crate::store::kit::backend::Failing as _;

    fn refused(code: u16, state: &str) -> Ended {
        Ended::Refused(ServerError {
            code,
            message: "no".into(),
            state: state.into(),
        })
    }

    #[test]
    fn each_answer_has_its_kind_and_says_whether_it_can_have_been_carried_out() {
        for (code, state, kind, sent) in [
            (1044, "42000", Denied, Answered),
            (1045, "28000", Denied, Answered),
            (1142, "42000", Denied, Answered),
            (1130, "HY000", Denied, Answered),
            (3118, "HY000", Denied, Answered),
            (1862, "HY000", Denied, Answered),
            (1251, "28000", Denied, Answered),
            (3159, "HY000", Misconfigured, Answered),
            (1049, "42000", Misconfigured, Answered),
            (1146, "42S02", Misconfigured, Answered),
            (1054, "42S22", Misconfigured, Answered),
            (1064, "42000", Misconfigured, Answered),
            (1665, "HY000", Misconfigured, Answered),
            (1105, "HY000", Misconfigured, Perhaps),
            (1205, "HY000", TimedOut, Answered),
            (3024, "HY000", TimedOut, Perhaps),
            (1969, "70100", TimedOut, Perhaps),
            (1213, "40001", Unavailable, Answered),
            (1614, "40000", Unavailable, Answered),
            (1290, "HY000", Unavailable, Answered),
            (1792, "25006", Unavailable, Answered),
            (1836, "HY000", Unavailable, Answered),
            (1040, "08004", Unavailable, Answered),
            (1203, "42000", Unavailable, Answered),
            (1226, "42000", Unavailable, Answered),
            (1047, "08S01", Unavailable, Answered),
            (1114, "HY000", Unavailable, Answered),
            (1053, "08S01", Unavailable, Perhaps),
            (1317, "70100", Unavailable, Perhaps),
            (1156, "08S01", Unavailable, Perhaps),
            (4031, "HY000", Unavailable, Perhaps),
            (2013, "HY000", Unavailable, Perhaps),
            (9001, "HY000", Unavailable, Perhaps),
        ] {
            let failure = Failure::from(refused(code, state));
            assert_eq!((failure.kind(), failure.sent()), (kind, sent), "{code}");
        }
    }

    #[test]
    fn only_what_was_taken_back_is_sent_again_and_an_outage_ends_the_connection() {
        for (code, is_taken_back, serves_on) in [
            (1213, true, true),
            (1020, true, true),
            (1062, false, true),
            (1146, false, true),
            (1205, false, true),
            (1290, false, false),
            (1047, false, false),
            (1053, false, false),
            (1317, false, false),
        ] {
            let ended = refused(code, "HY000");
            assert_eq!(ended.is_taken_back(), is_taken_back, "{code}");
            assert_eq!(ended.is_of_the_statement(), serves_on, "{code}");
        }
    }

    #[test]
    fn a_missing_table_names_the_command() {
        let failure = Failure::from(refused(1146, "42S02"));
        let error = failure.during("acquire", "name=a").to_string();
        assert!(error.contains("leasehold init"), "{error}");
    }
}
