//! The failures of requests, and the kinds of errors that they become. Nothing else matches the two.
//!
//! No value here contains a URL, so no password can reach a message or a source. Of a server's error only the code and
//! the message are kept, because its details can contain other clients' rows.

use std::error::Error as StdError;
use std::io;

use tokio_postgres::error::Severity;

use crate::codes;
use crate::error::ErrorKind;
use crate::store::Sent;
use crate::store::kit::backend::Failing;
use crate::store::kit::connection::Unconnected;

/// Why a request failed.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Failure {
    /// There was no connection. Nothing was sent.
    #[error(transparent)]
    Unconnected(#[from] Unconnected),
    /// No reply arrived within the limit. The request may have been carried out.
    #[error("no answer in time")]
    Silent,
    /// The connection could not be made, because of this failure. Nothing was sent.
    #[error(transparent)]
    Unsent(Box<Self>),
    /// It was at this one of several servers that the connection could not be made.
    #[error("{0}: {1}")]
    At(String, Box<Self>),
    /// The connection was already closed before the request was sent.
    #[error("the connection was closed")]
    Ended,
    /// No connection was made, because the server has not ended others that were given up. Nothing was sent.
    #[error("the server still works on what was sent on connections that were given up")]
    GivenUp,
    /// The connection broke, or could not be made. The request may have been carried out.
    #[error("{text}")]
    Broken { text: String, kind: ErrorKind },
    /// The server answered with an error.
    #[error("{code} {text}")]
    Refused {
        /// An SQLSTATE code.
        code: String,
        text: String,
        is_fatal: bool,
    },
    /// The server stopped waiting for its standby, and committed without it.
    #[error("the server committed without its synchronous standby")]
    Unreplicated,
    /// The server sent a reply that none of our functions sends.
    #[error("unexpected reply {0}")]
    Odd(String),
    /// An argument is outside its limits.
    #[error("argument refused {0}")]
    Argument(String),
    /// The ttl is longer than what the set-up allows.
    #[error("ttl refused ttl_ms={ttl_ms} max_ttl_ms={max_ttl_ms}")]
    TooLong { ttl_ms: u64, max_ttl_ms: u64 },
    /// The name has no tokens left.
    #[error("no tokens are left {0}")]
    Exhausted(String),
}

/// The driver's message for a server that takes no writes.
const READ_ONLY: &str = "does not allow writes";
/// Another transaction holds a lock that the request needs.
const LOCKED: &str = "55P03";
/// The row of `lineage` is missing.
const NO_LINEAGE: &str = "LH001";

impl Failure {
    /// Returns whether the connection is unusable.
    pub(super) fn is_broken(&self) -> bool {
        match self {
            Self::Ended | Self::Broken { .. } | Self::Unreplicated => true,
            // A server that has become a standby stays one.
            Self::Refused { code, is_fatal, .. } => *is_fatal || code == "25006",
            _ => false,
        }
    }

    /// Returns whether there was no connection for the request.
    pub(super) fn is_unconnected(&self) -> bool {
        match self {
            Self::At(_, why) => why.is_unconnected(),
            _ => matches!(self, Self::Unsent(_) | Self::GivenUp),
        }
    }

    /// Returns whether no connection was asked for, because others that were given up have not ended.
    pub(super) fn is_of_given_up(&self) -> bool {
        match self {
            Self::Unsent(why) | Self::At(_, why) => why.is_of_given_up(),
            _ => matches!(self, Self::GivenUp),
        }
    }

    /// Returns whether the server, or a pooler before it, has no room for another connection.
    pub(super) fn is_of_room(&self) -> bool {
        match self {
            Self::Unsent(why) | Self::At(_, why) => why.is_of_room(),
            Self::Refused { code, text, .. } => {
                let says = |words| text.contains(words);
                code == "53300"
                    || code == "08P01" && (says("no more connections") || says("too many"))
            }
            _ => false,
        }
    }

    /// Returns whether a server answered that it takes no writes, while a primary was sought.
    pub(super) fn is_read_only(&self) -> bool {
        matches!(self, Self::Unsent(why) | Self::At(_, why) if why.to_string().contains(READ_ONLY))
    }

