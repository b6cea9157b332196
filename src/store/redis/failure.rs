//! The failures of requests, and the kinds of errors that they become. Nothing else matches the two.
//!
//! No value here contains a URL, so no password can reach a message or a source.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;

use deadpool_redis::PoolError;
use deadpool_redis::redis::{self, RedisError};

use crate::codes;
use crate::codes::redis::Meaning;
use crate::error::ErrorKind;
use crate::store::Sent;
use crate::store::kit::backend::Failing;
use crate::store::kit::connection::Unconnected;
use crate::store::kit::server_url::HostPort;

/// The failure of a request.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(super) cause: FailureCause,
    kind: ErrorKind,
    /// How far the request came, in any of its attempts.
    sent: Sent,
    /// The server that it is of, where a store has several.
    at: Option<HostPort>,
    /// The server ended the connection without any answer on it.
    is_without_answer: bool,
}

/// The probable peer of a connection that ends without an answer.
const ODD_SERVER: &str = "the connection ended without an answer: the server stops, is no Redis, or wants TLS (rediss://), \
                          or it is a proxy whose server is away or that does not know our commands";

/// Why the last attempt failed.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum FailureCause {
    /// The store was closed by its owner.
    #[error("closed")]
    Closed,
    /// No reply arrived within the limit. The request may have been carried out.
    #[error("no answer in time")]
    Silent,
    /// The connection was already closed when the request should have been sent. The connection's task, on another
    /// thread, may have sent it all the same, and lost the connection before this was seen.
    #[error("{0}")]
    FoundClosed(RedisError),
    /// The connection could not be made, or broke. The request may have been carried out.
    #[error("{0}")]
    Broken(RedisError),
    /// The server answered with an error.
    #[error("{code} {text}")]
    Refused { code: String, text: String },
    /// No node of a cluster serves the slot of the request.
    #[error("no node of the cluster that can be reached serves the slot {0}")]
    Unserved(u16),
    /// Another server took over before the answer counted. The request may have been carried out, on a server whose
    /// writes no longer count, or on the new one.
    #[error("another server has taken over")]
    Deposed,
    /// The server sent a reply that no script of this store sends.
    #[error("unexpected reply {0}")]
    Odd(String),
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
}

/// The next step when the server answers that nothing was executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Redirect {
    /// Ask the server at this address from now on.
    Moved(String),
    /// Ask the server at this address this once.
    Asked(String),
    /// Ask again in a moment.
    Later,
}

impl From<FailureCause> for Failure {
    fn from(cause: FailureCause) -> Self {
        let (kind, sent) = match &cause {
            FailureCause::Closed => (ErrorKind::Closed, Sent::Never),
            FailureCause::Silent => (ErrorKind::TimedOut, Sent::Perhaps),
            FailureCause::Unserved(_) => (ErrorKind::Unavailable, Sent::Never),
            FailureCause::Deposed => (ErrorKind::Unavailable, Sent::Perhaps),
            FailureCause::FoundClosed(error) | FailureCause::Broken(error) => {
                (kind_of_connection(error), Sent::Perhaps)
            }
            FailureCause::Refused { code, text } => {
                let sent = match redirect(code, text) {
                    Some(_) => Sent::Answered,
                    None => Sent::Perhaps,
                };
                (kind_of_refusal(code, text), sent)
            }
            FailureCause::Odd(_) | FailureCause::Other(_) => {
                (ErrorKind::Misconfigured, Sent::Perhaps)
            }
        };
        Self::new(cause, kind, sent)
    }
}

impl From<Unconnected> for Failure {
    fn from(why: Unconnected) -> Self {
        match why {
            Unconnected::Closed => FailureCause::Closed.into(),
            Unconnected::Late => FailureCause::Silent.into(),
            _ => Self::other(ErrorKind::Unavailable, Sent::Never, why.to_string()),
        }
    }
}

impl Failure {
    const fn new(cause: FailureCause, kind: ErrorKind, sent: Sent) -> Self {
        Self {
            cause,
            kind,
            sent,
            at: None,
            is_without_answer: false,
        }
    }

