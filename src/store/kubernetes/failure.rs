//! Maps answers without an object to errors for the caller.

use std::error::Error as StdError;
use std::io;

use http::StatusCode;
use kube_client::client::AuthError;
use kube_client::config::KubeconfigError;
use serde::Deserialize;
use serde_json::Value;

use super::object::RESOURCE;
use crate::error::ErrorKind;
use crate::store::Sent;
use crate::store::record::Failure;

/// The body of an answer that is no object.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Status(Value);

impl Status {
    /// Returns whether the missing thing is an object, and not its namespace or the whole kind.
    pub(super) fn is_missing_object(&self) -> bool {
        self.0["reason"] == "NotFound" && self.kind() == RESOURCE
    }

    fn kind(&self) -> &Value {
        &self.0["details"]["kind"]
    }

    fn is_of_a_namespace_that_ends(&self) -> bool {
        let causes = self.0["details"]["causes"].as_array();
        let mut causes = causes.into_iter().flatten();
        causes.any(|cause| cause["reason"] == "NamespaceTerminating")
    }

    fn message(&self) -> &str {
        self.0["message"].as_str().unwrap_or_default().trim()
    }

    /// Returns the remedy for an answer with this code, where it is known.
    fn advice(&self, code: u16) -> Option<&'static str> {
        match code {
            401 => Some("the credentials are missing, wrong or expired"),
            403 if self.is_of_a_namespace_that_ends() => Some("the namespace is being deleted"),
            // The words of every authorizer of the API server; admission refuses with others.
            403 if self.message().contains(" cannot ") => Some(
                "the role needs get, list, watch, create, patch and delete on leases of coordination.k8s.io",
            ),
            404 if self.kind() == "namespaces" => {
                Some("the namespace does not exist; kubectl create namespace makes it")
            }
            404 => Some("no API server of Kubernetes answers here"),
            _ => None,
        }
    }
}

/// Returns the failure of a request that was answered with this code.
pub(super) fn of_answer(code: StatusCode, status: &Status) -> Failure {
    let (kind, sent) = match code.as_u16() {
        403 if status.is_of_a_namespace_that_ends() => (ErrorKind::Misconfigured, Sent::Answered),
        401 | 403 => (ErrorKind::Denied, Sent::Answered),
        // A list that took too long, and a request that was refused before it was processed.
        410 | 429 => (ErrorKind::Unavailable, Sent::Answered),
        // A server that went away, or whose etcd did not answer in time, may have carried it out.
        408 | 500.. => (ErrorKind::Unavailable, Sent::Perhaps),
        _ => (ErrorKind::Misconfigured, Sent::Answered),
    };
    let message = match status.message() {
        "" => String::new(),
        message => format!(": {message}"),
    };
    let failure = Failure::new(
        kind,
        sent,
        format!("the API server answered {code}{message}"),
    );
    match status.advice(code.as_u16()) {
        Some(advice) => failure.with_advice(advice),
        None => failure,
    }
}

/// Returns the failure of a request that was not answered.
pub(super) fn of_silence(error: kube_client::Error) -> Failure {
    if let Some(failure) = credentials(&error) {
        return failure;
    }
    let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    let (kind, sent, what) = match find::<rustls::Error>(&error) {
        Some(rustls::Error::InvalidCertificate(_)) => (
            ErrorKind::Misconfigured,
            Sent::Never,
            "the API server's certificate is not trusted",
        ),
        Some(rustls::Error::InvalidMessage(_)) => (
            ErrorKind::Misconfigured,
            Sent::Perhaps,
            "what listens there speaks no TLS",
        ),
        _ if find(&error).is_some_and(refused) => {
            (ErrorKind::Unavailable, Sent::Never, "no API server listens")
        }
        _ => (
            ErrorKind::Unavailable,
            Sent::Perhaps,
            "the API server was not reached",
        ),
    };
    Failure::new(kind, sent, what).with_source(error)
}