    /// Returns whether another transaction kept a lock for longer than the server waits for it.
    pub(super) fn is_of_lock(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == LOCKED)
    }

    /// Returns whether another run of `init` made the same at the same moment.
    pub(super) fn is_of_other_init(&self) -> bool {
        match self {
            Self::Refused { code, text, .. } => {
                ["23505", "42P06", "42P07", "42710", "42723"].contains(&&**code)
                    || text.contains("tuple concurrently")
            }
            _ => false,
        }
    }

    /// Returns whether the request certainly was not carried out, so that it can be sent again.
    pub(super) fn is_to_be_repeated(&self) -> bool {
        match self {
            Self::Refused { code, text, .. } => {
                code == "40001" || code == "40P01" || codes::postgres::is_of_old_plan(code, text)
            }
            _ => false,
        }
    }

    /// Makes the failure of a connection that could not be made.
    pub(super) fn unmade(error: &tokio_postgres::Error) -> Self {
        Self::Unsent(Box::new(Self::of_request(error)))
    }

    /// Makes the failure of a step before a connection, which may succeed later.
    pub(super) fn before_connecting(text: String) -> Self {
        let kind = ErrorKind::Unavailable;
        Self::Unsent(Box::new(Self::Broken { text, kind }))
    }

    /// Makes the failure of a renewal that skipped its row, because another transaction has it locked.
    pub(super) fn locked() -> Self {
        Self::Refused {
            code: LOCKED.into(),
            text: "the row was locked".into(),
            is_fatal: false,
        }
    }

    /// Makes the failure of a request.
    pub(super) fn of_request(error: &tokio_postgres::Error) -> Self {
        let Some(refusal) = error.as_db_error() else {
            return Self::of_break(error);
        };
        let severity = refusal.parsed_severity();
        Self::Refused {
            code: refusal.code().code().into(),
            text: refusal.message().into(),
            is_fatal: matches!(severity, Some(Severity::Fatal | Severity::Panic)),
        }
    }

    /// Makes the failure of a connection that broke, or could not be made, without a word of the server.
    fn of_break(error: &tokio_postgres::Error) -> Self {
        let mut text = error.to_string();
        let mut io_kind = None;
        let mut cause = error.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            let io: Option<&io::Error> = error.downcast_ref();
            io_kind = io_kind.or(io.map(io::Error::kind));
            cause = error.source();
        }
        let kind = match io_kind {
            // None of several servers accepted writes.
            Some(io::ErrorKind::PermissionDenied) if text.contains(READ_ONLY) => {
                ErrorKind::Unavailable
            }
            Some(io::ErrorKind::PermissionDenied) => ErrorKind::Denied,
            // A refused certificate is reported in this way.
            Some(io::ErrorKind::InvalidData) => ErrorKind::Misconfigured,
            Some(_) => ErrorKind::Unavailable,
            None if error.is_closed() || text.starts_with("timeout") => ErrorKind::Unavailable,
            None if text.contains("password missing") => ErrorKind::Denied,
            None => ErrorKind::Misconfigured,
        };
        Self::Broken { text, kind }
    }
}

impl Failing for Failure {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Unconnected(why) => why.kind(),
            Self::Silent => ErrorKind::TimedOut,
            Self::Ended | Self::GivenUp | Self::Unreplicated => ErrorKind::Unavailable,
            Self::Unsent(why) | Self::At(_, why) => why.kind(),
            Self::Broken { kind, .. } => *kind,
            Self::Refused { code, text, .. } => codes::postgres::kind(code, text),
            Self::Argument(_) | Self::TooLong { .. } => ErrorKind::Invalid,
            Self::Odd(_) | Self::Exhausted(_) => ErrorKind::Misconfigured,
        }
    }

    fn sent(&self) -> Sent {
        match self {
            Self::Unconnected(_) | Self::Unsent(_) | Self::At(..) => Sent::Never,
            Self::Ended | Self::GivenUp => Sent::Never,
            Self::Argument(_) | Self::TooLong { .. } | Self::Exhausted(_) => Sent::Answered,
            Self::Refused { code, is_fatal, .. } if !is_fatal && proves_nothing_was_done(code) => {
                Sent::Answered
            }
            Self::Refused { .. } | Self::Silent | Self::Broken { .. } => Sent::Perhaps,
            Self::Unreplicated | Self::Odd(_) => Sent::Perhaps,
        }
    }

    fn refusal(&self) -> Option<String> {
        match self {
            Self::Argument(argument) => Some(format!("outside the store's limits {argument}")),
            Self::TooLong { ttl_ms, max_ttl_ms } => Some(format!(
                "the ttl is longer than the store's longest, which `leasehold init --max-ttl` sets ttl_ms={ttl_ms} \
                 max_ttl_ms={max_ttl_ms}"
            )),
            Self::Exhausted(token) => Some(format!("no tokens are left below 2^53 {token}")),
            _ => None,
        }
    }

    fn advice(&self) -> Option<String> {
        match self {
            Self::Unsent(why) | Self::At(_, why) => why.advice(),
            Self::Refused { code, .. } => advice(code).map(Into::into),
            Self::GivenUp => Some("`leasehold doctor` may say what its commits wait for".into()),
            _ => None,
        }
    }
}

/// Returns whether the statement was rolled back, or never started. Codes that a pooler can send are not among them.
fn proves_nothing_was_done(code: &str) -> bool {
    match code.get(..2).unwrap_or_default() {
        // A missing feature, bad data, a constraint, a missing function or permission.
        "0A" | "22" | "23" | "42" => true,
        _ => ["25006", "40001", "40P01", "53100", LOCKED, NO_LINEAGE].contains(&code),
    }
}

