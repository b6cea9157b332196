//! What is recorded for the tests without a server.

use std::fs;
use std::sync::{Arc, Mutex};

use http::StatusCode;

use crate::harness::kubernetes_server::Namespace;
use crate::kubernetes::api::{Api, refusal};
use crate::kubernetes::{Exchange, RECORDED, file, recorded, use_each_call};

/// With `RECORD` in the environment it is recorded anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_answers_as_it_was_recorded() {
    let namespace = Arc::new(Namespace::make().await);
    let exchanges = Arc::<Mutex<Vec<Exchange>>>::default();
    let (seen, way) = (exchanges.clone(), namespace.clone());
    let api = Api::answering(move |mut asked| {
        let (seen, way) = (seen.clone(), way.clone());
        Box::pin(async move {
            if asked.path.contains("watch=1") {
                return refusal(StatusCode::GONE, "no watch");
            }
            let mut answer = way
                .pass(&asked.method, &asked.path, asked.body.clone())
                .await;
            let whole = answer.clone();
            asked.path = asked.path.replace(&way.name, RECORDED);
            answer.body = answer.body.replace(&way.name, RECORDED);
            seen.lock().unwrap().push(Exchange::new(&asked, &answer));
            whole
        })
    });
    use_each_call(&api.await.url(&namespace.name)).await;
    let exchanges = exchanges.lock().unwrap();
    if std::env::var_os("RECORD").is_some() {
        let lines = exchanges
            .iter()
            .map(|exchange| serde_json::to_string(exchange).unwrap());
        fs::write(file(), lines.collect::<Vec<_>>().join("\n") + "\n").unwrap();
    }
    let lines = |exchanges: &[Exchange]| exchanges.iter().map(Exchange::line).collect::<Vec<_>>();
    assert_eq!(lines(&exchanges), lines(&recorded()));
}
