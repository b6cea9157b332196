//! The rights that the account lacks, each as a hazard.

use serde::Deserialize;
use serde_json::json;

use super::Kubernetes;
use super::connection::Verb;
use crate::error::ErrorKind;
use crate::store::record::Failure;
use crate::store::{Hazard, Sent, Severity};

/// Each verb that is needed, and what fails without it.
const VERBS: [(&str, Severity, &str); 6] = [
    ("get", Severity::Critical, "No name can be claimed"),
    (
        "create",
        Severity::Critical,
        "No name can be claimed for the first time",
    ),
    (
        "patch",
        Severity::Critical,
        "No lease can be renewed or released",
    ),
    (
        "list",
        Severity::Critical,
        "Leases cannot be listed, and objects that nobody uses stay",
    ),
    ("delete", Severity::Warning, "Objects that nobody uses stay"),
    (
        "watch",
        Severity::Warning,
        "A waiting client learns only by looking each second that a name was freed",
    ),
];

#[derive(Debug, Deserialize)]
struct Review {
    status: ReviewStatus,
}

#[derive(Debug, Deserialize)]
struct ReviewStatus {
    allowed: bool,
}

impl Kubernetes {
    /// Returns whether the account has this right on leases of the namespace.
    pub(super) async fn may(&self, verb: &str) -> Result<bool, Failure> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": {
                "namespace": self.location.namespace,
                "verb": verb,
                "group": "coordination.k8s.io",
                "resource": "leases",
            } },
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let reply = self.connection.ask(path, Verb::Create(&review)).await?;
        let Some(Review { status }) = reply.found else {
            let what = "the API server does not say what the account may do";
            return Err(Failure::new(ErrorKind::Misconfigured, Sent::Answered, what));
        };
        Ok(status.allowed)
    }

    pub(super) async fn missing_rights(&self) -> Result<Vec<Hazard>, Failure> {
        let mut found = Vec::new();
        for (verb, severity, effect) in VERBS {
            if !self.may(verb).await? {
                found.push(self.missing(verb, severity, effect));
            }
        }
        Ok(found)
    }

    fn missing(&self, verb: &str, severity: Severity, effect: &'static str) -> Hazard {
        Hazard::new(
            "kubernetes-right",
            severity,
            format!(
                "the account may not {verb} leases in the namespace {}",
                self.location.namespace
            ),
            effect,
            "Bind a role with get, list, watch, create, patch and delete on leases of coordination.k8s.io",
        )
    }
}
