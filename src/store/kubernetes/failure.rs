//! What an answer that is no object means to the caller.

use std::error::Error as StdError;
use std::io;

use http::StatusCode;
use serde::Deserialize;

use crate::error::ErrorKind;
use crate::store::Sent;
use crate::store::record::Failure;

/// The body of an answer that is no object.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    message: String,
    reason: String,
    details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    kind: String,
}

impl Status {
    /// Returns whether what is missing is an object, and not its namespace.
    pub(super) fn is_missing_object(&self) -> bool {
        self.reason == "NotFound" && self.details.kind != "namespaces"
    }
}

/// Returns the failure of a request that was answered with this code.
pub(super) fn of_answer(code: StatusCode, status: &Status) -> Failure {
    let (kind, sent, advice) = match code.as_u16() {
        401 => (
            ErrorKind::Denied,
            Sent::Answered,
            Some("the credentials are missing, wrong or expired"),
        ),
        403 => (
            ErrorKind::Denied,
            Sent::Answered,
            Some(
                "the role needs get, list, watch, create, patch and delete on leases of coordination.k8s.io",
            ),
        ),
        404 if !status.is_missing_object() => (
            ErrorKind::Misconfigured,
            Sent::Answered,
            Some("the namespace does not exist; kubectl create namespace makes it"),
        ),
        // Refused before it was looked at.
        429 => (ErrorKind::Unavailable, Sent::Answered, None),
        // A server that went away, or whose etcd did not answer in time, may have carried it out.
        500.. => (ErrorKind::Unavailable, Sent::Perhaps, None),
        _ => (ErrorKind::Misconfigured, Sent::Answered, None),
    };
    let what = format!("the API server answered {code}: {}", status.message.trim());
    let failure = Failure::new(kind, sent, what);
    match advice {
        Some(advice) => failure.with_advice(advice),
        None => failure,
    }
}

/// Returns the failure of a request that was not answered.
pub(super) fn of_silence(error: kube_client::Error) -> Failure {
    let (kind, sent, what) = match (&error, io_kind(&error)) {
        (kube_client::Error::Auth(_), _) => (
            ErrorKind::Denied,
            Sent::Never,
            "no credentials could be made",
        ),
        (_, Some(io::ErrorKind::ConnectionRefused)) => {
            (ErrorKind::Unavailable, Sent::Never, "no API server listens")
        }
        (_, Some(io::ErrorKind::InvalidData)) => (
            ErrorKind::Misconfigured,
            Sent::Perhaps,
            "the API server's certificate is not trusted, or it speaks no TLS",
        ),
        _ => (
            ErrorKind::Unavailable,
            Sent::Perhaps,
            "the API server was not reached",
        ),
    };
    Failure::new(kind, sent, what).with_source(error)
}

/// Returns the kind of the innermost failure of the connection, if that is what failed.
fn io_kind(error: &(dyn StdError + 'static)) -> Option<io::ErrorKind> {
    let here = error.downcast_ref::<io::Error>();
    let within = here.and_then(io::Error::get_ref);
    let within = within.and_then(|within| io_kind(within));
    let below = within.or_else(|| error.source().and_then(io_kind));
    below.or_else(|| here.map(io::Error::kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::kit::backend::Failing as _;

    #[test]
    fn each_answer_has_its_kind_and_says_whether_it_can_have_been_carried_out() {
        let missing = r#"{"reason":"NotFound","message":"namespaces \"x\" not found","details":{"kind":"namespaces"}}"#;
        for (code, body, kind, sent) in [
            (401, "{}", ErrorKind::Denied, Sent::Answered),
            (403, "{}", ErrorKind::Denied, Sent::Answered),
            (404, missing, ErrorKind::Misconfigured, Sent::Answered),
            (422, "{}", ErrorKind::Misconfigured, Sent::Answered),
            (429, "{}", ErrorKind::Unavailable, Sent::Answered),
            (500, "{}", ErrorKind::Unavailable, Sent::Perhaps),
            (503, "{}", ErrorKind::Unavailable, Sent::Perhaps),
            (504, "{}", ErrorKind::Unavailable, Sent::Perhaps),
        ] {
            let status: Status = serde_json::from_str(body).expect("a status");
            let failure = of_answer(StatusCode::from_u16(code).expect("a code"), &status);
            assert_eq!((failure.kind(), failure.sent()), (kind, sent), "{code}");
        }
    }
}
