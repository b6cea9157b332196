//! Maps error answers and failed connections to errors for the caller.

use std::error::Error as StdError;
use std::io;

use crate::error::ErrorKind;
use crate::store::Sent;
use crate::store::record::Failure;

/// The end of a failed call, as a server reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GrpcStatus {
    /// The code of gRPC.
    pub(super) code: u32,
    pub(super) message: String,
}

impl GrpcStatus {
    fn says(&self, words: &str) -> bool {
        self.message.contains(words)
    }

    /// Returns whether the server has forgotten the login of this connection, and did nothing.
    pub(super) fn wants_login(&self) -> bool {
        self.says("invalid auth token") || self.says("revision of auth store is old")
    }

    /// Returns whether the server is cut off from the others, and did nothing.
    pub(super) fn is_without_leader(&self) -> bool {
        self.code == 14 && self.says("no leader")
    }

    /// Returns whether the lease of the request is gone, so that nothing was done.
    pub(super) fn is_of_a_lease_that_ended(&self) -> bool {
        self.code == 5 && self.says("lease not found")
    }

    /// Returns whether the user lacks a right.
    pub(super) const fn is_of_a_right(&self) -> bool {
        self.code == 7
    }

    /// Returns whether another server may be able to do what this one could not.
    pub(super) const fn is_of_one_server(&self) -> bool {
        matches!(self.code, 1 | 4 | 14)
    }

    /// Returns the kind, and whether it may have been carried out.
    fn kind(&self) -> (ErrorKind, Sent) {
        match self.code {
            7 | 16 => (ErrorKind::Denied, Sent::Answered),
            3 if self.says("authentication failed") || self.says("user name is empty") => {
                (ErrorKind::Denied, Sent::Answered)
            }
            // Too many requests, or no room. Each ends, so it is waited out.
            8 => (ErrorKind::Unavailable, Sent::Answered),
            14 if self.is_without_leader() => (ErrorKind::Unavailable, Sent::Answered),
            1 | 2 | 4 | 10 | 13 | 14 | 15 => (ErrorKind::Unavailable, Sent::Perhaps),
            _ => (ErrorKind::Misconfigured, Sent::Answered),
        }
    }

    /// Returns the remedy, where it is known.
    fn advice(&self) -> Option<&'static str> {
        match self.code {
            3 if self.says("authentication failed") => Some("the user or the password is wrong"),
            3 if self.says("user name is empty") => {
                Some("the servers want a user, etcd://USER:PASSWORD@HOST, or a client certificate")
            }
            7 => Some("the user needs a role with readwrite on the prefix of the keys"),
            8 if self.says("database space exceeded") => Some(
                "the database of etcd is full (NOSPACE): compact it, defragment each member, and disarm the alarm",
            ),
            9 if self.says("authentication is not enabled") => {
                Some("the servers have no users: take the user out of the URL")
            }
            12 => Some("no etcd of version 3.4 or later answers here"),
            14 if self.is_without_leader() => Some("the members have no majority"),
            _ => None,
        }
    }
}

impl From<GrpcStatus> for Failure {
    fn from(refusal: GrpcStatus) -> Self {
        let (kind, sent) = refusal.kind();
        let message = refusal.message.trim();
        let failure = Self::new(kind, sent, format!("etcd answered: {message}"));
        match refusal.advice() {
            Some(advice) => failure.with_advice(advice),
            None => failure,
        }
    }
}

/// Returns the failure of a request whose answer broke off.
pub(super) fn of_silence(error: h2::Error) -> Failure {
    let what = "the connection to etcd ended before the answer";
    Failure::new(ErrorKind::Unavailable, Sent::Perhaps, what).with_source(error)
}

/// Returns the failure of an answer that etcd does not give.
pub(super) fn odd(what: impl Into<String>) -> Failure {
    Failure::new(ErrorKind::Misconfigured, Sent::Perhaps, what)
}

/// Why no connection was made, for all callers that waited for it.
#[derive(Debug, Clone)]
pub(super) struct Unconnected {
    pub(super) kind: ErrorKind,
    what: String,
    advice: Option<&'static str>,
}

