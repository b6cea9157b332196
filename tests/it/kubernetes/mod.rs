//! The store in a namespace of Kubernetes, on answers that a real API server gave once. `faults::kubernetes` has the real
//! one, and sees that it would answer so today.

pub(crate) mod api;
pub(crate) mod fake;

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use leasehold::store::{self, Eviction, HeldState, MemberState, Outcome, Release, Sent, Store};
use leasehold::{ClientId, Holder};
use reqwest::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::api::{Api, Asked};
use crate::harness::asking::{Asking, claim, granted, held, released, renewed};
use crate::harness::kubernetes_server::Answered;
use crate::harness::times::{LIMIT, LONG};

/// The namespace in what is recorded.
pub(crate) const RECORDED: &str = "recorded";

/// A request, and the answer of the server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Exchange {
    method: String,
    path: String,
    /// The version on which something is changed.
    on: Option<String>,
    code: u16,
    date: String,
    body: String,
}

impl Exchange {
    pub(crate) fn new(asked: &Asked, answer: &Answered) -> Self {
        let body: Value = serde_json::from_str(&asked.body).unwrap_or_default();
        let on =
            [&body["metadata"], &body["preconditions"]].map(|of| of["resourceVersion"].as_str());
        Self {
            method: asked.method.to_string(),
            path: asked.path.clone(),
            on: on.into_iter().flatten().next().map(Into::into),
            code: answer.code.as_u16(),
            date: answer.date.clone(),
            body: answer.body.clone(),
        }
    }

    /// What two recordings of the same requests have in common.
    pub(crate) fn line(&self) -> String {
        let is_on = self.on.is_some();
        format!(
            "{} {} on a version: {is_on}, {}",
            self.method, self.path, self.code
        )
    }
}

pub(crate) fn file() -> PathBuf {
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/it/kubernetes");
    PathBuf::from(tests).join("exchanges.jsonl")
}

pub(crate) fn recorded() -> Vec<Exchange> {
    let text = fs::read_to_string(file()).expect("it was recorded");
    let lines = text.lines().map(serde_json::from_str);
    lines
        .collect::<Result<_, _>>()
        .expect("each line is an exchange")
}

/// A claim of the same holder each time, that names no machine.
fn claim_of(name: &str, number: u64) -> Asking {
    let mut claim = claim(name, LONG);
    claim.claim.holder = Holder::new(ClientId::from_u128(7), number);
    let info = Arc::make_mut(&mut claim.claim.info);
    (info.host, info.pid) = (RECORDED.into(), 1);
    claim
}

/// Makes the requests that are recorded.
pub(crate) async fn use_each_call(url: &str) {
    let store = store::open(url).await.expect("a URL in order");
    let store: &dyn Store = &*store;
    let lease = claim_of("nightly", 1);
    let first = granted(store, &lease).await;
    assert!(matches!(renewed(store, &lease).await, Outcome::Renewed));
    let rival = claim_of("nightly", 2);
    let seen = held(store, &rival).await;
    assert_eq!((seen.by, seen.token), (Some(lease.holder), Some(first)));
    assert!(
        seen.remaining > Some(LONG / 2) && seen.since.is_some(),
        "{seen:?}"
    );
    assert!(
        store
            .evict(&lease.name, Eviction::Marked, LIMIT)
            .await
            .expect("answered")
    );
    assert!(matches!(renewed(store, &lease).await, Outcome::Evicted));
    assert_eq!(released(store, &lease).await, Release::Released);
    assert_eq!(released(store, &lease).await, Release::NotHeld);
    assert!(granted(store, &rival).await > first);
    let odd = claim_of("Odd/Name", 3);
    granted(store, &odd).await;
    let kept = store
        .release(&odd.name, odd.holder, Some(LONG), LIMIT)
        .await;
    assert_eq!(kept.expect("answered"), Release::Released);
    let listed = store.list("", LIMIT).await.expect("answered");
    let listed: Vec<_> = listed
        .iter()
        .map(|held| (held.name.as_str(), held.state))
        .collect();
    assert_eq!(
        listed,
        [
            ("Odd/Name", HeldState::Kept),
            ("nightly", HeldState::Leased)
        ]
    );
    let mut hazards = store.hazards(LIMIT).await.expect("answered");
    // What is recorded is of another day.
    hazards.retain(|hazard| hazard.id != "kubernetes-clock");
    assert_eq!(hazards, []);
    let members = store.members(LIMIT).await.expect("answered");
    assert_eq!(members[0].state, MemberState::Up, "{members:?}");
    assert!(
        members[0]
            .version
            .as_deref()
            .is_some_and(|version| version.starts_with("Kubernetes v1."))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_real_server_answered_is_understood() {
    let left = Arc::new(Mutex::new(VecDeque::from(recorded())));
    let answers = left.clone();
    let api = Api::answering(move |asked| {
        let next = answers.lock().unwrap().pop_front();
        Box::pin(async move {
            let exchange = next.expect("no more was asked");
            let answer = Answered {
                code: StatusCode::from_u16(exchange.code).expect("a code"),
                date: exchange.date.clone(),
                body: exchange.body.clone(),
            };
            let now = Exchange::new(&asked, &answer);
            assert_eq!((now.line(), now.on), (exchange.line(), exchange.on));
            answer
        })
    });
    use_each_call(&api.await.url(RECORDED)).await;
    assert!(left.lock().unwrap().is_empty());
}

/// A change whose answer is broken off, or not understood, may have been carried out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_without_an_answer_is_of_unknown_outcome() {
    let api = Api::answering(|asked| {
        Box::pin(async move {
            let is_change = asked.method != Method::GET;
            let code = if is_change {
                StatusCode::BAD_GATEWAY
            } else {
                StatusCode::NOT_FOUND
            };
            let mut answer = api::refusal(code, "gone");
            if !is_change {
                answer.body = r#"{"reason":"NotFound","details":{"kind":"leases"}}"#.into();
            }
            answer
        })
    });
    let api = api.await;
    let store = store::open(&api.url("a")).await.expect("a URL in order");
    let claim = claim("a", LONG);
    let failed = store
        .acquire(&claim, claim.ask, LIMIT)
        .await
        .expect_err("refused");
    assert_eq!(failed.sent, Sent::Perhaps, "{failed:?}");
}