    /// Makes this the failure of the server at this endpoint, one of several.
    pub(super) fn at(self, endpoint: &HostPort) -> Self {
        let at = Some(endpoint.clone());
        Self { at, ..self }
    }

    /// Makes this the failure of a connection on which the server has answered nothing.
    pub(super) fn without_answer(self) -> Self {
        let is_without_answer = match &self.cause {
            FailureCause::Broken(error) | FailureCause::FoundClosed(error) => {
                error.is_connection_dropped()
            }
            _ => false,
        };
        Self {
            is_without_answer,
            ..self
        }
    }

    /// Makes a failure of this kind, in words. With `Invalid` retrying the request can never succeed.
    pub(super) fn other(kind: ErrorKind, sent: Sent, words: impl Into<String>) -> Self {
        Self::new(FailureCause::Other(words.into()), kind, sent)
    }

    /// Makes the failure of a reply that no script of this store sends.
    pub(super) fn odd(reply: impl fmt::Display) -> Self {
        FailureCause::Odd(reply.to_string()).into()
    }

    /// Makes this the failure of a step before the request: it was never sent.
    pub(super) fn before_the_request(self) -> Self {
        let sent = Sent::Never;
        Self { sent, ..self }
    }

    /// Makes this the failure of a request that may have been sent before: whatever happened the second time, the first
    /// may have been carried out.
    pub(super) fn after_another_try(self) -> Self {
        let sent = Sent::Perhaps;
        Self { sent, ..self }
    }

    /// Returns the code and the text of the server's answer to the request.
    fn answer(&self) -> Option<(&str, &str)> {
        match &self.cause {
            FailureCause::Refused { code, text } if self.sent != Sent::Never => Some((code, text)),
            _ => None,
        }
    }

    /// Returns whether the server answered with an error, other than that another one serves this request.
    pub(super) fn is_refusal(&self) -> bool {
        self.answer().is_some() && self.redirect().is_none()
    }

    /// Returns whether the server lacks our scripts, as after a restart or a failover.
    pub(super) fn is_no_script(&self) -> bool {
        matches!(self.answer(), Some(("NOSCRIPT", _)))
    }

    /// Makes this the failure at an address that has carried out writes: there a replica is a server that was demoted,
    /// and a new master will come.
    pub(super) fn after_a_write(self) -> Self {
        match self.is_of_replica() {
            true => self.not_serving(),
            false => self,
        }
    }

    /// Returns what to do about a failure that says that nothing was carried out, where several servers serve the
    /// slots. `None` for every other failure.
    pub(super) fn redirect(&self) -> Option<Redirect> {
        match self.cause {
            FailureCause::Unserved(_) => Some(Redirect::Later),
            _ => self.answer().and_then(|(code, text)| redirect(code, text)),
        }
    }

    /// Makes this the failure of a request that no server accepts at the moment, until one is found.
    pub(super) fn not_serving(self) -> Self {
        let kind = ErrorKind::Unavailable;
        match self.redirect() {
            None => self,
            Some(_) => Self { kind, ..self },
        }
    }

    /// Returns whether the server takes no further connection. It says so on the connection, or ends it with these
    /// words.
    pub(super) fn is_of_too_many_clients(&self) -> bool {
        self.cause.to_string().contains("max number of clients")
    }

    /// Returns whether the server could not be reached, or did not answer: another one may have taken over.
    pub(super) const fn is_of_connection(&self) -> bool {
        use FailureCause::{Broken, Deposed, FoundClosed, Silent};
        matches!(self.cause, Silent | Deposed | FoundClosed(_) | Broken(_))
    }

    /// Returns whether the server of this connection is a replica, which has carried nothing out.
    pub(super) fn is_of_replica(&self) -> bool {
        (self.answer()).is_some_and(|(code, text)| is_of_replica(code, text))
    }

