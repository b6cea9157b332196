//! The objects: their names, and how they end.

use std::sync::Arc;

use super::open;
use crate::harness::asking::{claim, granted, next_token, released};
use crate::harness::kubernetes_server::{Answered, Namespace};
use crate::harness::times::{LIMIT, LONG};
use crate::kubernetes::api::{Api, Asked};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_name_has_an_object_however_odd_and_long_it_is() {
    let namespace = Namespace::make().await;
    let store = open(&namespace.url()).await;
    let long = "x".repeat(512);
    let mut names = vec![
        "a",
        "A",
        "a.b",
        "a/b",
        "a b",
        "%2F",
        "\u{e9}\u{1f600}",
        "-",
        "..",
        "leasehold-mark",
        "a#1",
        &long,
    ];
    let mut tokens = Vec::new();
    for name in &names {
        let lease = claim(name, LONG);
        tokens.push(granted(&*store, &lease).await);
    }
    let other = open(&namespace.url()).await;
    let listed = other.list("", LIMIT).await.expect("answered");
    names.sort_unstable();
    let listed: Vec<_> = listed.iter().map(|held| held.name.as_str()).collect();
    assert_eq!(listed, names);
    assert_eq!(other.list("a", LIMIT).await.expect("answered").len(), 5);
    let objects = namespace.objects().await;
    assert_eq!(objects.len(), names.len());
    assert!(
        objects
            .iter()
            .any(|object| object["metadata"]["name"] == "a.b")
    );
}

/// A way to the server of this namespace whose clock is years ahead, so that what was written is old. Before a
/// removal of `busy` somebody else changes it.
async fn hours_later(namespace: Arc<Namespace>) -> Api {
    let answer = async move |namespace: Arc<Namespace>, asked: Asked| -> Answered {
        if asked.method == http::Method::DELETE && asked.path.ends_with("/busy") {
            let change = serde_json::json!({ "metadata": { "annotations": { "other": "1" } } });
            namespace.write("busy", change).await;
        }
        let mut answer = namespace.pass(&asked.method, &asked.path, asked.body).await;
        answer.date = "Sat, 28 Nov 2099 22:00:00 GMT".into();
        answer
    };
    Api::answering(move |asked| Box::pin(answer(namespace.clone(), asked))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_objects_are_removed_unless_they_change_meanwhile_and_tokens_rise() {
    let namespace = Arc::new(Namespace::make().await);
    let store = open(&namespace.url()).await;
    let mut last = None;
    for name in ["a", "B", "busy"] {
        last = last.max(Some(next_token(&*store, name).await));
    }
    let api = hours_later(namespace.clone()).await;
    let later = open(&api.url(&namespace.name)).await;
    let hazards = later.hazards(LIMIT).await.expect("answered");
    assert_eq!(hazards[0].id, "kubernetes-clock", "{hazards:?}");
    later.list("", LIMIT).await.expect("answered");
    let objects = namespace.objects().await;
    let names = objects
        .iter()
        .filter_map(|object| object["metadata"]["name"].as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["busy", "leasehold-mark"]);
    let lease = claim("a", LONG);
    let token = granted(&*open(&namespace.url()).await, &lease).await;
    assert!(Some(token) > last, "{token} after {last:?}");
    released(&*store, &lease).await;
}
