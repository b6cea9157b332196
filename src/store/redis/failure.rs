//! The failures of requests, and the kinds of errors that they become: the one place where the two are matched.
//!
//! No value here contains a URL, so no password can reach a message or a source.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::PoolError;
use deadpool_redis::redis::{self, RedisError, ServerError};

use crate::error::ErrorKind;
use crate::redis_codes::{self, Meaning};
use crate::store::Sent;
use crate::store::backend::Failing;
use crate::store::connection::Unconnected;

/// Why a request failed.
#[derive(Debug, Clone, thiserror::Error)]
pub(in crate::store) enum Failure {
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
    /// A request was to be sent again, or was, after its first connection had been found closed: whatever this failure
    /// says of the second time, the first may have been carried out.
    #[error("{0}")]
    SentBefore(Box<Failure>),
    /// A step before the request failed, so the request was never sent: no connection was made.
    #[error("{0}")]
    NotReached(Box<Failure>),
    /// The connection could not be made, or broke. The request may have been carried out.
    #[error("{0}")]
    Broken(RedisError),
    /// The runtime on which the connection was being made has ended.
    #[error("the runtime that was connecting ended")]
    Abandoned,
    /// A certificate file cannot be used. It could when the store was made, so the file is probably being replaced.
    #[error("{0}")]
    Certificates(String),
    /// The server belongs to a store of another kind.
    #[error(
        "the server belongs to a store of another kind: open that store, or use another prefix"
    )]
    Member,
    /// A server that keeps out cannot find out whether it may grant. Nothing was changed.
    #[error("keep-out needs {needed}: {why}")]
    KeepOut { needed: String, why: Box<Failure> },
    /// Other clients of this server have another longest ttl.
    #[error("the clients of this server have another longest ttl max_ttl={:?} expected={:?}", Duration::from_millis(*.ours_ms), Duration::from_millis(*.theirs_ms))]
    OtherMaxTtl { theirs_ms: u64, ours_ms: u64 },
    /// The server was set up with a longest ttl.
    #[error("ttl={:?} max_ttl={:?}", Duration::from_millis(*.ttl_ms), Duration::from_millis(*.max_ttl_ms))]
    TooLong { ttl_ms: u64, max_ttl_ms: u64 },
    /// The server answered with an error.
    #[error("{code} {text}")]
    Refused { code: String, text: String },
    /// The server answered that another one serves this request, now or in a moment, and has carried nothing out: it is
    /// a replica by now, or the slot has moved. One that serves it will be found.
    #[error("{code} {text}")]
    NotServing { code: String, text: String },
    /// Another server took over before the answer counted. The request may have been carried out, on a server whose
    /// writes are worth nothing any more, or on the new one.
    #[error("another server has taken over")]
    Deposed,
    /// Too few replicas have what was written. It was carried out, and may be lost with its server.
    #[error("not acknowledged: {acknowledged} of {replicas} replicas")]
    Unacknowledged { acknowledged: u64, replicas: u8 },
    /// No node of the cluster serves the slot.
    #[error("no node of the cluster serves the slot {0}")]
    Unserved(u16),
    /// The Sentinels that answered know no master of this name.
    #[error("the Sentinels know no master named {0:?}")]
    NoSuchMaster(String),
    /// The server sent a reply that none of our scripts sends.
    #[error("unexpected reply {0}")]
    Odd(String),
    /// A script refused an argument. The server's clock is given if the limit depends on it.
    #[error("argument refused {argument}={value:?} clock_us={clock}")]
    Argument {
        argument: String,
        value: String,
        clock: String,
    },
    /// The mark of the highest token is not a number, or the tokens are used up.
    #[error("the token mark is not a number or has reached its limit mark={0:?}")]
    Mark(String),
}

/// What to do about an answer that says that nothing was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Redirect {
    /// Ask the server at this address from now on.
    Moved(String),
    /// Ask the server at this address this once.
    Asked(String),
    /// Ask again in a moment.
    Later,
    /// Ask again at once: what was missing is there now.
    Again,
}

impl From<Unconnected> for Failure {
    fn from(why: Unconnected) -> Self {
        match why {
            Unconnected::Closed => Self::Closed,
            Unconnected::Late => Self::Silent,
            // Its connections never live on the store's thread.
            _ => Self::Abandoned,
        }
    }
}