/// Returns the failure of a client that could not be made.
pub(super) fn of_configuration(error: kube_client::Error) -> Failure {
    if let Some(failure) = credentials(&error) {
        return failure;
    }
    let refused = |what| Failure::new(ErrorKind::Misconfigured, Sent::Never, what);
    match error {
        // The crate's words have the proxy's login.
        kube_client::Error::ProxyProtocolDisabled { .. }
        | kube_client::Error::ProxyProtocolUnsupported { .. } => {
            refused("the proxy of the cluster, or of HTTPS_PROXY, is none of http:// or https://")
        }
        error => refused("the configuration of the cluster cannot be used").with_source(error),
    }
}

/// Returns the failure of a request that was not sent because it had no credentials.
fn credentials(error: &kube_client::Error) -> Option<Failure> {
    let why = match find::<AuthError>(error)? {
        // The crate's message contains everything that the program printed, and its environment.
        AuthError::AuthExecRun { out, .. } => {
            format!("the program that makes them failed with {}", out.status)
        }
        AuthError::AuthExecParse(_) => "the program that makes them printed something else".into(),
        other => other.to_string(),
    };
    let what = format!("no credentials could be made: {why}");
    Some(Failure::new(ErrorKind::Denied, Sent::Never, what))
}

/// Returns why a kubeconfig cannot be used, without a word of what stands in it where that can be a secret.
pub(super) fn of_kubeconfig(error: KubeconfigError) -> Box<dyn StdError + Send + Sync> {
    let KubeconfigError::Parse(error) = error else {
        return error.into();
    };
    // The crate's words show the lines around the fault.
    match error.location() {
        Some(at) => format!(
            "the kubeconfig cannot be read: its line {} is out of order",
            at.line()
        )
        .into(),
        None => "the kubeconfig cannot be read: it is no YAML of this form".into(),
    }
}

/// Returns the outermost cause of this type.
fn find<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    if let Some(found) = error.downcast_ref() {
        return Some(found);
    }
    // What another library put into an error of the system is not among its sources.
    let within = error.downcast_ref().and_then(io::Error::get_ref);
    let within = within.and_then(|within| find(within));
    within.or_else(|| error.source().and_then(find))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::kit::backend::Failing as _;

    #[test]
    fn each_answer_has_its_kind_and_says_whether_it_can_have_been_carried_out() {
        let missing = r#"{"reason":"NotFound","message":"namespaces \"x\" not found","details":{"kind":"namespaces"}}"#;
        let ending =
            r#"{"reason":"Forbidden","details":{"causes":[{"reason":"NamespaceTerminating"}]}}"#;
        for (code, body, kind, sent) in [
            (401, "{}", ErrorKind::Denied, Sent::Answered),
            (403, "{}", ErrorKind::Denied, Sent::Answered),
            (403, ending, ErrorKind::Misconfigured, Sent::Answered),
            (404, missing, ErrorKind::Misconfigured, Sent::Answered),
            (404, "", ErrorKind::Misconfigured, Sent::Answered),
            (408, "{}", ErrorKind::Unavailable, Sent::Perhaps),
            (410, "{}", ErrorKind::Unavailable, Sent::Answered),
            (422, "{}", ErrorKind::Misconfigured, Sent::Answered),
            (429, "{}", ErrorKind::Unavailable, Sent::Answered),
            (500, "{}", ErrorKind::Unavailable, Sent::Perhaps),
            (503, "{}", ErrorKind::Unavailable, Sent::Perhaps),
            (504, "{}", ErrorKind::Unavailable, Sent::Perhaps),
        ] {
            let status: Status = serde_json::from_str(body).unwrap_or_default();
            let failure = of_answer(StatusCode::from_u16(code).expect("a code"), &status);
            assert_eq!((failure.kind(), failure.sent()), (kind, sent), "{code}");
        }
    }

    #[test]
    fn only_an_object_that_is_missing_is_an_answer() {
        for (body, is_answer) in [
            (r#"{"reason":"NotFound","details":{"kind":"leases"}}"#, true),
            (
                r#"{"reason":"NotFound","details":{"kind":"namespaces"}}"#,
                false,
            ),
            // The API group is not served.
            (r#"{"reason":"NotFound","details":{}}"#, false),
            ("", false),
        ] {
            let status: Status = serde_json::from_str(body).unwrap_or_default();
            assert_eq!(status.is_missing_object(), is_answer, "{body}");
        }
    }
}
