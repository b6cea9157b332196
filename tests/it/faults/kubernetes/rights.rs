//! What an account may not do.

use leasehold::store::{Outcome, Severity, Store};
use leasehold::{Error, ErrorKind};

use super::open;
use crate::harness::asking::{asked, chain, claim, granted, next_token, released, renewed};
use crate::harness::kubernetes_server::{ACCOUNT, Namespace};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::until_so;

const RIGHTS: [&str; 6] = ["get", "list", "watch", "create", "patch", "delete"];

/// Gives the account all rights but these, and returns the store as that account once the server knows it.
async fn without(namespace: &Namespace, missing: &[&str]) -> std::sync::Arc<dyn Store> {
    let mut rights = RIGHTS.to_vec();
    rights.retain(|right| !missing.contains(right));
    namespace.allow(&rights).await;
    let store = open(&namespace.url_as(ACCOUNT)).await;
    until_so("the server to know the rights", async || {
        let hazards = store.hazards(LIMIT).await.expect("answered");
        let mut told: Vec<_> = hazards
            .iter()
            .map(|hazard| hazard.what.to_string())
            .collect();
        told.retain(|told| {
            missing
                .iter()
                .any(|right| told.contains(&format!("not {right} ")))
        });
        told.len() == missing.len() && hazards.len() == missing.len()
    })
    .await;
    store
}

fn is_denied(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let said = chain(error);
    assert!(said.contains("the role needs get, list, watch"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_right_that_is_missing_is_a_hazard_and_fails_what_needs_it() {
    let namespace = Namespace::make().await;
    let operator = open(&namespace.url()).await;
    next_token(&*operator, "known").await;
    let whole = without(&namespace, &[]).await;
    let held = claim("held", LONG);
    granted(&*whole, &held).await;
    for right in RIGHTS {
        let store = without(&namespace, &[right]).await;
        let hazards = store.hazards(LIMIT).await.expect("answered");
        let severity = match right {
            "watch" | "delete" => Severity::Warning,
            _ => Severity::Critical,
        };
        assert_eq!(
            (hazards[0].id, hazards[0].severity),
            ("kubernetes-right", severity)
        );
        let old = asked(&*store, &claim("known", LONG), LIMIT).await.err();
        let new = asked(&*store, &claim(&format!("new-{right}"), LONG), LIMIT)
            .await
            .err();
        let renewal = match renewed(&*store, &held).await {
            Outcome::Renewed => None,
            Outcome::Unknown(error) => Some(error),
            other => panic!("{right}: {other:?}"),
        };
        let list = store.list("", LIMIT).await.err();
        let notices = store.notices().await.expect("answered");
        assert_eq!(notices.is_some(), right != "watch");
        let failed = [
            ("old", old),
            ("new", new),
            ("renewal", renewal),
            ("list", list),
        ];
        let mut which = Vec::new();
        for (what, error) in failed {
            if let Some(error) = error {
                is_denied(&error);
                which.push(what);
            }
        }
        let expected: &[_] = match right {
            "get" => &["old", "new", "renewal"],
            "create" => &["new"],
            "patch" => &["old", "renewal"],
            "list" => &["list"],
            _ => &[],
        };
        assert_eq!(which, expected, "{right}");
        // So that the next claim finds it free.
        let known = leasehold::Name::new("known").expect("a name");
        let evicted = operator.evict(&known, leasehold::store::Eviction::Now, LIMIT);
        evicted.await.expect("answered");
    }
    let store = without(&namespace, &[]).await;
    assert!(matches!(renewed(&*store, &held).await, Outcome::Renewed));
    released(&*store, &held).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_without_any_right_is_told_which_it_needs() {
    let namespace = Namespace::make().await;
    let store = without(&namespace, &RIGHTS).await;
    let error = asked(&*store, &claim("a", LONG), LIMIT)
        .await
        .expect_err("denied");
    is_denied(&error);
    assert_eq!(
        store.hazards(LIMIT).await.expect("answered").len(),
        RIGHTS.len()
    );
}