/// Returns the remedy for what a server answered with this code.
fn advice(code: &str) -> Option<&'static str> {
    Some(match code {
        "3D000" => "the database does not exist",
        "3F000" | "42P01" | "42883" | "42703" | NO_LINEAGE => {
            "its tables or functions are missing; run `leasehold init --store URL`"
        }
        "25006" => "the server is a standby, or read-only",
        LOCKED => "another transaction keeps the row or table locked",
        "26000" | "42P05" => "a pooler between client and server mixes sessions",
        "53100" => "the disk is full",
        "22021" | "22P05" => "the database's encoding is not UTF8",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: &str, text: &str) -> Failure {
        Failure::Refused {
            code: code.into(),
            text: text.into(),
            is_fatal: false,
        }
    }

    #[test]
    fn each_code_tells_what_to_do() {
        for (kind, codes) in [
            (ErrorKind::Denied, &["28000", "28P01", "42501"] as &[&str]),
            (
                ErrorKind::Unavailable,
                &[
                    "08000", "08001", "08003", "08004", "08006", "08007", "08P01", "25006",
                    "25P03", "25P04", "40001", "40003", "40P01", "53000", "53100", "53200",
                    "53300", "53400", "55000", "57P01", "57P02", "57P03", "57P04", "57P05",
                    "58000", "58030",
                ],
            ),
            (ErrorKind::TimedOut, &["55P03", "57014"]),
            (
                ErrorKind::Misconfigured,
                &[
                    "0A000", "3D000", "3F000", "42P01", "42883", "42703", "26000", "42P05",
                    "54000", "XX000", "XX002", "22021", "22P05", "LH001", "",
                ],
            ),
        ] {
            for code in codes {
                assert_eq!(refused(code, "").kind(), kind, "{code}");
            }
        }
        let plan = refused("0A000", "cached plan must not change result type");
        assert_eq!(plan.kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn of_what_a_pooler_says_only_a_wrong_name_or_protocol_lasts() {
        for (text, kind) in [
            ("server conn crashed?", ErrorKind::Unavailable),
            (
                "server login failed: FATAL the database system is starting up",
                ErrorKind::Unavailable,
            ),
            (
                "server login has been failing, try again later (server_login_retry)",
                ErrorKind::Unavailable,
            ),
            ("query_wait_timeout", ErrorKind::Unavailable),
            (
                "no more connections allowed (max_client_conn)",
                ErrorKind::Unavailable,
            ),
            ("database \"x\" is disabled", ErrorKind::Unavailable),
            (
                "server login failed: FATAL password authentication failed for user \"x\"",
                ErrorKind::Unavailable,
            ),
            ("SASL authentication failed", ErrorKind::Denied),
            ("password authentication failed", ErrorKind::Denied),
            ("no such user: x", ErrorKind::Denied),
            ("login not allowed", ErrorKind::Denied),
            ("no such database: x", ErrorKind::Misconfigured),
            ("database \"x\" does not exist", ErrorKind::Misconfigured),
            ("unsupported startup parameter: x", ErrorKind::Misconfigured),
            ("invalid protocol version", ErrorKind::Misconfigured),
        ] {
            assert_eq!(refused("08P01", text).kind(), kind, "{text}");
        }
    }

    #[test]
    fn a_connection_to_a_standby_is_given_up() {
        assert!(refused("25006", "").is_broken());
    }

    #[test]
    fn only_what_was_certainly_not_done_is_repeated() {
        assert!(refused("40001", "").is_to_be_repeated());
        assert!(refused("40P01", "").is_to_be_repeated());
        assert!(refused("0A000", "cached plan must not change result type").is_to_be_repeated());
        assert!(!refused("0A000", "").is_to_be_repeated());
        assert!(!refused("57P01", "").is_to_be_repeated());
        assert!(!Failure::Silent.is_to_be_repeated());
    }

    #[test]
    fn only_a_code_that_proves_it_says_that_nothing_was_done() {
        for code in [
            "55P03", "40001", "40P01", "25006", "42501", "42883", "53100", "LH001",
        ] {
            assert_eq!(refused(code, "").sent(), Sent::Answered, "{code}");
        }
        for code in ["57P01", "57014", "08P01", "XX000", "53300"] {
            assert_eq!(refused(code, "").sent(), Sent::Perhaps, "{code}");
        }
        let unconnected = Failure::Unsent(Box::new(refused("53300", "")));
        assert_eq!(unconnected.sent(), Sent::Never);
        assert_eq!(Failure::from(Unconnected::Late).sent(), Sent::Never);
        assert_eq!(Failure::Silent.sent(), Sent::Perhaps);
        assert_eq!(Failure::Unreplicated.sent(), Sent::Perhaps);
    }

    #[test]
    fn a_missing_schema_names_the_command() {
        for code in ["3F000", "42P01", "42883", "LH001"] {
            let error = refused(code, "gone").during("acquire", "name=a");
            assert!(error.to_string().contains("leasehold init"), "{error}");
        }
    }
}