impl Unconnected {
    pub(super) fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        let what = what.into();
        let advice = None;
        Self { kind, what, advice }
    }

    /// Judges the failure of a connection to this server.
    pub(super) fn of(server: &str, error: &(dyn StdError + 'static)) -> Self {
        let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        let (kind, what) = match find::<rustls::Error>(error) {
            Some(rustls::Error::InvalidMessage(_)) => {
                (ErrorKind::Misconfigured, "what listens there speaks no TLS")
            }
            _ if is_of_a_certificate(&error.to_string()) => (
                ErrorKind::Misconfigured,
                "the server refuses our certificate, or wants one",
            ),
            Some(rustls::Error::InvalidCertificate(_)) => (
                ErrorKind::Misconfigured,
                "the server's certificate is not trusted",
            ),
            _ if find(error).is_some_and(refused) => (ErrorKind::Unavailable, "no server listens"),
            _ if find(error).is_some_and(is_of_another_protocol) => (
                ErrorKind::Misconfigured,
                "what listens there speaks no HTTP/2; a server with TLS has the URL etcds://",
            ),
            _ => (ErrorKind::Unavailable, "the server was not reached"),
        };
        Self::new(kind, format!("{what} at {server}: {error}"))
    }

    /// Judges the failure of a connection on which the server has not said a word yet. In TLS 1.3 a server judges the client's
    /// certificate after the client took the handshake for done, and the end of the connection can overtake its alert.
    pub(super) fn of_first_word(server: &str, has_tls: bool, error: &h2::Error) -> Self {
        let is_end = |error: &io::Error| {
            use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
            matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
        };
        match find(error).is_some_and(is_end) {
            true => Self::hung_up(server, has_tls),
            false => Self::of(server, error),
        }
    }

    /// Returns the failure of a server that ended the connection without a word, and what it may want.
    pub(super) fn hung_up(server: &str, has_tls: bool) -> Self {
        let advice = match has_tls {
            true => "it may want a client certificate that it trusts (cert=, key=)",
            false => "a server with TLS has the URL etcds://",
        };
        let what = format!("{server} hung up at once; {advice}");
        Self::new(ErrorKind::Unavailable, what)
    }

    /// Returns the failure of a login.
    pub(super) fn of_login(refusal: GrpcStatus) -> Self {
        Self {
            kind: refusal.kind().0,
            advice: refusal.advice(),
            what: format!("etcd answered: {}", refusal.message),
        }
    }
}

impl From<Unconnected> for Failure {
    fn from(unconnected: Unconnected) -> Self {
        let failure = Self::new(unconnected.kind, Sent::Never, unconnected.what);
        match unconnected.advice {
            Some(advice) => failure.with_advice(advice),
            None => failure,
        }
    }
}

/// Returns whether the server's last word was about certificates. HTTP/2 leaves no more of it than the text.
fn is_of_a_certificate(error: &str) -> bool {
    const ALERTS: [&str; 9] = [
        "AccessDenied",
        "BadCertificate",
        "CertificateExpired",
        "CertificateRequired",
        "CertificateRevoked",
        "CertificateUnknown",
        "HandshakeFailure",
        "UnknownCA",
        "UnsupportedCertificate",
    ];
    let alert = error.split_once("received fatal alert: ");
    alert.is_some_and(|(_, alert)| ALERTS.iter().any(|known| alert.starts_with(known)))
}

fn is_of_another_protocol(error: &h2::Error) -> bool {
    error.is_library() && error.reason() != Some(h2::Reason::NO_ERROR)
}

/// Returns the outermost cause of this type.
fn find<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    if let Some(found) = error.downcast_ref() {
        return Some(found);
    }
    // What another library put into an error of the system is not among its sources, nor is what h2 has of the system.
    if let Some(within) = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref)
    {
        return find(within);
    }
    if let Some(within) = error
        .downcast_ref::<h2::Error>()
        .and_then(h2::Error::get_io)
    {
        return find(within);
    }
    error.source().and_then(find)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::kit::backend::Failing as _;

    #[test]
    fn each_answer_has_its_kind_and_says_whether_it_can_have_been_carried_out() {
        use ErrorKind::{Denied, Misconfigured, Unavailable};
        for (code, message, kind, sent) in [
            (1, "context canceled", Unavailable, Sent::Perhaps),
            (2, "raft proposal dropped", Unavailable, Sent::Perhaps),
            (
                3,
                "etcdserver: authentication failed, invalid user ID or password",
                Denied,
                Sent::Answered,
            ),
            (3, "etcdserver: user name is empty", Denied, Sent::Answered),
            (
                3,
                "etcdserver: request is too large",
                Misconfigured,
                Sent::Answered,
            ),
            (4, "context deadline exceeded", Unavailable, Sent::Perhaps),
            (7, "etcdserver: permission denied", Denied, Sent::Answered),
            (
                8,
                "etcdserver: mvcc: database space exceeded",
                Unavailable,
                Sent::Answered,
            ),
            (
                8,
                "etcdserver: too many requests",
                Unavailable,
                Sent::Answered,
            ),
            (
                9,
                "etcdserver: authentication is not enabled",
                Misconfigured,
                Sent::Answered,
            ),
            (
                11,
                "etcdserver: too large lease TTL",
                Misconfigured,
                Sent::Answered,
            ),
            (12, "unknown service", Misconfigured, Sent::Answered),
            (14, "etcdserver: no leader", Unavailable, Sent::Answered),
            (14, "etcdserver: leader changed", Unavailable, Sent::Perhaps),
            (
                14,
                "etcdserver: request timed out",
                Unavailable,
                Sent::Perhaps,
            ),
            (16, "etcdserver: invalid auth token", Denied, Sent::Answered),
        ] {
            let message = message.to_owned();
            let failure = Failure::from(GrpcStatus { code, message });
            assert_eq!((failure.kind(), failure.sent()), (kind, sent), "{failure}");
        }
    }
}