    /// Returns whether a batch was refused because of one of its keys, so that its other keys may succeed without it.
    pub(super) fn is_of_one_key(&self) -> bool {
        // "no permissions to access a key", but not "no permissions to run the 'evalsha' command".
        self.answer().is_some_and(|(code, text)| {
            code == "CROSSSLOT" || code == "NOPERM" && text.contains("to access")
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Some(endpoint) => write!(f, "{endpoint}: {}", self.cause),
            None => self.cause.fmt(f),
        }
    }
}

impl StdError for Failure {}

impl Failing for Failure {
    fn kind(&self) -> ErrorKind {
        self.kind
    }

    fn sent(&self) -> Sent {
        self.sent
    }

    fn refusal(&self) -> Option<String> {
        match (&self.cause, self.kind) {
            (FailureCause::Other(words), ErrorKind::Invalid | ErrorKind::Misconfigured) => {
                Some(words.clone())
            }
            _ => None,
        }
    }

    // The fault of the URL, if the server's answer shows it.
    fn advice(&self) -> Option<String> {
        let (code, text) = match &self.cause {
            FailureCause::Refused { code, text } => (code, text.to_lowercase()),
            // The driver does not pass on the words of the server.
            FailureCause::Broken(error)
                if error.kind() == redis::ErrorKind::AuthenticationFailed =>
            {
                return Some("the password is wrong, or the server has none set".into());
            }
            _ => return self.is_without_answer.then(|| ODD_SERVER.into()),
        };
        let says = |words| code == "ERR" && text.contains(words);
        let lacks = |command| code == "ERR" && unknown_command(&text) == Some(command);
        let advice = match &**code {
            // A claim has a key in two slots.
            "MOVED" | "ASK" | "CROSSSLOT" => {
                "this server is a node of a cluster: use redis+cluster://"
            }
            "NOAUTH" => "the server wants a password",
            _ if says("unauthenticated") => "the server wants a password",
            _ if lacks("evalsha") => {
                "this server runs no scripts: it is a Sentinel (use redis+sentinel://HOST/NAME), a proxy, or a server \
                 that forbids EVALSHA"
            }
            _ if lacks("sentinel") => {
                "this server is no Sentinel (use redis://), a proxy, or a Sentinel that forbids the command"
            }
            _ if says("cluster support disabled") => {
                "this server is not a node of a cluster: use redis://"
            }
            _ => return None,
        };
        Some(advice.into())
    }
}

/// Returns the command that the server says it does not know: "unknown command 'evalsha', with args beginning with:".
fn unknown_command(text: &str) -> Option<&str> {
    let quoted = text.strip_prefix("unknown command ")?;
    quoted.split(['\'', '`', '"']).nth(1)
}

fn kind_of_connection(error: &RedisError) -> ErrorKind {
    match error.kind() {
        redis::ErrorKind::AuthenticationFailed => ErrorKind::Denied,
        redis::ErrorKind::Io => match kind_of_io(error) {
            Some(io::ErrorKind::PermissionDenied) => ErrorKind::Denied,
            // A refused certificate is reported in this way.
            Some(io::ErrorKind::InvalidData) => ErrorKind::Misconfigured,
            _ => ErrorKind::Unavailable,
        },
        _ => ErrorKind::Misconfigured,
    }
}

/// Returns the kind of an error of the operating system, which the crate keeps behind an `Arc`.
fn kind_of_io(error: &RedisError) -> Option<io::ErrorKind> {
    let shared = error
        .source()?
        .downcast_ref::<Arc<dyn StdError + Send + Sync>>()?;
    shared.downcast_ref::<io::Error>().map(io::Error::kind)
}

fn redirect(code: &str, text: &str) -> Option<Redirect> {
    // "MOVED 3999 127.0.0.1:6381"
    let address = || text.split(' ').nth(1).unwrap_or_default().to_owned();
    match code {
        "MOVED" => Some(Redirect::Moved(address())),
        "ASK" => Some(Redirect::Asked(address())),
        // The error of a script that has begun names the script.
        "TRYAGAIN" | "CLUSTERDOWN" if !text.contains("script") => Some(Redirect::Later),
        "NOSCRIPT" => Some(Redirect::Later),
        _ if is_of_replica(code, text) => Some(Redirect::Later),
        _ => None,
    }
}

fn is_of_replica(code: &str, text: &str) -> bool {
    codes::redis::meaning(code, text) == Some(Meaning::Replica)
}

fn kind_of_refusal(code: &str, text: &str) -> ErrorKind {
    match codes::redis::meaning(code, text) {
        Some(Meaning::Passing) => ErrorKind::Unavailable,
        Some(Meaning::Denied) => ErrorKind::Denied,
        // A URL that names a replica or one node of a cluster, and everything else that an operator has to change.
        _ => ErrorKind::Misconfigured,
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        if error.is_timeout() {
            return FailureCause::Silent.into();
        }
        let cause = match (error.kind(), error.code()) {
            (redis::ErrorKind::Server(_) | redis::ErrorKind::Extension, Some(code)) => {
                FailureCause::Refused {
                    code: code.into(),
                    text: error.detail().unwrap_or_default().into(),
                }
            }
            _ => FailureCause::Broken(error),
        };
        cause.into()
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        RedisError::from(error).into()
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => error.into(),
            PoolError::Timeout(_) => FailureCause::Silent.into(),
            PoolError::Closed => FailureCause::Closed.into(),
            other => FailureCause::Other(other.to_string()).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: &str, text: &str) -> Failure {
        let (code, text) = (code.into(), text.into());
        FailureCause::Refused { code, text }.into()
    }

    #[test]
    fn a_password_that_is_missing_or_wrong_is_told_in_words() {
        let wrong = (redis::ErrorKind::AuthenticationFailed, "refused");
        for (failure, words) in [
            (
                refused("NOAUTH", "Authentication required."),
                "wants a password",
            ),
            (
                refused("ERR", "Protocol error: unauthenticated bulk length"),
                "wants a password",
            ),
            (
                FailureCause::Broken(wrong.into()).into(),
                "the password is wrong, or",
            ),
        ] {
            let error = failure.during("acquire", "name=a");
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        }
    }

    #[test]
    fn a_command_that_the_server_lacks_is_not_taken_for_one_cause() {
        let advice = |text| refused("ERR", text).advice();
        for text in [
            "unknown command 'EVALSHA', with args beginning with: 'a' ",
            "unknown command `evalsha`, with args beginning with: `a`, ",
        ] {
            let advice = advice(text).expect("advice");
            for word in ["Sentinel", "proxy", "forbids EVALSHA"] {
                assert!(advice.contains(word), "{advice}");
            }
        }
        let lacks_sentinel = advice("unknown command 'SENTINEL', with args beginning with: 'MYID'");
        assert!(lacks_sentinel.expect("advice").contains("redis://"));
        for text in [
            "unknown command 'TIME', with args beginning with: 'evalsha' ",
            "Error running script: the key sentinel",
            "evalsha is slow",
        ] {
            assert_eq!(advice(text), None, "{text}");
        }
    }

    #[test]
    fn a_connection_that_ends_without_an_answer_says_what_may_be_there() {
        let broken = || Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(broken().advice(), None);
        let unanswered = broken().without_answer();
        let advice = unanswered.advice().expect("advice");
        assert!(
            advice.contains("no Redis") && advice.contains("proxy"),
            "{advice}"
        );
        assert_eq!(unanswered.kind(), ErrorKind::Unavailable);
        let refused = Failure::from(io::Error::from(io::ErrorKind::PermissionDenied));
        assert_eq!(refused.without_answer().advice(), None);
    }

    #[test]
    fn a_failure_names_its_server_once_and_before_its_cause() {
        let endpoint = HostPort::new("db", 7_000);
        let failure = Failure::from(FailureCause::Silent).at(&endpoint);
        assert_eq!(failure.to_string(), "db:7000: no answer in time");
    }

    fn kind(code: &str, text: &str) -> ErrorKind {
        refused(code, text).kind()
    }

    #[test]
    fn each_code_tells_what_to_do() {
        for code in [
            "LOADING",
            "CLUSTERDOWN",
            "BUSY",
            "NOREPLICAS",
            "OOM",
            "MISCONF",
        ] {
            assert_eq!(kind(code, ""), ErrorKind::Unavailable, "{code}");
        }
        for code in ["WRONGPASS", "NOAUTH", "NOPERM"] {
            assert_eq!(kind(code, ""), ErrorKind::Denied, "{code}");
        }
        for code in [
            "READONLY",
            "MASTERDOWN",
            "MOVED",
            "WRONGTYPE",
            "ERR",
            "CROSSSLOT",
        ] {
            assert_eq!(kind(code, ""), ErrorKind::Misconfigured, "{code}");
        }
    }

    #[test]
    fn only_what_proves_that_nothing_was_done_closes_a_claim() {
        let sent = |code: &str, text: &str| refused(code, text).sent();
        for code in ["NOSCRIPT", "READONLY"] {
            assert_eq!(sent(code, ""), Sent::Answered, "{code}");
        }
        let text = "Error running script (call to f_0): @user_script:1: -READONLY You can't write";
        assert_eq!(sent("ERR", text), Sent::Answered);
        for code in ["NOPERM", "OOM", "WRONGTYPE", "ERR", "LOADING"] {
            assert_eq!(sent(code, ""), Sent::Perhaps, "{code}");
        }
        let silent = Failure::from(FailureCause::Silent);
        assert_eq!(Failure::odd("").sent(), Sent::Perhaps);
        assert_eq!(silent.sent(), Sent::Perhaps);
        assert_eq!(silent.before_the_request().sent(), Sent::Never);
    }

    #[test]
    fn a_connection_that_was_found_closed_does_not_prove_that_nothing_left() {
        let closed = RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        let closed = FailureCause::FoundClosed(closed);
        let answered = Failure::other(ErrorKind::Misconfigured, Sent::Answered, "a member");
        assert_eq!(Failure::from(closed.clone()).sent(), Sent::Perhaps);
        let others = [FailureCause::Closed, FailureCause::Silent, closed].map(Failure::from);
        for failure in others.into_iter().chain([answered]) {
            let kind = failure.kind();
            let failure = failure.after_another_try();
            assert_eq!((failure.sent(), failure.kind()), (Sent::Perhaps, kind));
        }
    }

    #[test]
    fn an_answer_to_the_second_time_does_not_speak_for_the_first() {
        let refused = |code: &str| refused(code, "1 a:2");
        let again = |code| refused(code).after_another_try();
        for code in ["READONLY", "NOSCRIPT", "MOVED", "ASK"] {
            assert_eq!(again(code).sent(), Sent::Perhaps, "{code}");
            assert_eq!(again(code).not_serving().sent(), Sent::Perhaps, "{code}");
            assert_eq!(again(code).redirect(), refused(code).redirect(), "{code}");
        }
        assert_eq!(again("READONLY").after_a_write().sent(), Sent::Perhaps);
        assert_eq!(refused("READONLY").after_a_write().sent(), Sent::Answered);
    }

    #[test]
    fn only_a_refusal_for_a_key_splits_a_batch() {
        for text in [
            "No permissions to access a key",
            "this user has no permissions to access one of the keys used as arguments",
        ] {
            assert!(refused("NOPERM", text).is_of_one_key(), "{text}");
        }
        let text = "User a has no permissions to run the 'evalsha' command";
        assert!(!refused("NOPERM", text).is_of_one_key());
        assert!(!refused("LOADING", "to access").is_of_one_key());
    }

    #[test]
    fn what_the_operating_system_said_is_found() {
        let error = |kind| RedisError::from(io::Error::from(kind));
        let kind = |kind| Failure::from(error(kind)).kind();
        assert_eq!(
            kind(io::ErrorKind::ConnectionRefused),
            ErrorKind::Unavailable
        );
        assert_eq!(kind(io::ErrorKind::PermissionDenied), ErrorKind::Denied);
        assert_eq!(kind(io::ErrorKind::InvalidData), ErrorKind::Misconfigured);
        assert_eq!(kind(io::ErrorKind::TimedOut), ErrorKind::TimedOut);
    }
}
