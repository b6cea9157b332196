//! Bad input: the kind and the words of each.

use std::fs;

use leasehold::ErrorKind;
use leasehold::store;
use serde_json::{Value, json};

use super::open;
use crate::harness::asking::{asked, chain, claim, next_token};
use crate::harness::kubernetes_server::{Namespace, kubeconfig};
use crate::harness::ports::free_port;
use crate::harness::times::{LIMIT, LONG};
use crate::kubernetes::api::{Api, refusal};

const SECRET: &str = "s3cret";

/// Opens the store, claims the name `a` there, and expects an error of this kind with these words.
async fn refused(url: &str, kind: ErrorKind, words: &str) {
    let claimed = match store::open(url).await {
        Ok(store) => asked(&*store, &claim("a", LONG), LIMIT).await,
        Err(error) => Err(error),
    };
    let error = claimed.expect_err(words);
    let said = chain(&error);
    assert_eq!(error.kind(), kind, "{said}");
    assert!(said.contains(words), "{words}: {said}");
    assert!(!said.contains(SECRET), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_in_the_cluster_is_told_by_its_name() {
    let mut namespace = Namespace::make().await;
    let user = json!({ "token": SECRET });
    let wrong = namespace.url_with(&namespace.cluster(), &user);
    refused(&wrong, ErrorKind::Denied, "missing, wrong or expired").await;
    let mut unknown = namespace.cluster();
    unknown
        .as_object_mut()
        .expect("one")
        .remove("certificate-authority");
    let unknown = namespace.url_with(&unknown, &user);
    refused(
        &unknown,
        ErrorKind::Misconfigured,
        "certificate is not trusted",
    )
    .await;
    let nobody = namespace.url_at(SECRET, &format!("127.0.0.1:{}", free_port()));
    refused(&nobody, ErrorKind::Unavailable, "no API server listens").await;
    let plain = Api::answering(|_| unreachable!("it is no request")).await;
    let plain = namespace.url_at(SECRET, &format!("127.0.0.1:{}", plain.port()));
    refused(&plain, ErrorKind::Misconfigured, "speaks no TLS").await;
    namespace.name = "absent".into();
    refused(
        &namespace.url(),
        ErrorKind::Misconfigured,
        "the namespace does not exist",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_no_api_server_is_told_as_such() {
    for (code, body, words) in [
        (404, "<html>", "no API server of Kubernetes answers here"),
        (200, "<html>", "the answer is not that of an API server"),
    ] {
        let api = Api::answering(move |_| {
            let mut answer = refusal(http::StatusCode::from_u16(code).expect("a code"), "");
            answer.body = body.into();
            Box::pin(async { answer })
        });
        let url = api.await;
        refused(&url.url("a"), ErrorKind::Misconfigured, words).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_cannot_be_read_is_refused_by_its_name() {
    for (annotations, words) in [
        (
            json!({ "leasehold/name": "b" }),
            "the object a is not that of this name, but of \"b\"",
        ),
        (
            json!({ "leasehold/name": "a", "leasehold/record": r#"{"v":2,"state":"free"}"# }),
            "the object a is refused: the record has the form 2, and this program knows none above 1",
        ),
        (
            json!({ "leasehold/record": "{}" }),
            "the object a is refused: what is stored for this name is no record",
        ),
    ] {
        let namespace = Namespace::make().await;
        namespace
            .write("a", json!({ "metadata": { "annotations": annotations } }))
            .await;
        refused(&namespace.url(), ErrorKind::Misconfigured, words).await;
        // Others are not concerned.
        next_token(&*open(&namespace.url()).await, "c").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_an_object_is_no_lease() {
    let namespace = Namespace::make().await;
    let store = open(&namespace.url()).await;
    let lease = claim("a", LONG);
    crate::harness::asking::granted(&*store, &lease).await;
    let object = namespace.object("a").await;
    let metadata = json!({ "labels": object["metadata"]["labels"], "annotations": object["metadata"]["annotations"] });
    namespace
        .write("b", json!({ "metadata": metadata, "spec": object["spec"] }))
        .await;
    let listed = store.list("", LIMIT).await.expect("answered");
    let listed: Vec<_> = listed.iter().map(|held| held.name.as_str()).collect();
    assert_eq!(listed, ["a"]);
}

#[tokio::test]
async fn a_kubeconfig_that_cannot_be_used_is_told_without_its_secrets() {
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = json!({ "server": "https://127.0.0.1:1" });
    let write = |user: Value| kubeconfig(folder.path(), &cluster, &user);
    let with = |path: String, more: &str| format!("kubernetes:a?kubeconfig={path}{more}");
    let mut behind = cluster.clone();
    behind["proxy-url"] = format!("socks5://me:{SECRET}@127.0.0.1:1").into();
    let behind = kubeconfig(folder.path(), &behind, &json!({}));
    let missing = folder.path().join("missing").display().to_string();
    let broken = folder.path().join("broken").display().to_string();
    let text = format!("kind: Config\nusers:\n- name: a\n  user: {{token: {SECRET}]\n");
    fs::write(&broken, text).expect("written");
    let in_order = write(json!({ "token": SECRET }));
    let failing = json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", format!("echo {SECRET}; exit 3")],
        "env": [{ "name": "PASSWORD", "value": SECRET }],
        "interactiveMode": "Never",
    } });
    let mut chatty = failing.clone();
    chatty["exec"]["args"][1] = format!("echo '{{{SECRET}'").into();
    let mut absent = failing.clone();
    absent["exec"]["command"] = "/absent/program".into();
    for (url, kind, words) in [
        (with(missing, ""), ErrorKind::Misconfigured, "No such file"),
        (
            with(broken, ""),
            ErrorKind::Misconfigured,
            "the kubeconfig cannot be read",
        ),
        (
            with(behind, ""),
            ErrorKind::Misconfigured,
            "is none of http:// or https://",
        ),
        (
            with(in_order, "&context=other"),
            ErrorKind::Misconfigured,
            "other",
        ),
        (
            with(write(failing), ""),
            ErrorKind::Denied,
            "the program that makes them failed with exit status: 3",
        ),
        (
            with(write(chatty), ""),
            ErrorKind::Denied,
            "printed something else",
        ),
        (with(write(absent), ""), ErrorKind::Denied, "No such file"),
    ] {
        refused(&url, kind, words).await;
    }
}

#[tokio::test]
async fn nothing_that_is_printed_of_a_store_has_a_secret() {
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = json!({ "server": format!("https://me:{SECRET}@127.0.0.1:1") });
    let user = json!({
        "token": SECRET,
        "exec": { "command": "x", "env": [{ "name": "A", "value": SECRET }] },
    });
    let path = kubeconfig(folder.path(), &cluster, &user);
    let store = open(&format!("kubernetes:a?kubeconfig={path}")).await;
    let said = format!("{store:?} {}", store.location());
    assert!(said.contains("kubernetes:a at 127.0.0.1:1"), "{said}");
    assert!(!said.contains(SECRET), "{said}");
}