impl Failure {
    /// Makes the failure of a connection that could not be made.
    pub(super) fn unmade(error: io::Error) -> Self {
        RedisError::from(error).into()
    }

    /// Makes this the failure of a step before the request.
    pub(super) fn before_the_request(self) -> Self {
        Self::NotReached(Box::new(self))
    }

    /// Makes this the failure of a request that may have been sent before.
    pub(super) fn after_another_try(self) -> Self {
        match self {
            Self::SentBefore(_) => self,
            failure => Self::SentBefore(Box::new(failure)),
        }
    }

    /// Returns whether the request may have been sent before this failure.
    pub(super) fn is_after_another_try(&self) -> bool {
        matches!(self, Self::SentBefore(_))
    }

    /// Returns the failure itself, however far the request came.
    fn innermost(&self) -> &Self {
        match self {
            Self::NotReached(why) | Self::SentBefore(why) => why.innermost(),
            failure => failure,
        }
    }

    /// Returns what the last attempt met.
    fn last(&self) -> &Self {
        match self {
            Self::SentBefore(last) => last.last(),
            failure => failure,
        }
    }

    /// Returns whether the connection is unusable.
    pub(super) fn is_broken(&self) -> bool {
        matches!(self, Self::FoundClosed(_) | Self::Broken(_))
    }

    /// Makes this the failure at an address that has carried out writes: there a replica is a server that was demoted,
    /// and a new master will come.
    pub(super) fn after_a_write(self) -> Self {
        match self {
            Self::SentBefore(last) => last.after_a_write().after_another_try(),
            Self::Refused { code, text } if is_of_replica(&code, &text) => {
                Self::NotServing { code, text }
            }
            failure => failure,
        }
    }

    /// Returns what to do about an answer that says that nothing was carried out, where several servers serve the
    /// slots. `None` for every other failure.
    pub(super) fn redirect(&self) -> Option<Redirect> {
        let (code, text) = match self.last() {
            Self::Refused { code, text } | Self::NotServing { code, text } => (code, text),
            _ => return None,
        };
        // "MOVED 3999 127.0.0.1:6381"
        let address = || text.split(' ').nth(1).unwrap_or_default().to_owned();
        match &**code {
            "MOVED" => Some(Redirect::Moved(address())),
            "ASK" => Some(Redirect::Asked(address())),
            // The error of a script that has begun names the script.
            "TRYAGAIN" | "CLUSTERDOWN" if !text.contains("script") => Some(Redirect::Later),
            "NOSCRIPT" => Some(Redirect::Again),
            _ if is_of_replica(code, text) => Some(Redirect::Later),
            _ => None,
        }
    }

    /// Makes this the failure of a request that no server takes at the moment.
    pub(super) fn not_serving(self) -> Self {
        match (self.redirect(), self) {
            (_, Self::SentBefore(last)) => last.not_serving().after_another_try(),
            (Some(_), Self::Refused { code, text }) => Self::NotServing { code, text },
            (_, failure) => failure,
        }
    }

    /// Returns whether the server could not be reached, or did not answer: another one may have taken over.
    pub(super) fn is_of_connection(&self) -> bool {
        match self {
            Self::NotReached(why) | Self::SentBefore(why) => why.is_of_connection(),
            Self::Silent | Self::Deposed => true,
            failure => failure.is_broken(),
        }
    }

    /// Returns whether the server of this connection is a replica, which has carried nothing out.
    pub(super) fn is_of_replica(&self) -> bool {
        matches!(self.last(), Self::Refused { code, text } if is_of_replica(code, text))
    }

    /// Returns whether the server lacks our scripts, as after a restart or a failover.
    pub(super) fn is_no_script(&self) -> bool {
        matches!(self.last(), Self::Refused { code, .. } if code == "NOSCRIPT")
    }

    /// Returns whether a batch was refused because of one of its keys, so that its other keys may succeed without it.
    pub(super) fn is_of_one_key(&self) -> bool {
        match self.last() {
            // "no permissions to access a key", but not "no permissions to run the 'evalsha' command".
            Self::Refused { code, text } => {
                code == "CROSSSLOT" || code == "NOPERM" && text.contains("to access")
            }
            _ => false,
        }
    }
}

