//! The rights that the account lacks, and a clock that is off, each as a hazard.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::Kubernetes;
use super::connection::Verb;
use crate::clock::wall_clock_us;
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

/// The difference of the clocks above which it is told: the server's is told in whole seconds.
const APART: Duration = Duration::from_secs(2);

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
        Ok(self.review(verb).await?.0)
    }

    /// Returns the same with the time of the server that said it.
    async fn review(&self, verb: &str) -> Result<(bool, Option<Duration>), Failure> {
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
        Ok((status.allowed, reply.time))
    }

    pub(super) async fn all_hazards(&self) -> Result<Vec<Hazard>, Failure> {
        let mut found = Vec::new();
        let mut apart = None;
        for (verb, severity, effect) in VERBS {
            let (is_allowed, time) = self.review(verb).await?;
            if !is_allowed {
                found.push(self.missing(verb, severity, effect));
            }
            let ours = Duration::from_micros(wall_clock_us());
            // The answer may have been slow.
            apart = [apart, time.map(|time| time.abs_diff(ours))]
                .into_iter()
                .flatten()
                .min();
        }
        found.extend(apart.filter(|apart| *apart > APART).map(clocks_apart));
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

fn clocks_apart(apart: Duration) -> Hazard {
    Hazard::new(
        "kubernetes-clock",
        Severity::Warning,
        format!("the API server's clock is {} s from ours", apart.as_secs()),
        "Tokens can fall when an object is lost, or its name moves to another store",
        "Run a time daemon on the servers and on this machine",
    )
}
