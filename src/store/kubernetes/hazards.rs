//! The rights that the account lacks, and a clock that is off, each as a hazard.

use serde_json::{Value, json};

use super::Kubernetes;
use super::connection::Verb;
use super::object::RESOURCE;
use crate::error::ErrorKind;
use crate::store::record::{Failure, clock_apart};
use crate::store::{Hazard, Severity};

/// Each verb that is needed, and what fails without it.
const VERBS: [(&str, &str); 6] = [
    ("get", "No name can be claimed"),
    ("create", "No name can be claimed for the first time"),
    ("patch", "No lease can be renewed or released"),
    ("list", "Leases cannot be listed, and old objects stay"),
    ("delete", "Old objects stay"),
    (
        "watch",
        "A waiting client is not told that a name was freed",
    ),
];

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
                "resource": RESOURCE,
            } },
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let reply = self.connection.ask::<Value>(path, Verb::Create(&review));
        let found = reply.await?.found.unwrap_or_default();
        found["status"]["allowed"].as_bool().ok_or_else(|| {
            let what = "the API server does not say what the account may do";
            Failure::answered(ErrorKind::Misconfigured, what)
        })
    }

    pub(super) async fn all_hazards(&self) -> Result<Vec<Hazard>, Failure> {
        let mut found = Vec::new();
        for (verb, effect) in VERBS {
            if !self.may(verb).await? {
                found.push(self.missing(verb, effect));
            }
        }
        found.extend(clock_apart(self, "kubernetes-clock").await?);
        Ok(found)
    }

    fn missing(&self, verb: &str, effect: &'static str) -> Hazard {
        let severity = match verb {
            "delete" | "watch" => Severity::Warning,
            _ => Severity::Critical,
        };
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