impl Failing for Failure {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotReached(why) | Self::SentBefore(why) | Self::KeepOut { why, .. } => why.kind(),
            Self::Closed => ErrorKind::Closed,
            Self::Silent => ErrorKind::TimedOut,
            Self::Abandoned
            | Self::Certificates(_)
            | Self::NotServing { .. }
            | Self::Deposed
            | Self::Unacknowledged { .. }
            | Self::Unserved(_) => ErrorKind::Unavailable,
            Self::FoundClosed(error) | Self::Broken(error) => kind_of_connection(error),
            Self::Refused { code, text } => kind_of_refusal(code, text),
            Self::Argument { .. } | Self::TooLong { .. } => ErrorKind::Invalid,
            Self::OtherMaxTtl { .. }
            | Self::Odd(_)
            | Self::Mark(_)
            | Self::Member
            | Self::NoSuchMaster(_) => ErrorKind::Misconfigured,
        }
    }

    fn sent(&self) -> Sent {
        match self {
            Self::Closed | Self::NotReached(_) => Sent::Never,
            Self::Abandoned | Self::Certificates(_) => Sent::Never,
            Self::Unserved(_) | Self::NoSuchMaster(_) => Sent::Never,
            Self::Argument { .. } | Self::Mark(_) | Self::NotServing { .. } => Sent::Answered,
            Self::Member | Self::KeepOut { .. } => Sent::Answered,
            Self::OtherMaxTtl { .. } | Self::TooLong { .. } => Sent::Answered,
            Self::FoundClosed(_) | Self::SentBefore(_) => Sent::Perhaps,
            failure if failure.is_no_script() || failure.is_of_replica() => Sent::Answered,
            Self::Deposed | Self::Unacknowledged { .. } => Sent::Perhaps,
            Self::Refused { .. } | Self::Silent | Self::Broken(_) | Self::Odd(_) => Sent::Perhaps,
        }
    }

    fn refusal(&self) -> Option<String> {
        match self.innermost() {
            Self::Argument {
                argument,
                value,
                clock,
            } => Some(match &**clock {
                "0" => format!("the {argument} is outside its limits {argument}={value}"),
                clock => format!(
                    "the {argument} is more than a day ahead of the store's clock {argument}={value} clock_us={clock}"
                ),
            }),
            Self::Mark(value) => Some(format!(
                "the mark of the highest token is not a number, or no tokens are left below 2^53 mark={value:?}"
            )),
            failure @ Self::TooLong { .. } => Some(format!(
                "the ttl is longer than the longest that this server was set up with {failure}"
            )),
            _ => None,
        }
    }

    // What is wrong with the URL, if the server's answer shows it.
    fn advice(&self) -> Option<String> {
        let (code, text) = match self.innermost() {
            Self::Refused { code, text } => (code, text.to_lowercase()),
            // The driver does not pass on the words of the server.
            Self::Broken(error) if error.kind() == redis::ErrorKind::AuthenticationFailed => {
                return Some("the password is wrong, or the server has none set".into());
            }
            _ => return None,
        };
        let advice = match &**code {
            "NOAUTH" => "the server wants a password",
            "ERR" if text.contains("unauthenticated") => "the server wants a password",
            // A claim has a key in two slots.
            "MOVED" | "ASK" | "CROSSSLOT" => {
                "this server is a node of a cluster: use redis+cluster://"
            }
            // A Sentinel knows no scripts.
            "ERR" if text.contains("unknown command") && text.contains("evalsha") => {
                "this server is a Sentinel: use redis+sentinel://HOST/NAME"
            }
            "ERR" if text.contains("unknown command") && text.contains("sentinel") => {
                "this server is not a Sentinel: use redis://"
            }
            "ERR" if text.contains("cluster support disabled") => {
                "this server is not a node of a cluster: use redis://"
            }
            _ => return None,
        };
        Some(advice.into())
    }
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

fn is_of_replica(code: &str, text: &str) -> bool {
    redis_codes::meaning(code, text) == Some(Meaning::Replica)
}

fn kind_of_refusal(code: &str, text: &str) -> ErrorKind {
    match redis_codes::meaning(code, text) {
        Some(Meaning::Passing) => ErrorKind::Unavailable,
        Some(Meaning::Denied) => ErrorKind::Denied,
        // A URL that names a replica or one node of a cluster, and everything else that an operator has to change.
        Some(Meaning::Replica | Meaning::Elsewhere | Meaning::Unusable) | None => {
            ErrorKind::Misconfigured
        }
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        if error.is_timeout() {
            return Self::Silent;
        }
        match (error.kind(), error.code()) {
            (redis::ErrorKind::Server(_) | redis::ErrorKind::Extension, Some(code)) => {
                Self::Refused {
                    code: code.into(),
                    text: error.detail().unwrap_or_default().into(),
                }
            }
            _ => Self::Broken(error),
        }
    }
}

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Self {
        RedisError::from(error).into()
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => error.into(),
            PoolError::Timeout(_) => Self::Silent,
            PoolError::Closed => Self::Closed,
            PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
                Self::Odd(error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_that_is_missing_or_wrong_is_told_in_words() {
        let refused = |code: &str, text: &str| Failure::Refused {
            code: code.into(),
            text: text.into(),
        };
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
            (Failure::Broken(wrong.into()), "the password is wrong, or"),
        ] {
            let error = failure.during("acquire", "name=a");
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        }
    }

    fn kind(code: &str, text: &str) -> ErrorKind {
        let (code, text) = (code.into(), text.into());
        Failure::Refused { code, text }.kind()
    }

    #[test]
    fn each_code_tells_what_to_do() {
        for code in ["LOADING", "CLUSTERDOWN", "BUSY", "NOREPLICAS"] {
            assert_eq!(kind(code, ""), ErrorKind::Unavailable, "{code}");
        }
        for code in ["WRONGPASS", "NOAUTH", "NOPERM"] {
            assert_eq!(kind(code, ""), ErrorKind::Denied, "{code}");
        }
        for code in [
            "READONLY",
            "MASTERDOWN",
            "MOVED",
            "OOM",
            "MISCONF",
            "WRONGTYPE",
            "ERR",
            "CROSSSLOT",
        ] {
            assert_eq!(kind(code, ""), ErrorKind::Misconfigured, "{code}");
        }
    }

    #[test]
    fn only_what_proves_that_nothing_was_done_closes_a_claim() {
        let sent = |code: &str, text: &str| {
            let (code, text) = (code.into(), text.into());
            Failure::Refused { code, text }.sent()
        };
        for code in ["NOSCRIPT", "READONLY"] {
            assert_eq!(sent(code, ""), Sent::Answered, "{code}");
        }
        let text = "Error running script (call to f_0): @user_script:1: -READONLY You can't write";
        assert_eq!(sent("ERR", text), Sent::Answered);
        for code in ["NOPERM", "OOM", "WRONGTYPE", "ERR", "LOADING"] {
            assert_eq!(sent(code, ""), Sent::Perhaps, "{code}");
        }
        assert_eq!(Failure::Odd(String::new()).sent(), Sent::Perhaps);
        assert_eq!(Failure::Silent.sent(), Sent::Perhaps);
        assert_eq!(Failure::Silent.before_the_request().sent(), Sent::Never);
    }

    #[test]
    fn a_connection_that_was_found_closed_does_not_prove_that_nothing_left() {
        let closed = RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(Failure::FoundClosed(closed).sent(), Sent::Perhaps);
        for failure in [Failure::Closed, Failure::Silent, Failure::Member] {
            let kind = failure.kind();
            let failure = failure.after_another_try();
            assert_eq!((failure.sent(), failure.kind()), (Sent::Perhaps, kind));
        }
    }

    #[test]
    fn an_answer_to_the_second_time_does_not_speak_for_the_first() {
        let refused = |code: &str| Failure::Refused {
            code: code.into(),
            text: "1 a:2".into(),
        };
        let again = |code| refused(code).after_another_try();
        for code in ["READONLY", "NOSCRIPT", "MOVED", "ASK"] {
            assert_eq!(again(code).sent(), Sent::Perhaps, "{code}");
            assert_eq!(again(code).not_serving().sent(), Sent::Perhaps, "{code}");
            assert_eq!(again(code).redirect(), refused(code).redirect(), "{code}");
        }
        assert!(again("NOSCRIPT").is_no_script());
        assert_eq!(again("READONLY").after_a_write().sent(), Sent::Perhaps);
        assert_eq!(refused("READONLY").after_a_write().sent(), Sent::Answered);
    }

    #[test]
    fn only_a_refusal_for_a_key_splits_a_batch() {
        let refused = |code: &str, text: &str| Failure::Refused {
            code: code.into(),
            text: text.into(),
        };
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
